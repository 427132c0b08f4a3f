"""
Jobs of a home in memory: only tasks of the program, because there is no folder in which a process
could leave its report.
"""

from collections.abc import Sequence

from holdfast.ids import CallId, InstanceId, JobId
from holdfast.ports.jobs import JobKey, JobLeft, JobSeen
from holdfast.ports.tools import ProcessFacts
from holdfast.secrecy import Secret

_THIS_PROGRAM = ProcessFacts(boot_id="memory", group=0, start_time=0)


class InMemoryJobs:
    """
    Create a new one for the next process on the same bytes: the host of earlier tasks is then gone.
    """

    def __init__(self, process: ProcessFacts = _THIS_PROGRAM) -> None:
        self._process = process

    def key_of(self, instance: InstanceId, job: JobId) -> JobKey | None:
        """Return None: no separate process runs here, so no report needs a key."""
        del instance, job
        return None

    async def inspect(
        self,
        job: JobId,
        process: ProcessFacts,
        *,
        instance: InstanceId,
        secrets: tuple[Secret, ...],
    ) -> JobSeen:
        del job, process, instance, secrets
        return JobSeen(state="gone")

    def is_alive(self, process: ProcessFacts) -> bool:
        return process == self._process

    def own_process(self) -> ProcessFacts:
        return self._process

    def death_of(self, process: ProcessFacts) -> int | None:
        del process
        return None

    async def output(
        self, job: JobId, process: ProcessFacts, *, after: int, bytes_max: int
    ) -> bytes:
        del job, process, after, bytes_max
        return b""

    async def ask_to_end(self, process: ProcessFacts) -> None:
        """Do nothing: a job in memory has no process."""

    async def end(self, call: CallId, process: ProcessFacts) -> None:
        """Do nothing: a job in memory has no process."""

    async def clear(self, job: JobId) -> None:
        """Do nothing: no files are kept."""

    async def present(self) -> Sequence[JobId]:
        return ()

    async def of_instance(self, instance: InstanceId) -> Sequence[JobLeft]:
        del instance
        return ()
