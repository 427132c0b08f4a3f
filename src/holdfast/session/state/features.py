"""Delegates, jobs, reminders and deliveries: the part of the state that each feature keeps."""

from typing import Any

import msgspec

from holdfast.ids import (
    ApprovalId,
    CallId,
    InstanceId,
    JobId,
    ReminderId,
    SessionId,
    TurnId,
)
from holdfast.session.authority.context import Audience, LostContext, TurnContext
from holdfast.session.events import (
    JobEnded,
    JobHost,
    JobOutcome,
)
from holdfast.session.features.reminders.schedule import Schedule


class Delegate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The session that a call was handed to."""

    turn: TurnId
    call: CallId
    agent: str
    session: SessionId
    instance: InstanceId
    tools: tuple[str, ...]
    exists: bool = False  # known to exist: its turn was parked after the session was created
    ended: str | None = None
    prompts: int = 0


class Delivery(msgspec.Struct, frozen=True, gc=False):
    delivery: str
    turn: TurnId
    channel: str
    kind: str
    text: str
    sent: bool = False
    to: str = ""  # of a chat: the address there
    about: ApprovalId | None = None
    replaces: str = ""
    queued_at: int = 0
    tries: int = 0  # that certainly did not arrive
    not_before: int = 0


class ShownPrompt(msgspec.Struct, frozen=True, gc=False):
    """A message in a chat that shows an open prompt."""

    approval: ApprovalId
    turn: TurnId
    channel: str
    to: str
    message: str  # its name on the platform
    is_whole: bool


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Background work that is running, or that has ended and is not reported yet."""

    job: JobId
    turn: TurnId
    call: CallId
    tool: str
    arguments: str
    contract: str
    # from its own record, never from the turn that happens to run
    context: TurnContext | LostContext
    agent: str
    model: str
    host: JobHost
    process: dict[str, Any]
    seconds_max: float
    bytes_max: int
    submitted_at: int
    submitted_seq: int
    cancelled_by: str | None = None
    ended: JobEnded | None = None  # set: its report is owed


class EndedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts kept about a job that is over; the journal has the rest."""

    job: JobId
    turn: TurnId
    tool: str
    outcome: JobOutcome
    code: str | None
    # None: its authority could not be restored, and its end was not reported
    audience: Audience | None
    boundary: str | None
    submitted_at: int
    ended_at: int
    submitted_seq: int
    ended_seq: int


class Reminder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reminder that is set. One with a lost context never fires, and gives the reason."""

    reminder: ReminderId
    text: str
    schedule: Schedule
    context: TurnContext | LostContext
    by: str
    agent: str
    model: str
    set_at: int
    next_at: int
    may_prompt: bool = False
    fired: int = 0
    fired_at: int | None = None
    turn: TurnId | None = None
    asserted_by: str | None = None


class ReminderOver(msgspec.Struct, frozen=True, gc=False):
    """How a reminder ended, and the audience and boundary it belonged to."""

    how: str
    audience: str
    boundary: str
