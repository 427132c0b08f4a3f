"""Background jobs: record an end, report it, cancel one."""

from typing import Literal

from holdfast.ids import JobId
from holdfast.session.authority.context import Audience
from holdfast.session.commands.base import Command
from holdfast.session.events import JobOutcome


class EndJob(Command[Literal["ended", "dropped"]], frozen=True):
    """
    Record that a job has ended. Any process may send it, any number of times: the first one counts,
    and the job's report is committed with it.
    """

    job: JobId
    outcome: JobOutcome
    text: str
    code: str | None = None
    output: str | None = None


class ReportEndedJob(Command[None], frozen=True):
    """
    Queue the message that reports a job's end, if it could not be committed with the end itself.
    """

    job: JobId


class CancelJob(Command[Literal["over", "cancelled"]], frozen=True):
    """
    Stop a job. A caller sees it only from its own audience and boundary. `may_all`: the operator or
    an admin.
    """

    job: JobId
    by: str
    audience: Audience | None = None
    boundary: str | None = None
    may_all: bool = False
