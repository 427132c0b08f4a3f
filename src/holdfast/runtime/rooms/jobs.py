"""Background jobs: list, show, follow, cancel."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from holdfast.ids import SessionId
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.runtime.jobs.reports import JobReport
    from holdfast.runtime.jobs.verbs import Viewer


class JobVerbs:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def drive_reports(self) -> None:
        """Drive a job's report here when it ends: for a program that stays."""
        self._runtime.job_keeper.drives = True

    async def list(
        self,
        viewer: "Viewer",
        *,
        session: str | None = None,
        everything: bool = False,
        patience: LockWaitBudget | None = None,
    ) -> "tuple[JobReport, ...]":
        """List the running jobs; with `everything`, also those that ended recently."""
        from holdfast.runtime.jobs.verbs import list_jobs

        return await list_jobs(
            self._runtime, viewer, session=session, everything=everything, patience=patience
        )

    async def show(self, job: str, viewer: "Viewer") -> "JobReport":
        """
        Show one job with its arguments. A running one has its last line of output, an ended one its
        result.
        """
        from holdfast.runtime.jobs.follow import show_job

        return await show_job(self._runtime, job, viewer)

    def follow(self, job: str, viewer: "Viewer") -> "AsyncIterator[str | JobReport]":
        """Yield a job's output as it is written; last, its report."""
        from holdfast.runtime.jobs.follow import follow_job

        return follow_job(self._runtime, job, viewer)

    async def cancel(self, job: str, viewer: "Viewer") -> "JobReport":
        """Stop a job. The request is durable before anything is ended."""
        from holdfast.runtime.jobs.verbs import cancel_job

        return await cancel_job(self._runtime, job, viewer)

    async def running(self) -> Sequence[tuple[str, SessionId]]:
        """The running jobs with their sessions, as the index knows them."""
        rows = self._runtime.world.index.with_jobs()
        return [(job, row.session) async for row in rows for job in row.jobs]
