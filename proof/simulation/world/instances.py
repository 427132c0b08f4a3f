"""
One seeded run of a simulated home. People act (`people.py`), processes die, settings change, clocks
jump, drivers lose their claim, an outsider edits a record.

Safety holds always: `judge.py` compares every journal with every promise, with the answers that
people received, and with the world's memory. Liveness holds once the faults have stopped: nothing
stays owed, and every accepted input has an outcome or an open prompt, and an outcome after the
answer.
"""

import asyncio
import contextlib
from typing import Any

from holdfast.adapters.inmemory import InMemoryStore
from holdfast.errors import Untrusted
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Head, Record
from holdfast.runtime.ledger.home_authority import accept_clock
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.reports.types import ApprovalReport
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Mode, Policy, Rule
from holdfast.session.codec import decode
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.react import react, unsettled
from holdfast.session.state import SessionState
from holdfast.session.view.compaction import CompactionRules
from proof.checkers.states import PromiseBroken, hold
from proof.simulation.home import SERVERS, SimulatedHome, keep_serving
from proof.simulation.judge import Edited, Judge
from proof.simulation.kinds import JOB_SECONDS, Has, policy_of
from proof.simulation.simulator import Lived
from proof.simulation.virtual_loop import Stuck, run_virtually
from proof.simulation.world.people import NAMES, STORM_SECONDS, People
from proof.simulation.world.ports import SimulatedClock

QUIET_SECONDS_MAX = 600.0  # of simulated time: twenty rescans, and any number of time limits

LIFE_SECONDS_MAX = 20_000.0  # a run with every answer and every limit takes a few hundred


class InstanceScript:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.home = SimulatedHome(seed)
        self.people = People(self.home)
        self.edited: Edited | None = None
        self._folded: dict[SessionId, SessionState] = {}
        self._is_over = asyncio.Event()

    @property
    def _dice(self) -> Any:
        return self.home.chaos.dice

    async def live(self) -> Lived:
        await self.home.begin()
        async with asyncio.TaskGroup() as group:
            for _ in range(SERVERS):
                group.create_task(keep_serving(self.home, self._is_over))
            storm = group.create_task(self._storm())
            async with asyncio.TaskGroup() as crowd:
                for name in NAMES:
                    crowd.create_task(self.people.live(name))
            await storm
            await self._settle()
            self._is_over.set()
        return await Judge(self.home, self.people.told, self.edited).lived(self.seed)

    # --- faults of the world

    async def _storm(self) -> None:
        """Cause faults until the time is over. Afterwards only their consequences remain."""
        loop = asyncio.get_running_loop()
        while loop.time() < STORM_SECONDS:
            await asyncio.sleep(self._dice.uniform(0, 4))
            self._something_happens()
        home = self.home
        home.chaos.is_over = True
        home.disk.forgive()
        for process in home.processes:
            process.clock.skew_ms = 0
        await self._accept_the_clock()
        home.policy, home.compaction = policy_of(home.kind), CompactionRules()

    async def _accept_the_clock(self) -> None:
        """
        Clocks were days ahead and are right again. A person accepts the clock, and prompts can be
        approved again.
        """
        clock = SimulatedClock()
        home = HomeLedger(InMemoryStore(self.home.disk, clock=clock, name="clock"))
        await accept_clock(home, clock.now_ms(), by="alice")
        await home.close()

    def _something_happens(self) -> None:
        home, dice, roll = self.home, self._dice, self._dice.random()
        living = home.living()
        if roll < 0.40 and living:
            dice.choice(living).die()
        elif roll < 0.52:
            home.policy = _policy(dice, home.kind)
        elif roll < 0.64 and living:
            dice.choice(living).clock.skew_ms += dice.choice(
                (-3_600_000, 3_600_000, 8 * 86_400_000)
            )
        elif roll < 0.70:
            home.index = type(home.index)()  # a cache: deleting it changes nothing
        elif roll < 0.80:
            home.compaction = CompactionRules(at_tokens=dice.choice((40, 100)), keep_turns=1)
        elif roll < 0.90:
            self._rob()
        elif roll < 0.93 and self.edited is None:
            self._edit()
        elif roll < 0.97:
            home.jobs.kill_one()

    def _rob(self) -> None:
        """Take a driver's claim without its knowledge. The next claim has a higher epoch."""
        driven = [
            each for each in self.home.sessions() if self.home.disk.living(each).driver is not None
        ]
        if driven:
            self.home.disk.rob(self._dice.choice(driven))

    def _edit(self) -> None:
        """Change one byte of an acknowledged record, without the key."""
        session = self._dice.choice(self.home.sessions())
        stored = self.home.disk.living(session)
        seq = self._dice.randint(1, stored.anchor.seq)
        self.edited = Edited(session, seq, len(stored.entries))
        self.home.disk.flip(session, seq)

    # --- after the faults

    def _honest(self) -> list[SessionId]:
        return [
            each
            for each in self.home.sessions()
            if self.edited is None or each != self.edited.session
        ]

    async def _settle(self) -> None:
        """
        Wait until nothing is owed. Then people answer every prompt, and nothing may stay open.
        """
        if self.edited is not None:
            with contextlib.suppress(Untrusted):
                await self.home.records(
                    self.edited.session
                )  # a reader opens it: the next open finds the change
        await self._until_quiet()
        for _ in range(10):
            asked = [each for each in await self._waiting() if each.session in self._honest()]
            if not asked:
                break
            await self._check_reach(asked)
            for each in asked:
                answer = f"calm-{each.id}"
                await self.people.persist(
                    lambda service, each=each, answer=answer: service.answer(
                        each.id, "deny", by=each.may_answer[0], answer_id=answer
                    )
                )
            await self._until_quiet()
        for session in self._honest():
            state = self._state(session)
            hold(
                "T7",
                not state.turns and not state.queued,
                f"{session}: {list(state.turns)} left over when all was answered",
            )

    async def _stop_what_comes_again(self) -> None:
        """
        Cancel reminders without an end, which would never let the home become quiet. One-time
        reminders are awaited.
        """
        standing, _, _ = await self.people.persist(lambda service: service.reminders.list())
        for each in standing or ():
            if each.when.startswith("every"):
                await self.people.persist(
                    lambda service, each=each: service.reminders.cancel(each.id, by=each.by)
                )

    async def _check_reach(self, asked: list[ApprovalReport]) -> None:
        """Check that a delegate's prompt is reported with the person's request, all the way up."""
        for each in asked:
            parent = self._state(each.session).parent
            while parent is not None and parent.session in self._honest():
                above, turn = parent.session, parent.turn
                report, _, _ = await self.people.persist(
                    lambda service, above=above, turn=turn: service.turn(above, turn)
                )
                told = [one.id for one in report.approvals] if report is not None else []
                hold("T7", each.id in told, f"{each.session} asks, and {above} does not tell of it")
                parent = self._state(above).parent

    async def _waiting(self) -> list[ApprovalReport]:
        found: Any = await self.people.persist(lambda service: service.approvals())
        return list(found[0] or ())

    async def _until_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + QUIET_SECONDS_MAX
        while owed := [
            line
            for session in self._honest()
            for line in _owed(self._state(session), self._honest())
        ]:
            hold(
                "T7", loop.time() < ends, f"faults have stopped, and it still does not end: {owed}"
            )
            await (
                self._stop_what_comes_again()
            )  # each time, because a turn that is still running may set another
            await asyncio.sleep(10)

    def _state(self, session: SessionId) -> SessionState:
        """
        Return the state folded from the stored records since the last check, without opening the
        session, which would repair it.
        """
        stored = self.home.disk.living(session)
        hold("L7", stored.seal is None, f"{session}: a false accusation: {stored.seal}")
        state = self._folded.get(session) or initial(session, stored.instance)
        before = Head(state.seq, stored.entries[state.seq - 1].mac) if state.seq else stored.genesis
        batch: list[Record] = []  # part of one at the end does not count, and will be cut
        while before.seq < len(stored.entries):
            record = stored.read(before)
            assert record is not None, f"{session}: record {before.seq + 1} does not verify"
            before = Head(record.seq, record.mac)
            batch.append(record)
            if not record.more:
                for each in batch:
                    state = evolve(
                        state,
                        decode(each.type, each.version, each.body, seq=each.seq),
                        seq=each.seq,
                        at=each.at,
                    )
                batch = []
        self._folded[session] = state
        return state


def _owed(state: SessionState, honest: list[SessionId]) -> list[str]:
    """
    Return the owed work. A parked turn with an open prompt waits for a person, and one with a
    running delegate waits for the delegate, so neither is owed. A sealed delegate never ends.
    """
    owed = [type(effect).__name__ for effect in react(state)]
    owed += [
        *(each.delivery for each in unsettled(state)),
        *(each.turn for each in state.queued),
        *state.jobs,
        *state.reminders,
    ]
    owed += [turn.id for turn in state.turns.values() if not turn.waiting and not turn.only_waits]
    owed += [child.call for child in state.delegates.values() if child.session not in honest]
    return [f"{state.session} {each}" for each in owed]


def _policy(dice: Any, kind: frozenset[Has]) -> Policy:
    modes: tuple[Mode, ...] = ("auto", "ask", "deny")
    rules = {
        audience: {
            name: Rule(
                mode=dice.choice(modes),
                approvers=dice.choice((None, ("bob",), ("bob", "carol"), ())),
                requester_may_answer=dice.choice((None, False)),
            )
            for name in (
                "act",
                "look",
                "charge",
                *(("delegate_helper", "dig", "set_reminder", "recall") if kind else ()),
            )
            if dice.random() < 0.5
        }
        for audience in Audience
    }
    return Policy(
        rules=rules,
        prompts_per_turn_max=dice.choice((1, 20)),
        turn_model_calls_max=dice.choice((3, 50)),
        on_message=dice.choice(("supersede", "wait")),
        job_seconds=JOB_SECONDS,
    )


def simulate_home(seed: int) -> Lived:
    """
    Run one simulation. Raise PromiseBroken, or the error that occurred. The seed is enough to
    repeat it.
    """
    try:
        return run_virtually(_live(seed), seconds_max=LIFE_SECONDS_MAX)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    except Stuck as exc:
        raise PromiseBroken(f"T7: {exc}") from exc


async def _live(seed: int) -> Lived:
    return await InstanceScript(seed).live()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return a broken promise before its consequences."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [errors]
    while stack:
        each = stack.pop()
        stack.extend(each.exceptions) if isinstance(each, BaseExceptionGroup) else flat.append(each)
    return next((each for each in flat if isinstance(each, PromiseBroken)), flat[0])
