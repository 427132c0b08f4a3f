"""
A whole home in simulated time: the real service, drivers and attempts of several processes over one
in-memory disk.

A process serves, or runs one command and ends. It dies at any await, or in the middle of a commit,
without notice. The world's memory (tools that ran, messages that arrived, answers that people
received) is kept here, outside of all processes, for `judge.py`.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.adapters.inmemory import Crashed, InMemoryDisk, InMemoryIndex, InMemoryStore
from holdfast.gateway.server.drive_scheduler import DriveScheduler
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.ports.delivery import Parcel
from holdfast.ports.journal_store import Draft, Record
from holdfast.ports.tools import ProcessFacts, ToolCall
from holdfast.runtime.context import ModelTimes, World
from holdfast.runtime.service import Service
from holdfast.session.codec import encode
from holdfast.session.events import SessionBorn
from holdfast.session.view.compaction import CompactionRules
from proof.simulation.kinds import Has, agents_of, kind_of, policy_of, sessions_of
from proof.simulation.world.jobs import DigTool, JobTable, SimulatedJobs
from proof.simulation.world.memory import (
    RECALL_SECONDS,
    SimulatedMemory,
    SimulatedSearch,
    place_canaries,
)
from proof.simulation.world.model import OneModel, SimulatedModel
from proof.simulation.world.ports import (
    Chaos,
    Mortal,
    SimulatedClock,
    SimulatedNotifier,
    SimulatedPost,
    SimulatedStore,
    channels_of,
)
from proof.simulation.world.tools import simulated_functions, toolbox_of

SERVERS = 2
_BOOT = "this-boot"
_T = TypeVar("_T")


class Gone(Exception):
    """The process died before it answered."""


class ToolEffect(NamedTuple):
    """A tool's effect, with the authority that the tool received."""

    session: SessionId
    call: str
    turn: str
    requester: str | None
    audience: str
    boundary: str
    tool: str


class Shown(NamedTuple):
    """Canaries in a model's request, with its turn, or with None if the turn is unknown."""

    session: SessionId | None
    turn: TurnId | None
    canaries: frozenset[str]


class SimulatedHome:
    """The state that outlives processes."""

    def __init__(self, seed: int) -> None:
        self.kind = kind_of(seed)
        self.chaos = Chaos(seed)
        self.disk = InMemoryDisk()
        self.index = InMemoryIndex()
        self.policy = policy_of(self.kind)
        self.compaction = CompactionRules()
        self.agents = agents_of(self.kind)
        self.functions = simulated_functions(
            self.chaos, self.effect
        )  # one program, in every process
        self.processes: list[Process] = []
        self.ran: list[ToolEffect] = []
        self.broken: list[str] = []
        self.shown: list[Shown] = []
        self.searches: list[SimulatedSearch] = []
        self.jobs = JobTable(self.disk, self.chaos, self.effect, self.broken)
        self.arrived: Counter[str] = Counter()
        self.deaths = 0
        self._numbers = 0

    async def begin(self) -> None:
        """Create the sessions with ids that a seed repeats."""
        store = InMemoryStore(self.disk, clock=SimulatedClock(), name="creation")
        for number, session in enumerate(sessions_of(self.kind)):
            instance = InstanceId(f"life-{number}")
            created = SessionBorn(session=session, instance=instance, origin="created", by="alice")
            await store.create(
                session, instance, [Draft(*encode(created))], origin="created", by="alice"
            )
        await store.close()
        if Has.MEMORY in self.kind:
            place_canaries(self.disk)

    def sessions(self) -> list[SessionId]:
        """
        Return the existing sessions, delegates' included, in the order of their creation. Bytes
        that the home's journal does not name are not a session.
        """
        creations = (
            entry.body for entry in self.disk.home.entries if b'"session_created"' in entry.header
        )
        return [SessionId(msgspec.json.decode(body)["session"]) for body in creations]

    def process(self) -> "Process":
        self._numbers += 1
        made = Process(self, self._numbers)
        self.processes.append(made)
        return made

    def living(self) -> "list[Process]":
        return [each for each in self.processes if each.is_alive and each.is_open.is_set()]

    def servers(self) -> "list[Process]":
        return [each for each in self.living() if each.is_serving]

    def effect(self, call: ToolCall, tool: str) -> None:
        """T1: every effect in the world has a durable start."""
        wanted = call.call.encode()
        entries = self.disk.living(call.session).entries
        started = any(
            b'"tool_started"' in entry.header and wanted in entry.body for entry in entries
        )
        if not started:
            self.broken.append(
                f"T1: {call.call} has an effect before its start is durable"
            )  # if raised here, it would count as the tool's own failure
        self.ran.append(
            ToolEffect(
                call.session,
                call.call,
                call.turn,
                call.requester,
                call.audience,
                call.boundary,
                tool,
            )
        )

    def canaries(
        self, session: SessionId | None, turn: TurnId | None, found: frozenset[str]
    ) -> None:
        self.shown.append(Shown(session, turn, found))

    def arrive(self, parcel: Parcel) -> None:
        self.arrived[parcel.delivery] += 1

    async def records(self, session: SessionId) -> list[Record]:
        """Return the records as a fresh process finds them, or raise its error."""
        store = InMemoryStore(self.disk, clock=SimulatedClock(), name="looking")
        journal = await store.open(session)
        found: list[Record] = []
        await journal.load(found.append)
        return found


class Process:
    """
    One process. All its work is in `tasks`. Killing it cancels them, and its ports are dead before
    the tasks notice.
    """

    def __init__(self, home: SimulatedHome, number: int) -> None:
        self.home = home
        self.name = f"process-{number}"
        self.facts = ProcessFacts(boot_id=_BOOT, group=number, start_time=number)
        self.is_alive = True
        self.is_open = asyncio.Event()
        self.is_serving = False
        self.clock = SimulatedClock()
        self.tasks: set[asyncio.Task[Any]] = set()
        self._leave = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self.service = Service(self._world())

    def _world(self) -> World:
        home, chaos = self.home, self.home.chaos
        index: Any = Mortal(self, lambda: home.index)
        kept = SimulatedMemory(home.disk, chaos, home.searches) if Has.MEMORY in home.kind else None
        memory: Any = Mortal(self, lambda: kept) if kept is not None else None
        dig = DigTool(home.functions.dig, self, home.jobs, chaos)
        return World(
            store=SimulatedStore(self, home.disk, chaos, self.clock, self.name),
            models=OneModel(SimulatedModel(chaos, home.kind, home.canaries)),
            tools=toolbox_of(home.functions, dig, home.kind, memory, self.clock.now_ms),
            notifier=SimulatedNotifier(self, home.disk, chaos),
            clock=self.clock,
            index=index,
            agents=home.agents,
            default_agent="ops",
            policy=lambda: home.policy,
            folder_identity=lambda _: "1:1",
            tool_timeout_seconds=8.0,
            model_times=ModelTimes(first_token_seconds=10.0, gap_seconds=6.0, retry_seconds=0.5),
            channels=channels_of(SimulatedPost(chaos, home.arrive)),
            compaction=lambda: home.compaction,
            memory=memory,
            recall_seconds=RECALL_SECONDS,
            jobs=SimulatedJobs(self, home.jobs, chaos),
            random_bytes=chaos.random_bytes,
        )

    # --- run

    async def run(self, *, serving: bool) -> None:
        """Run until it is asked to leave or dies. Any other failure is a bug."""
        self._main = asyncio.ensure_future(self._serve() if serving else self._wait())
        await asyncio.wait([self._main])
        if self._main.cancelled():
            return
        error = self._main.exception()
        if self.is_alive and error is not None:
            raise error

    async def _wait(self) -> None:
        async with self.service:
            self.is_open.set()
            await self._leave.wait()
        self.is_alive = False

    async def _serve(self) -> None:
        """
        Serve as the gateway does: scan for owed work, wake on notices, and give each owing session
        a task.
        """
        self.is_serving = True
        async with self.service, asyncio.TaskGroup() as group:
            drives = DriveScheduler(self.service)
            running = [group.create_task(drives.run()), group.create_task(self._listen(drives))]
            self.is_open.set()
            await self._leave.wait()
            await drives.stop(5.0)
            for task in running:
                task.cancel()
        self.is_alive = False

    async def _listen(self, drives: DriveScheduler) -> None:
        async with self.service.runtime.world.notifier.listen() as notices:
            async for session in notices:
                drives.wake(session)

    async def ask(self, work: Callable[[Service], Awaitable[_T]]) -> _T:
        """Run some work in the process. Raise `Gone` if the process dies meanwhile."""
        await self.is_open.wait()

        async def working() -> _T:
            return await work(self.service)

        task = asyncio.ensure_future(working())
        self.tasks.add(task)
        await asyncio.wait([task])
        self.tasks.discard(task)
        if not self.is_alive:
            with contextlib.suppress(asyncio.CancelledError):
                task.exception()
            raise Gone
        return task.result()

    # --- end

    def leave(self) -> None:
        self._leave.set()

    def die(self) -> None:
        """Die as by kill -9: from here on none of its actions has an effect."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.home.deaths += 1
        store = self.service.runtime.world.store
        if isinstance(store, InMemoryStore):
            store.crash()
        self.is_open.set()
        for task in [self._main, *self.tasks]:
            if task is not None:
                task.cancel()


@asynccontextmanager
async def a_command(home: SimulatedHome) -> Any:
    """A process for one command. It closes its home in order if it survives."""
    process = home.process()
    running = asyncio.ensure_future(process.run(serving=False))
    try:
        yield process
    finally:
        process.leave()
        await running


async def keep_serving(home: SimulatedHome, is_over: asyncio.Event) -> None:
    """Run a server, and the next one when it has died."""
    while not is_over.is_set():
        process = home.process()
        running = asyncio.ensure_future(process.run(serving=True))
        over = asyncio.ensure_future(is_over.wait())
        await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        process.leave()
        await running
        # The next one starts at once, or after a downtime in which reminders come due and jobs end.
        await asyncio.sleep(
            home.chaos.dice.uniform(10, 40)
            if home.chaos.strikes(0.15)
            else home.chaos.dice.uniform(0, 2)
        )


def bodies(records: Iterable[Record], kind: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(each.body) for each in records if each.type == kind]


__all__ = [
    "SERVERS",
    "Crashed",
    "Gone",
    "Process",
    "SimulatedHome",
    "ToolEffect",
    "a_command",
    "bodies",
    "keep_serving",
]
