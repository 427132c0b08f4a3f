"""
List, show and stop jobs, for the commands and the library. `jobs/follow.py` follows a job's output.

A job is visible to readers of the session, audience and boundary that it was submitted in, and to
the home's owner. Other readers get the same error as for a job that never existed. Each of these
verbs also records jobs that have ended meanwhile; nothing is driven here.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, Refused
from holdfast.ids import ApprovalId, JobId, SessionId, session_id
from holdfast.ports.journal_store import Record
from holdfast.runtime.cancellation import wait_for
from holdfast.runtime.jobs.call import cancel_and_tell
from holdfast.runtime.jobs.reports import JobReport, ended_job_report, running_job_report
from holdfast.runtime.jobs.watcher import ENDING_SECONDS, running_jobs
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.record_search import record_at
from holdfast.runtime.reports import survey
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.reports.types import arguments_of
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.verbs.resume import owing
from holdfast.session.authority.context import Audience
from holdfast.session.codec import decode
from holdfast.session.commands import CancelJob
from holdfast.session.events import JobEnded, JobSubmitted
from holdfast.session.features.jobs.decide import is_seen, known_job
from holdfast.session.state import EndedJob, Job


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """The reader. `may_all`: the home's owner, in person."""

    person: str
    audience: Audience
    boundary: str
    may_all: bool = False

    @classmethod
    def local(cls, person: str, *, may_all: bool = False) -> "Viewer":
        """A person at this machine, with the context that their messages would have."""
        return cls(
            person=person,
            audience=Audience.PERSONAL,
            boundary=f"personal:{person}",
            may_all=may_all,
        )

    def sees(self, job: Job | EndedJob) -> bool:
        return self.may_all or is_seen(job, self.audience, self.boundary)


def unknown(job: str) -> Refused:
    return Refused(f"no job {job}", code="unknown", hint="`holdfast jobs list` shows them")


async def list_jobs(
    runtime: Runtime,
    viewer: Viewer,
    *,
    session: str | None = None,
    everything: bool = False,
    patience: LockWaitBudget | None = None,
) -> tuple[JobReport, ...]:
    """
    List the running jobs; with `everything`, also those that ended recently. A busy session is left
    out, and `patience` names it.
    """
    patience = patience or LockWaitBudget(runtime.world.store)
    if session is not None:
        names = [session_id(session)]
    else:
        await owing(runtime, patience)  # records ended jobs, and brings the index up to date
        names = (
            [row.session async for row in runtime.world.index.rows()]
            if everything
            else list(await survey.with_jobs(runtime.world))
        )
    found: list[JobReport] = []
    for name in names:
        if session is None and await patience.busy(name) is not None:
            continue
        try:
            async with _looked_at(runtime, name) as ledger:
                found.extend(await _reports(ledger, viewer, everything=everything))
        except HoldfastError as exc:
            if session is not None:
                raise
            patience.caught(name, exc)
    return tuple(sorted(found, key=lambda each: each.submitted_at))


async def _reports(ledger: Ledger, viewer: Viewer, *, everything: bool) -> list[JobReport]:
    found = [running_job_report(ledger, job) for job in running_jobs(ledger) if viewer.sees(job)]
    over = (
        [each for _, each in ledger.state.ended_jobs.items() if viewer.sees(each)]
        if everything
        else []
    )
    ran = await _what_ran(ledger, over)
    return [
        *found,
        *(
            msgspec.structs.replace(ended_job_report(ledger, each), arguments=ran.get(each.job))
            for each in over
        ),
    ]


class _AllFound(Exception):
    """Leaves a fold early; not an error."""


async def _what_ran(ledger: Ledger, over: Sequence[EndedJob]) -> dict[JobId, Any]:
    """
    The arguments of ended jobs, which only the journal keeps: one pass, from the first of them to
    the last.
    """
    wanted = {each.submitted_seq for each in over}
    found: dict[JobId, Any] = {}

    def fold(record: Record) -> None:
        if record.seq in wanted:
            wanted.remove(record.seq)
            submitted = decode(record.type, record.version, record.body, seq=record.seq)
            if isinstance(submitted, JobSubmitted):
                found[submitted.job] = arguments_of(submitted.arguments)
        if not wanted:
            raise _AllFound

    if wanted:
        with suppress(_AllFound):
            await ledger.journal.load(fold, after=min(wanted) - 1)
    return found


@asynccontextmanager
async def _looked_at(runtime: Runtime, session: SessionId) -> AsyncGenerator[Ledger, None]:
    async with runtime.sessions.use(session) as ledger:
        if ledger.journal.sealed is None and ledger.only_read is None:
            await ledger.catch_up()
            await runtime.job_keeper.settle(ledger)
        yield ledger


@asynccontextmanager
async def session_of_job(
    runtime: Runtime, job: JobId, viewer: Viewer
) -> AsyncGenerator[Ledger, None]:
    """The session of the job, if the reader may see the job."""
    async with _looked_at(runtime, await _name_of_session(runtime, job)) as ledger:
        found = known_job(ledger.state, job)
        if found is None or not viewer.sees(found):
            raise unknown(job)
        yield ledger


async def _name_of_session(runtime: Runtime, job: JobId) -> SessionId:
    """
    Find the session by the index, or else from the journals. A session that cannot be read now is
    skipped, so that it does not block the others.
    """
    known = await runtime.world.index.session_of(ApprovalId(job))
    if known is not None and await runtime.world.store.current(known) is not None:
        return known
    for name in await runtime.world.store.sessions():
        with suppress(HoldfastError):
            async with _looked_at(runtime, name) as ledger:
                if known_job(ledger.state, job) is not None:
                    return name
    raise unknown(job)


async def report_of(ledger: Ledger, job: JobId) -> JobReport:
    found = known_job(ledger.state, job)
    if found is None:
        raise unknown(job)
    if isinstance(found, Job):
        return running_job_report(ledger, found)
    submitted, ended = (
        await _event(ledger, found.submitted_seq),
        await _event(ledger, found.ended_seq),
    )
    report = ended_job_report(ledger, found)
    return msgspec.structs.replace(
        report,
        arguments=arguments_of(submitted.arguments)
        if isinstance(submitted, JobSubmitted)
        else None,
        text=ended.text if isinstance(ended, JobEnded) else None,
        output=ended.output if isinstance(ended, JobEnded) else None,
    )


async def _event(ledger: Ledger, seq: int) -> object:
    record = await record_at(ledger.journal, seq)
    return (
        decode(record.type, record.version, record.body, seq=record.seq)
        if record is not None
        else None
    )


async def cancel_job(runtime: Runtime, job: str, viewer: Viewer) -> JobReport:
    """
    Record the request durably, then ask the job to end. Return when it has ended, or when that
    takes too long.
    """
    name = JobId(job)
    command = CancelJob(
        job=name,
        by=viewer.person,
        audience=viewer.audience,
        boundary=viewer.boundary,
        may_all=viewer.may_all,
    )
    async with session_of_job(runtime, name, viewer) as ledger:
        await cancel_and_tell(runtime.world, ledger, command)
        runtime.job_keeper.watch(ledger.session)
        watch = ledger.watch()
        try:
            async with asyncio.timeout(ENDING_SECONDS + 2):
                while isinstance(known_job(ledger.state, name), Job):
                    watch.clear()
                    await wait_for(watch)
                    await ledger.catch_up()
        except TimeoutError:
            pass  # it is another program's task, or does not end: the request stays recorded
        finally:
            ledger.unwatch(watch)
        return await report_of(ledger, name)
