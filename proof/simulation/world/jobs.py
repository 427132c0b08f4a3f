"""
Jobs as processes of their own, in simulated time: a launcher that waits for one byte, a supervisor
that outlives the process that released it, and its report.

They belong to the machine, so they continue when a simulated process dies. A launcher that was
never released ends with the process that created it and runs nothing. The real outcome of each is
kept here and compared with its journal.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.adapters.inmemory import Crashed, InMemoryDisk
from holdfast.adapters.tools.python.decorator import PythonTool
from holdfast.ids import CallId, InstanceId, JobId
from holdfast.ports.jobs import JobKey, JobLeft, JobSeen
from holdfast.ports.tools import (
    CannotBind,
    Prepared,
    PreparedJob,
    ProcessFacts,
    Scene,
    ToolCall,
    ToolReturned,
)
from holdfast.secrecy import Secret
from holdfast.session.authority.plan import Binding, ToolDefinition
from proof.simulation.world.ports import Chaos

if TYPE_CHECKING:
    from proof.simulation.home import Process

_BOOT = "this-boot"
_FIRST_GROUP = 1_000  # of supervisors; lower numbers are processes of Holdfast


class Supervisor:
    """
    The supervisor of one job, prepared by `owner`. `returned` is its report, or None if it died
    without one.
    """

    def __init__(self, group: int, job: JobId, owner: "Process") -> None:
        self.facts = ProcessFacts(boot_id=_BOOT, group=group, start_time=group)
        self.job = job
        self._owner = owner
        self.is_let_go = False
        self._is_over = False
        self.was_asked = False
        self.returned: ToolReturned | None = None
        self.is_cleared = False
        # Somebody without the key has replaced its report. Chosen by its number, so that the dice
        # of earlier seeds do not change.
        self.is_forged = group % 13 == 5
        self.hurry = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        """
        Until its release it waits on a pipe, which closes with the process that holds the other
        end.
        """
        return not self._is_over and (self.is_let_go or self._owner.is_alive)

    def ends(self, returned: ToolReturned | None) -> None:
        if not self._is_over:
            self._is_over, self.returned = True, returned
        self.hurry.set()

    def ask(self) -> None:
        if self.is_alive:
            self.was_asked = True
            self.hurry.set()
            if not self.is_let_go:
                self.ends(None)

    def truth(self) -> str:
        """The outcome that its journal must record after the release."""
        return (
            "in_doubt"
            if self.returned is None or self.was_asked or self.is_forged
            else self.returned.outcome
        )


class JobTable:
    """The machine's jobs, of every process."""

    def __init__(
        self,
        disk: InMemoryDisk,
        chaos: Chaos,
        effect: Callable[[ToolCall, str], None],
        broken: list[str],
    ) -> None:
        self._disk = disk
        self._chaos = chaos
        self._effect = effect
        self._broken = broken
        self._groups = _FIRST_GROUP
        self._all: dict[int, Supervisor] = {}  # by group
        self.supervisors: dict[JobId, Supervisor] = {}  # the released ones
        self._let_go: Counter[JobId] = Counter()
        self._running: set[asyncio.Task[None]] = set()

    def fork(self, job: JobId, owner: "Process") -> Supervisor:
        self._groups += 1
        made = self._all[self._groups] = Supervisor(self._groups, job, owner)
        return made

    def start(self, supervisor: Supervisor, call: ToolCall, seconds_max: float) -> None:
        """T1, T2: its submission is durable, and it was not released before."""
        wanted = supervisor.job.encode()
        entries = self._disk.living(call.session).entries
        if not any(
            b'"job_submitted"' in entry.header and wanted in entry.body for entry in entries
        ):
            self._broken.append(f"T1: {supervisor.job} runs before its submission is durable")
        self._let_go[supervisor.job] += 1
        if self._let_go[supervisor.job] > 1:
            self._broken.append(f"T2: {supervisor.job} is started twice")
        supervisor.is_let_go = True
        self.supervisors[supervisor.job] = supervisor
        task = asyncio.ensure_future(self._run(supervisor, call, seconds_max))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, supervisor: Supervisor, call: ToolCall, seconds_max: float) -> None:
        dice = self._chaos.dice
        hangs, fails = self._chaos.strikes(0.1), self._chaos.strikes(0.1)
        self._effect(call, "dig")
        takes = min(10_000.0 if hangs else dice.uniform(0, 15), seconds_max)
        try:
            async with asyncio.timeout(takes):
                await supervisor.hurry.wait()
        except TimeoutError:
            outcome: Any = "timed_out" if takes == seconds_max else "error" if fails else "ok"
            supervisor.ends(ToolReturned(outcome=outcome, text=f"dug by {supervisor.facts.group}"))
            return
        if supervisor.is_alive and not self._chaos.strikes(
            0.2
        ):  # otherwise it does not listen and must be killed
            await asyncio.sleep(dice.uniform(0, 2))
            supervisor.ends(ToolReturned(outcome="cancelled", text="half dug"))

    def find(self, process: ProcessFacts) -> Supervisor | None:
        return self._all.get(process.group)

    def present(self) -> list[JobId]:
        return [
            each.job
            for each in self._all.values()
            if each.is_alive or (each.is_let_go and not each.is_cleared)
        ]

    def kill_one(self) -> None:
        """Kill a supervisor, as an operator or a lack of memory would. It leaves no report."""
        running = [each for each in self._all.values() if each.is_alive]
        if running:
            self._chaos.dice.choice(running).ends(None)


class SimulatedJobs:
    """The `JobPlace` of one process."""

    def __init__(self, process: "Process", table: JobTable, chaos: Chaos) -> None:
        self._process = process
        self._table = table
        self._chaos = chaos

    def _check_alive(self) -> None:
        if not self._process.is_alive:
            raise Crashed

    def key_of(self, instance: InstanceId, job: JobId) -> JobKey | None:
        """
        A simulated report is not bytes that somebody could forge. This class knows whether it is
        genuine.
        """
        return JobKey(1, f"{instance}/{job}".encode())

    async def inspect(
        self,
        job: JobId,
        process: ProcessFacts,
        *,
        instance: InstanceId,
        secrets: tuple[Secret, ...],
    ) -> JobSeen:
        del instance, secrets
        await self._chaos.dawdle(1, 0.2)
        self._check_alive()
        found = self._table.find(process)
        if found is not None and found.is_alive:
            return JobSeen(state="running")
        if (
            found is None
            or found.job != job
            or found.returned is None
            or found.is_cleared
            or found.is_forged
        ):
            return JobSeen(state="gone")
        return JobSeen(state="ended", returned=found.returned, was_asked=found.was_asked)

    def is_alive(self, process: ProcessFacts) -> bool:
        found = self._table.find(process)
        return (
            found.is_alive
            if found is not None
            else any(
                each.facts == process and each.is_alive for each in self._process.home.processes
            )
        )

    def own_process(self) -> ProcessFacts:
        return self._process.facts

    async def of_instance(self, instance: InstanceId) -> Sequence[JobLeft]:
        del instance  # no simulated session is unsealed or deleted
        return ()

    def death_of(self, process: ProcessFacts) -> int | None:
        del process  # no descriptors here: the watcher checks again
        return None

    async def output(
        self, job: JobId, process: ProcessFacts, *, after: int, bytes_max: int
    ) -> bytes:
        del job, process, after, bytes_max
        return b""

    async def ask_to_end(self, process: ProcessFacts) -> None:
        self._check_alive()
        if (found := self._table.find(process)) is not None:
            found.ask()

    async def end(self, call: CallId, process: ProcessFacts) -> None:
        del call
        self._check_alive()
        if (found := self._table.find(process)) is not None:
            found.ends(None)

    async def clear(self, job: JobId) -> None:
        self._check_alive()
        if job in self._table.supervisors:
            self._table.supervisors[job].is_cleared = True

    async def present(self) -> Sequence[JobId]:
        return self._table.present()


class DigTool:
    """
    A tool whose calls are all jobs with a process of their own. It belongs to one process, and its
    launchers die with it.
    """

    def __init__(
        self, about: PythonTool[Any, Any], process: "Process", table: JobTable, chaos: Chaos
    ) -> None:
        self._about = about
        self._process = process
        self._table = table
        self._chaos = chaos

    @property
    def definition(self) -> ToolDefinition:
        return self._about.definition

    def validate(self, arguments: bytes) -> bytes:
        return self._about.validate(arguments)

    def is_background(self, arguments: bytes) -> bool:
        return self._about.is_background(arguments)

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        return self._about.bind(arguments, scene)

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared:
        return await self._about.prepare(arguments, binding, scene, idempotency_key=idempotency_key)

    async def prepare_job(
        self,
        arguments: bytes,
        binding: Binding,
        scene: Scene,
        *,
        job: JobId,
        key: JobKey,
        seconds: float,
    ) -> PreparedJob:
        del arguments, binding, key
        await self._chaos.dawdle(1, 0.2)
        if self._chaos.strikes(0.05):
            raise CannotBind("the job can't be started: dice")
        call = ToolCall(
            session=scene.session,
            instance=scene.instance,
            turn=scene.turn,
            call=scene.call,
            idempotency_key=scene.call,
            workspace=scene.workspace,
            requester=scene.requester,
            audience=scene.audience,
            boundary=scene.boundary,
        )
        return _Launcher(
            self._process,
            self._table,
            self._chaos,
            call,
            self._table.fork(job, self._process),
            seconds,
        )


class _Launcher:
    def __init__(
        self,
        process: "Process",
        table: JobTable,
        chaos: Chaos,
        call: ToolCall,
        supervisor: Supervisor,
        seconds: float,
    ) -> None:
        self._process, self._table, self._chaos, self._call, self._supervisor = (
            process,
            table,
            chaos,
            call,
            supervisor,
        )
        self.seconds_max = seconds

    @property
    def process(self) -> ProcessFacts:
        return self._supervisor.facts

    async def let_go(self) -> None:
        await self._chaos.dawdle(1, 0.2)
        if not self._process.is_alive:
            raise Crashed  # its pipe closed with the process that held it
        if not self._supervisor.is_alive:
            raise CannotBind("its supervisor was ended by somebody")
        self._table.start(self._supervisor, self._call, self.seconds_max)

    async def abandon(self) -> None:
        self._supervisor.ends(None)
