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
from holdfast.runtime.ledger.ledger import Ledger, record_at
from holdfast.runtime.reports import listing
from holdfast.runtime.reports.index_writer import note
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.reports.types import arguments_of
from holdfast.runtime.service import Service
from holdfast.session.authority.context import Audience
from holdfast.session.codec import decode
from holdfast.session.commands import CancelJob
from holdfast.session.events import JobEnded, JobSubmitted
from holdfast.session.features.jobs.decide import is_seen, known_job
from holdfast.session.state import EndedJob, Job


class Circle(msgspec.Struct, frozen=True, kw_only=True):
    """The reader. `may_all`: the home's owner, in person."""

    person: str
    audience: Audience
    boundary: str
    may_all: bool = False

    @classmethod
    def local(cls, person: str, *, may_all: bool = False) -> "Circle":
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
    return Refused(f"there is no job {job}", code="unknown", hint="`holdfast jobs list` shows them")


async def list_jobs(
    service: Service,
    circle: Circle,
    *,
    session: str | None = None,
    everything: bool = False,
    patience: LockWaitBudget | None = None,
) -> tuple[JobReport, ...]:
    """
    List the running jobs; with `everything`, also those that ended recently. A busy session is left
    out, and `patience` names it.
    """
    patience = patience or service.patience()
    if session is not None:
        names = [session_id(session)]
    else:
        await service.owing(patience)  # records ended jobs, and brings the index up to date
        names = (
            [row.session for row in service.world.index.rows()]
            if everything
            else list(listing.with_jobs(service.world))
        )
    found: list[JobReport] = []
    for name in names:
        if session is None and await patience.busy(name) is not None:
            continue
        try:
            async with _looked_at(service, name) as ledger:
                found.extend(await _reports(ledger, circle, everything=everything))
        except HoldfastError as exc:
            if session is not None:
                raise
            patience.caught(name, exc)
    return tuple(sorted(found, key=lambda each: each.submitted_at))


async def _reports(ledger: Ledger, circle: Circle, *, everything: bool) -> list[JobReport]:
    found = [running_job_report(ledger, job) for job in running_jobs(ledger) if circle.sees(job)]
    over = (
        [each for _, each in ledger.state.ended_jobs.items() if circle.sees(each)]
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
async def _looked_at(service: Service, session: SessionId) -> AsyncGenerator[Ledger, None]:
    async with service.shelf.use(session) as ledger:
        if ledger.journal.sealed is None and ledger.only_read is None:
            await ledger.refresh()
            await service.jobs.settle(ledger)
        yield ledger


async def show_job(service: Service, job: str, circle: Circle) -> JobReport:
    """Show one job with its arguments and, once it has ended, its result."""
    async with session_of_job(service, JobId(job), circle) as ledger:
        return await report_of(ledger, JobId(job))


@asynccontextmanager
async def session_of_job(
    service: Service, job: JobId, circle: Circle
) -> AsyncGenerator[Ledger, None]:
    """The session of the job, if the reader may see the job."""
    async with _looked_at(service, await _name_of_session(service, job)) as ledger:
        found = known_job(ledger.state, job)
        if found is None or not circle.sees(found):
            raise unknown(job)
        yield ledger


async def _name_of_session(service: Service, job: JobId) -> SessionId:
    """
    Find the session by the index, or else from the journals. A session that cannot be read now is
    skipped, so that it does not block the others.
    """
    known = service.world.index.session_of(ApprovalId(job))
    if known is not None and await service.world.store.current(known) is not None:
        return known
    for name in await service.world.store.sessions():
        with suppress(HoldfastError):
            async with _looked_at(service, name) as ledger:
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


async def cancel_job(service: Service, job: str, circle: Circle) -> JobReport:
    """
    Record the request durably, then ask the job to end. Return when it has ended, or when that
    takes too long.
    """
    name = JobId(job)
    command = CancelJob(
        job=name,
        by=circle.person,
        audience=circle.audience,
        boundary=circle.boundary,
        may_all=circle.may_all,
    )
    async with session_of_job(service, name, circle) as ledger:
        await cancel_and_tell(service.world, ledger, command)
        service.jobs.watch(ledger.session)
        watch = ledger.watch()
        try:
            async with asyncio.timeout(ENDING_SECONDS + 2):
                while isinstance(known_job(ledger.state, name), Job):
                    watch.clear()
                    await wait_for(watch)
                    await ledger.refresh()
        except TimeoutError:
            pass  # it is another program's task, or does not end: the request stays recorded
        finally:
            ledger.unwatch(watch)
        note(service.world, ledger)
        return await report_of(ledger, name)
