"""
The place of jobs that are processes of their own. Any process of this machine may inspect, read or
end them, in any order.

The journal is the truth about a job; this port reports only the current observation. An ended job
stays readable until it is cleared, so the first process that sees the end may die before it reports
it.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.ids import CallId, InstanceId, JobId
from holdfast.ports.tools import ProcessFacts, ToolReturned
from holdfast.secrecy import Secret


class JobKey(NamedTuple):
    """
    The key that a job's supervisor authenticates its report with, and the generation of the home
    key that it is derived from.
    """

    generation: int
    secret: bytes

    def __repr__(self) -> str:
        return f"JobKey({self.generation})"


class JobSeen(msgspec.Struct, frozen=True, kw_only=True):
    """
    One observation of a job. `running`: its supervisor is alive. `ended`: its report and its output
    verify. `gone`: neither, so the outcome is unknown; `why` gives the reason.
    """

    state: Literal["running", "ended", "gone"]
    returned: ToolReturned | None = None  # only if ended
    was_asked: bool = False  # it ended on request: part of it may have happened
    why: str = "its process is gone, and left no report how it ended"  # only if gone


class JobLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A job as this place knows it, without its journal."""

    job: JobId
    call: CallId
    process: ProcessFacts


class JobPlace(Protocol):
    def key_of(self, instance: InstanceId, job: JobId) -> JobKey | None:
        """
        The key for a new job's supervisor. None if there is no key to derive it from; then no job
        may start.
        """
        ...

    async def inspect(
        self,
        job: JobId,
        process: ProcessFacts,
        *,
        instance: InstanceId,
        secrets: tuple[Secret, ...],
    ) -> JobSeen:
        """
        Inspect a job. Only a process of this boot with this start time counts as the job's.

        Never believes a report or an output that the job's own supervisor did not authenticate.
        """
        ...

    def is_alive(self, process: ProcessFacts) -> bool:
        """
        Whether this exact process still runs: a job's supervisor, or a program that hosts a job.
        """
        ...

    def own_process(self) -> ProcessFacts:
        """The facts of this program, by which a job that is one of its tasks is found again."""
        ...

    def death_of(self, process: ProcessFacts) -> int | None:
        """
        A descriptor that becomes readable when the process dies. None if the system has no such
        descriptor, or the process is dead already.
        """
        ...

    async def output(
        self, job: JobId, process: ProcessFacts, *, after: int, bytes_max: int
    ) -> bytes:
        """
        The output of a running job from that byte on. Empty when there is no more, or the job was
        cleared. It is not verified: only `look` verifies.
        """
        ...

    async def ask_to_end(self, process: ProcessFacts) -> None:
        """
        Ask its supervisor, which ends the whole group within seconds and leaves its report.
        Idempotent.
        """
        ...

    async def end(self, call: CallId, process: ProcessFacts) -> None:
        """End every remaining process of the job, the supervisor included."""
        ...

    async def clear(self, job: JobId) -> None:
        """Remove the job's files. Its end is in the journal, so they are no longer needed."""
        ...

    async def present(self) -> Sequence[JobId]:
        """The jobs that are not cleared."""
        ...

    async def of_instance(self, instance: InstanceId) -> Sequence[JobLeft]:
        """
        The jobs of this instance that are not cleared, whether or not its journal still names them.
        A job's id proves its instance.
        """
        ...
