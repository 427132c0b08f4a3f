"""
One seeded life of a simulated home: people write, answer, cancel and give up waiting; processes die, settings change, clocks jump, an outsider edits a record.

Safety always: every journal keeps every promise of `promises.py` and `history.py`, what was told is there, nothing ran twice, early or under another authority.
Liveness once the faults have stopped: nothing owed remains, and every accepted input has an outcome or a standing prompt; answered, it has an outcome.
"""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import Busy, Fenced, HoldfastError, InDoubt, Refused, Untrusted
from holdfast.ids import SessionId, TurnId
from holdfast.journal.verify import Verdict
from holdfast.ports.journal_store import Record
from holdfast.runtime.reports import ApprovalReport
from holdfast.runtime.service import Service
from holdfast.session.authority import Audience, MessageSource
from holdfast.session.compaction import CompactionRules
from holdfast.session.policy import Mode, Policy, Rule
from holdfast.session.react import unsettled
from holdfast.testing.history import History, check_history
from holdfast.testing.promises import PromiseBroken, hold
from holdfast.testing.simulated_home import SERVERS, SESSIONS, Gone, SimulatedHome, a_command, bodies, keep_serving
from holdfast.testing.simulator import Lived
from holdfast.testing.virtual_loop import Stuck, run_virtually

PEOPLE = ("alice", "bob", "carol")
THINGS_EACH = 3  # that a person does: enough for turns to meet, few enough for a thousand lives a minute
STORM_SECONDS = 25.0
QUIET_SECONDS_MAX = 600.0  # of made-up time: twenty rescans, and any number of time limits
TRIES_MAX = 12
_NEVER_AFTER_AN_EDIT = frozenset({"input_accepted", "model_answered", "tool_started", "approval_answered"})


class Edited(NamedTuple):
    """An outsider's deed: which record was changed, and how many there were."""

    session: SessionId
    seq: int
    records: int


class Told:
    """What people were told, and may rely on."""

    def __init__(self) -> None:
        self.inputs: dict[tuple[SessionId, str], str] = {}  # (session, dedup): text
        self.answers: dict[str, tuple[str, str]] = {}  # approval: (answer id, option)
        self.refused: set[str] = set()  # answer ids that were refused at the first try


class Life:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.home = SimulatedHome(seed)
        self.told = Told()
        self.edited: Edited | None = None
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
                for person in PEOPLE:
                    crowd.create_task(self._person(person))
            await storm
            await self._settle()
            self._is_over.set()
        return await self._judged()

    # --- people

    async def _person(self, name: str) -> None:
        for number in range(THINGS_EACH):
            await asyncio.sleep(self._dice.uniform(0, STORM_SECONDS / THINGS_EACH))
            session, roll = self._dice.choice(SESSIONS), self._dice.random()
            if roll < 0.55:
                await self._send(name, session, f"{name}-{number}")
            elif roll < 0.85:
                await self._answer_something(name, f"{name}-{number}")
            elif roll < 0.93:
                may_all = self._dice.random() < 0.3
                await self._once(lambda service: service.cancel(session, by=name, may_all=may_all))  # noqa: B023  # awaited before the next
            else:
                await self._once(lambda service: service.compact(session))  # noqa: B023  # awaited before the next

    async def _asked_of_somebody(self, work: Any) -> Any:
        """Of a server, or by a command of one's own."""
        servers = self.home.servers()
        if servers and self._dice.random() < 0.5:
            return await self._dice.choice(servers).ask(work)
        async with a_command(self.home) as process:
            return await process.ask(work)

    async def _once(self, work: Any) -> Any:
        try:
            return await self._asked_of_somebody(work)
        except (HoldfastError, Gone):
            return None

    async def _persist(self, work: Any) -> tuple[Any, HoldfastError | None, int]:
        """Again and again, as a client with a key does, until it is told something that stands. What it was told, and the tries it took."""
        for tries in range(1, TRIES_MAX + 1):
            try:
                return await self._asked_of_somebody(work), None, tries
            except (Gone, Busy, InDoubt, Fenced):
                await asyncio.sleep(self._dice.uniform(0, 4))
            except (Refused, Untrusted) as exc:
                return None, exc, tries
        return None, None, TRIES_MAX

    async def _send(self, name: str, session: SessionId, key: str) -> None:
        text, source = self._dice.choice(("do it", "do more", "yes")), _source(name, self._dice)
        wait = self._dice.random() < 0.6
        report, _, _ = await self._persist(lambda service: service.send(session, text, source=source, dedup=key, wait=wait))
        if report is not None and (report.error is None or report.error.code != "answer_word"):
            self.told.inputs[session, key] = text

    async def _answer_something(self, name: str, answer: str) -> None:
        waiting: Any = await self._once(lambda service: service.approvals())
        if not waiting:
            return
        asked: ApprovalReport = self._dice.choice(waiting)
        by = self._dice.choice(asked.may_answer) if self._dice.random() < 0.8 else name
        option = self._dice.choice((*asked.options, "approve_once", "yes"))
        digest = asked.digest if self._dice.random() < 0.9 else "another"
        arguments = {"what": "b"} if option == "edit" else None
        wait = self._dice.random() < 0.6

        def work(service: Service) -> Any:
            return service.answer(asked.id, option, by=by, digest=digest, arguments=arguments, answer_id=answer, reason="because", wait=wait)

        report, refusal, tries = await self._persist(work)
        if report is not None:
            self.told.answers[asked.id] = answer, option
        elif refusal is not None and refusal.code != "voided" and tries == 1:
            self.told.refused.add(answer)

    # --- what the world does meanwhile

    async def _storm(self) -> None:
        """Until its time is over; then nothing is wrong any more but what has happened."""
        loop = asyncio.get_running_loop()
        while loop.time() < STORM_SECONDS:
            await asyncio.sleep(self._dice.uniform(0, 4))
            self._something_happens()
        home = self.home
        home.chaos.is_over = True
        home.disk.forgive()
        for process in home.processes:
            process.clock.skew_ms = 0
        home.policy, home.compaction = Policy(), CompactionRules()

    def _something_happens(self) -> None:
        home, dice, roll = self.home, self._dice, self._dice.random()
        living = home.living()
        if roll < 0.45 and living:
            dice.choice(living).die()
        elif roll < 0.60:
            home.policy = _policy(dice)
        elif roll < 0.72 and living:
            dice.choice(living).clock.skew_ms += dice.choice((-3_600_000, 3_600_000, 8 * 86_400_000))
        elif roll < 0.80:
            home.index = type(home.index)()  # a cache: deleting it changes nothing
        elif roll < 0.90:
            home.compaction = CompactionRules(at_tokens=dice.choice((40, 100)), keep_turns=1)
        elif roll < 0.93 and self.edited is None:
            self._edit()

    def _edit(self) -> None:
        """Somebody without the key changes one byte of what was acknowledged."""
        session = self._dice.choice(SESSIONS)
        life = self.home.disk.living(session)
        seq = self._dice.randint(1, life.anchor.seq)
        self.edited = Edited(session, seq, len(life.entries))
        self.home.disk.flip(session, seq)

    # --- calm

    def _honest(self) -> list[SessionId]:
        return [each for each in SESSIONS if self.edited is None or each != self.edited.session]

    async def _settle(self) -> None:
        """Nothing owed remains; then people answer all they are asked, and nothing is left open at all."""
        await self._until_quiet()
        for _ in range(10):
            asked = [each for each in await self._waiting() if each.session in self._honest()]
            if not asked:
                break
            for each in asked:
                await self._persist(lambda service, each=each: service.answer(each.id, "deny", by=each.may_answer[0], answer_id=f"calm-{each.id}"))
            await self._until_quiet()
        for session in self._honest():
            state = (await self._history(session)).state
            hold("T7", not state.turns and not state.queued, f"{session}: {list(state.turns)} left over when all was answered")

    async def _waiting(self) -> list[ApprovalReport]:
        found: Any = await self._persist(lambda service: service.approvals())
        return list(found[0] or ())

    async def _until_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + QUIET_SECONDS_MAX
        while owed := [line for session in self._honest() for line in self._owed(session, await self._history(session))]:
            hold("T7", loop.time() < ends, f"faults have stopped, and it still does not end: {owed}")
            await asyncio.sleep(10)

    @staticmethod
    def _owed(session: SessionId, history: History) -> list[str]:
        """A parked turn whose prompt stands waits for a person, which is no debt."""
        state = history.state
        owed = [*history.owes, *(each.delivery for each in unsettled(state)), *(each.turn for each in state.queued)]
        return [f"{session} {each}" for each in (*owed, *(turn.turn for turn in state.turns.values() if not turn.waiting))]

    async def _history(self, session: SessionId) -> History:
        return _checked(session, self.home, await self.home.records(session))

    # --- judging

    async def _judged(self) -> Lived:
        records, turns, starts = 0, 0, 0
        if self.home.broken:
            raise PromiseBroken(self.home.broken[0])
        for session in SESSIONS:
            if session not in self._honest():
                await self._check_edited(session)
                continue
            history = await self._history(session)
            self._check_told(session, history)
            self._check_world(session, history)
            records, turns = records + len(history.entries), turns + history.state.turns_ended
            starts += len(history.of("tool_started"))
        counted = Counter(each.call for each in self.home.ran)
        hold("T1", not self.home.disk.home.seal, "the home's own journal is sealed")
        return Lived(self.seed, records, turns, starts, self.home.deaths, effects=sum(counted.values()), faults=self.home.chaos.faults)

    def _check_told(self, session: SessionId, history: History) -> None:
        """D1, D2: acknowledged is a subset of what is there, once each."""
        accepted = Counter((each.body.get("dedup"), each.body["text"]) for each in history.of("input_accepted"))
        hold("D2", all(count == 1 for count in accepted.values()), f"{session}: taken in twice: {accepted}")
        for (where, key), text in self.told.inputs.items():
            hold("D1", where != session or accepted[key, text] == 1, f"{session}: {key} was acknowledged, and is not there")
        asked = {each.body["approval"] for each in history.of("approval_requested")}
        answered = {each.body["approval"]: (each.body["answer_id"], each.body["option"]) for each in history.of("approval_answered")}
        for approval, answer in self.told.answers.items():
            hold(
                "D1", approval not in asked or answered.get(approval) == answer, f"{session}: the answer {answer} was acknowledged, and is not there"
            )
        wrong = self.told.refused & {answer for answer, _ in answered.values()}
        hold("P2", not wrong, f"{session}: refused, and there: {wrong}")
        taken = {name for each in history.of("turn_started") for name in each.body["inputs"]}
        dropped = {each.body["input"] for each in history.of("input_dropped")}
        missing = [each.body["input"] for each in history.of("input_accepted") if each.body["input"] not in taken | dropped]
        hold("T7", not missing, f"{session}: accepted, and never taken up: {missing}")

    def _check_world(self, session: SessionId, history: History) -> None:
        """T2, A1: what ran, how often, and as whom; and what arrived."""
        mine = [each for each in self.home.ran if each.session == session]
        contracts = {each.body["call"]: each.body.get("contract", "once") for each in history.of("tool_started")}
        for call, count in Counter(each.call for each in mine).items():
            hold("T2", contracts[call] != "once" or count == 1, f"{session}: {call} had its effect {count} times")
        contexts = {TurnId(each.body["turn"]): each.body["context"] for each in history.of("input_accepted")}
        for each in mine:
            context = contexts[TurnId(each.turn)]
            shown = (each.requester, each.audience, each.boundary)
            hold("A1", shown == (context["requester"], context["audience"], context["boundary"]), f"{session}: {each} ran under another authority")
        finished = {each.body["call"]: each.body for each in history.of("call_finished")}
        for call, body in finished.items():
            happened = any(each.call == call for each in mine)
            hold(
                "T5", body["outcome"] != "ok" or body.get("code") or happened or call not in contracts, f"{session}: {call} is ok, and never happened"
            )
        for confirmed in (entry.body["delivery"] for entry in history.of("delivery_confirmed")):
            hold("T2", self.home.arrived[confirmed] == 1, f"{session}: {confirmed} is confirmed, and arrived {self.home.arrived[confirmed]} times")

    async def _check_edited(self, session: SessionId) -> None:
        """L4, D4: noticed at the next open, sealed, and nothing acted on since."""
        assert self.edited is not None
        sealed = True
        try:
            await self.home.records(session)
            sealed = self.home.disk.living(session).seal is not None
        except Untrusted:
            pass
        hold("D4", sealed, f"{session}: record {self.edited.seq} was changed, and nobody noticed")
        since = self.home.disk.living(session).entries[self.edited.records :]
        acted = [kind for each in since if (kind := msgspec.json.decode(each.header)[4]) in _NEVER_AFTER_AN_EDIT]
        hold("L4", not acted, f"{session}: after record {self.edited.seq} was changed, there came {acted}")


def _checked(session: SessionId, home: SimulatedHome, records: list[Record]) -> History:
    life = home.disk.living(session)
    hold("L7", life.seal is None, f"{session}: a false accusation: {life.seal}")
    verdict = Verdict(session=session, verdict="holds", records=len(records), at_seq=None, segment=None, byte=None, sealed=False, detail=None)
    history = check_history(verdict, session, life.instance, records)
    dedups = Counter((each["context"]["requester"], each["dedup"]) for each in bodies(records, "input_accepted") if each.get("dedup"))
    hold("D2", all(count == 1 for count in dedups.values()), f"{session}: a key is taken in twice: {dedups}")
    return history


def _source(name: str, dice: Any) -> MessageSource | None:
    roll = dice.random()
    if roll < 0.7:
        return MessageSource.local(name)
    if roll < 0.85:
        return MessageSource.team(name, "ops")
    return MessageSource.automation(name, channel="webhook") if roll < 0.95 else None


def _policy(dice: Any) -> Policy:
    modes: tuple[Mode, ...] = ("auto", "ask", "deny")
    rules = {
        audience: {
            name: Rule(
                mode=dice.choice(modes),
                approvers=dice.choice((None, ("bob",), ("bob", "carol"), ())),
                requester_may_answer=dice.choice((None, False)),
            )
            for name in ("act", "look", "charge")
            if dice.random() < 0.5
        }
        for audience in Audience
    }
    return Policy(
        rules=rules,
        prompts_per_turn_max=dice.choice((1, 20)),
        turn_model_calls_max=dice.choice((3, 50)),
        on_message=dice.choice(("supersede", "wait")),
    )


def simulate_home(seed: int) -> Lived:
    """One life. Raises PromiseBroken, or whatever broke; the seed is all that is needed to see it again."""
    try:
        return run_virtually(_live(seed))
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    except Stuck as exc:
        raise PromiseBroken(f"T7: {exc}") from exc


async def _live(seed: int) -> Lived:
    return await Life(seed).live()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """A broken promise before its consequences."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [errors]
    while stack:
        each = stack.pop()
        stack.extend(each.exceptions) if isinstance(each, BaseExceptionGroup) else flat.append(each)
    return next((each for each in flat if isinstance(each, PromiseBroken)), flat[0])
