"""Reports about jobs for people and programs, with the field names of `--json`."""

from typing import Any

import msgspec

from holdfast.ids import CallId, JobId, SessionId, TurnId
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.types import arguments_of, iso
from holdfast.session.authority.context import TurnContext
from holdfast.session.state import EndedJob, Job


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    `state` is running or ended. `refused` says that the job's authority was lost, so it was
    reported to nobody.
    """

    id: JobId
    session: SessionId
    turn: TurnId  # the turn that submitted it
    tool: str
    state: str
    outcome: str | None  # ok, error, timed_out, in_doubt
    code: str | None
    submitted_at: str
    ended_at: str | None
    audience: str | None
    boundary: str | None
    refused: bool = False
    requester: str | None = None
    call: CallId | None = None
    arguments: Any = None
    cancelled_by: str | None = None
    seconds_max: float | None = None
    host: str | None = None
    text: str | None = None  # its result; only where one job is shown
    output: str | None = None
    last_output: str | None = None  # the last line of a running job; only where one job is shown


def running_job_report(ledger: Ledger, job: Job) -> JobReport:
    context = job.context if isinstance(job.context, TurnContext) else None
    return JobReport(
        id=job.job,
        session=ledger.session,
        turn=job.turn,
        tool=job.tool,
        state="running",
        outcome=None,
        code=None,
        submitted_at=iso(job.submitted_at),
        ended_at=None,
        audience=context.audience.value if context is not None else None,
        boundary=context.boundary if context is not None else None,
        refused=context is None,
        requester=context.requester if context is not None else None,
        call=job.call,
        arguments=arguments_of(job.arguments),
        cancelled_by=job.cancelled_by,
        seconds_max=job.seconds_max,
        host=job.host,
    )


def ended_job_report(ledger: Ledger, over: EndedJob) -> JobReport:
    return JobReport(
        id=over.job,
        session=ledger.session,
        turn=over.turn,
        tool=over.tool,
        state="ended",
        outcome=over.outcome,
        code=over.code,
        submitted_at=iso(over.submitted_at),
        ended_at=iso(over.ended_at),
        audience=over.audience.value if over.audience is not None else None,
        boundary=over.boundary,
        refused=over.audience is None,
    )
