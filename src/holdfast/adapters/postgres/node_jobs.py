"""
Jobs of a home with several nodes. Only the node that started a job may look at its process.

A process of another node counts as running as long as that node is heard of. After that its outcome
is unknown, and any node may record it as in doubt: a task with its node's lease, a process of its
own after ten minutes more, because the machine may come back.
"""

from collections.abc import Callable, Sequence

import msgspec

from holdfast.ids import CallId, InstanceId, JobId
from holdfast.ports.jobs import JobKey, JobLeft, JobPlace, JobSeen
from holdfast.ports.tools import ProcessFacts
from holdfast.secrecy import Secret

LOST_SECONDS = 600.0  # a machine restarts in less


class NodeJobs:
    """
    See `holdfast.ports.jobs.JobPlace`. `silent_seconds` says how long a node was not heard of; None
    for a node whose loss was accepted.
    """

    def __init__(
        self,
        here: JobPlace,
        node: str,
        silent_seconds: Callable[[str], float | None],
        *,
        lease_seconds: float,
    ) -> None:
        self._here, self._node, self._silent_seconds = here, node, silent_seconds
        self._lease_seconds = lease_seconds

    def _is_elsewhere(self, process: ProcessFacts) -> bool:
        return process.node not in {"", self._node}

    def _is_lost(self, process: ProcessFacts, seconds: float) -> bool:
        silent = self._silent_seconds(process.node)
        return silent is None or silent > seconds

    def key_of(self, instance: InstanceId, job: JobId) -> JobKey | None:
        return self._here.key_of(instance, job)

    async def inspect(
        self,
        job: JobId,
        process: ProcessFacts,
        *,
        instance: InstanceId,
        secrets: tuple[Secret, ...],
    ) -> JobSeen:
        if not self._is_elsewhere(process):
            return await self._here.inspect(job, process, instance=instance, secrets=secrets)
        if self._is_lost(process, self._lease_seconds + LOST_SECONDS):
            return JobSeen(state="gone", why=f"the node {process.node}, which ran it, is gone")
        return JobSeen(state="running")

    def is_alive(self, process: ProcessFacts) -> bool:
        if self._is_elsewhere(process):
            return not self._is_lost(process, self._lease_seconds)
        return self._here.is_alive(process)

    def own_process(self) -> ProcessFacts:
        return msgspec.structs.replace(self._here.own_process(), node=self._node)

    def death_of(self, process: ProcessFacts) -> int | None:
        return None if self._is_elsewhere(process) else self._here.death_of(process)

    async def output(
        self, job: JobId, process: ProcessFacts, *, after: int, bytes_max: int
    ) -> bytes:
        if self._is_elsewhere(process):
            return b""
        return await self._here.output(job, process, after=after, bytes_max=bytes_max)

    async def ask_to_end(self, process: ProcessFacts) -> None:
        """The node that runs it hears of the cancel, and asks."""
        if not self._is_elsewhere(process):
            await self._here.ask_to_end(process)

    async def end(self, call: CallId, process: ProcessFacts) -> None:
        if not self._is_elsewhere(process):
            await self._here.end(call, process)

    async def clear(self, job: JobId) -> None:
        await self._here.clear(job)

    async def present(self) -> Sequence[JobId]:
        return await self._here.present()

    async def of_instance(self, instance: InstanceId) -> Sequence[JobLeft]:
        return await self._here.of_instance(instance)
