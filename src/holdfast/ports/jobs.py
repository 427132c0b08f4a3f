"""
Where jobs that are processes of their own live: looked at, read, ended, by any process of this
machine, in whatever order it likes.

Nothing here is the truth about a job: that is its journal. This says only what can be seen now. A
job that is over stays readable until it is cleared, so that whoever looks first can die before it
has told anyone.
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
    `running`: its supervisor lives. `ended`: its report and its output verify. `gone`: neither, so
    nobody can know; `why` says which it is.
    """

    state: Literal["running", "ended", "gone"]
    returned: ToolReturned | None = None  # of an ended one
    was_asked: bool = False  # it was asked to end, and ended by that: part of it may have happened
    why: str = "its process is gone, and left no report how it ended"  # of one that is gone


class JobLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the place itself knows it, without its journal."""

    job: JobId
    call: CallId
    process: ProcessFacts


class JobPlace(Protocol):
    def key_of(self, instance: InstanceId, job: JobId) -> JobKey | None:
        """
        For a new job's supervisor; None where there is no key to derive it from, and no job may
        start.
        """
        ...

    async def look(
        self,
        job: JobId,
        process: ProcessFacts,
        *,
        instance: InstanceId,
        secrets: tuple[Secret, ...],
    ) -> JobSeen:
        """
        Never mistakes another process for the job's: only one of this boot with this start time
        counts.

        Never believes a report or an output that the job's own supervisor did not vouch for.
        """
        ...

    def lives(self, process: ProcessFacts) -> bool:
        """
        Whether the very process still runs; of a job's supervisor, or of a program that hosts a
        job.
        """
        ...

    def own_process(self) -> ProcessFacts:
        """Of this program: what a job that is a task of it is found again by."""
        ...

    def death_of(self, process: ProcessFacts) -> int | None:
        """
        A descriptor that becomes readable when the process dies; None where there is no such thing,
        or it is dead already.
        """
        ...

    async def output(
        self, job: JobId, process: ProcessFacts, *, after: int, bytes_max: int
    ) -> bytes:
        """
        What a running job has said, from that byte on; empty when there is no more, or it was
        cleared. Not verified: only `look` is.
        """
        ...

    async def ask_to_end(self, process: ProcessFacts) -> None:
        """
        Ask its supervisor, which ends the whole group within seconds and leaves its report.
        Idempotent.
        """
        ...

    async def end(self, call: CallId, process: ProcessFacts) -> None:
        """End whatever is left of it, the supervisor included."""
        ...

    async def clear(self, job: JobId) -> None:
        """Its end is in the journal: nothing of it is needed here any more."""
        ...

    async def present(self) -> Sequence[JobId]:
        """Those that are not cleared."""
        ...

    async def of_life(self, instance: InstanceId) -> Sequence[JobLeft]:
        """
        Those that are not cleared and belong to this life of a session, whether or not its journal
        still tells of them. A job's id proves whose it is.
        """
        ...
