"""
The reports for people and programs, with the field names of `--json` and of the library: built from
state and journal, never from memory of earlier output.

Times are ISO 8601 in UTC here; inside they are Unix milliseconds.
"""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import ApprovalId, CallId, InstanceId, JobId, ReminderId, SessionId, TurnId
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.plan import Risk
from holdfast.session.events import DelegateOf
from holdfast.session.features.reminders.schedule import Cron, in_words
from holdfast.session.state import Approval, Reminder, Turn
from holdfast.session.view.messages import Usage

Outcome = Literal[
    "completed", "waiting", "failed", "cancelled", "superseded", "queued", "running", "sealed"
]
Result = Literal["started", "handed_on", "deferred", "failed"]
PromptState = Literal["requested", "answered", "closed"]


class ErrorReport(msgspec.Struct, frozen=True):
    code: str
    message: str
    hint: str = ""

    @classmethod
    def of(cls, error: HoldfastError) -> "ErrorReport":
        return cls(error.code, error.message, error.hint)


class ApprovalReport(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, complete: what is shown is what runs. `digest` is what an answer is bound to."""

    id: ApprovalId
    session: SessionId
    instance: InstanceId
    turn: TurnId
    call: CallId
    tool: str
    arguments: Any
    display: str
    digest: str
    options: tuple[str, ...]
    covers: dict[str, str]
    may_answer: tuple[str, ...]
    requester: str | None
    audience: str | None
    boundary: str | None
    channel: str | None
    requested_at: str
    expires_at: str
    state: PromptState
    closed_as: str | None
    answered_by: str | None
    option: str | None
    kind: str = "approval"
    reason: str = ""
    risks: tuple[Risk, ...] = ()  # empty: no known risk
    quoted_speakers: tuple[str, ...] = ()
    principal: str | None = None
    path: tuple[
        str, ...
        # For a delegate's prompt: the agents, from the one that a person asked to the one that
        # asks.
    ] = ()
    provider_id: str | None = None  # the id that the model or an external loop gave the call
    agent: str | None = None  # wrote the call
    edited_by: str | None = None  # the person who changed the call's values, if one did


class TurnReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where a turn stands, or how it ended."""

    session: SessionId
    turn: TurnId | None
    outcome: Outcome
    reply: str | None = None
    approvals: tuple[ApprovalReport, ...] = ()
    error: ErrorReport | None = None
    usage: Usage = Usage()
    seq: int = 0
    superseded: tuple[ApprovalId, ...] = ()  # for `send`: the prompts that this message closed


class AnswerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an answer; `turn` is the turn's current state."""

    result: Result
    reason: str | None
    turn: TurnReport


class SealedReport(msgspec.Struct, frozen=True):
    code: str
    detail: str
    at_seq: int | None


class BusyReport(msgspec.Struct, frozen=True):
    """Who writes to a session and keeps its write lock, and for how long we saw them have it."""

    holder: str
    held_seconds: float


class DeliveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    Something owed to a channel that has not arrived for sure: queued, sent, failed, in_doubt or
    no_channel.
    """

    delivery: str
    state: str
    turn: TurnId | None = None
    channel: str | None = None
    kind: str | None = None


class RecallReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which memory a turn was given, and why it may have been less than there is."""

    turn: TurnId
    items: tuple[str, ...]
    degraded: str | None


class ReminderReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    One that stands. `state` is waiting, or no_authority for one that can never fire, with the
    `reason`.
    """

    id: ReminderId
    session: SessionId
    instance: InstanceId
    text: str
    when: str  # as a phrase
    schedule: Any
    time_zone: str | None
    next_at: str
    by: str
    audience: str | None
    boundary: str | None
    may_prompt: bool
    agent: str
    model: str
    set_at: str
    set_in: TurnId | None
    fired: int
    fired_at: str | None
    state: str
    reason: str | None = None
    asserted_by: str | None = None


class ParentReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whose call a delegate's session works for."""

    session: SessionId
    turn: TurnId
    call: CallId
    path: tuple[str, ...]  # agents, from the one that a person asked to this one


class DelegateReport(msgspec.Struct, frozen=True, kw_only=True):
    """One delegate that a call of this session started."""

    session: SessionId
    agent: str
    turn: TurnId
    call: CallId
    outcome: str | None  # its turn's outcome, or lost; None while it works or waits for a person


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a session's jobs that run. `jobs show` tells the rest."""

    id: JobId
    turn: TurnId
    tool: str
    submitted_at: str
    cancelled_by: str | None
    audience: str | None  # None if its authority was lost
    boundary: str | None


class RetryReport(msgspec.Struct, frozen=True, kw_only=True):
    """A model that does not answer: how it failed last, since when, and when it is tried again."""

    turn: TurnId
    kind: str
    tries: int
    since: str
    next_at: str


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId
    instance: InstanceId
    phase: str  # idle, parked, queued, sealed, retrying, and the phases of the running turn
    seq: int
    sealed: SealedReport | None
    journal: tuple[str, ...]
    quarantine: tuple[str, ...]
    turns: int
    owes: tuple[str, ...]
    usage: Usage
    queued: int = 0
    parked: tuple[TurnId, ...] = ()
    model: str | None = None
    agent: str | None = None
    title: str = ""  # from the first message, or given by a person
    waiting: int = 0  # prompts that can be answered now
    # Prompts whose time is over; the next process that opens the session records that.
    expired: int = 0
    deliveries: tuple[DeliveryReport, ...] = ()  # not confirmed: under way, given up, or in doubt
    memory: tuple[RecallReport, ...] = ()  # for the last turns that were given any
    reminders: tuple[ReminderReport, ...] = ()  # the active ones, the next one first
    parent: ParentReport | None = None  # only for a delegate's session
    delegates: tuple[DelegateReport, ...] = ()  # the last ended ones, then the working ones
    jobs: tuple[RunningJob, ...] = ()  # the running ones
    retry: RetryReport | None = None  # while the running turn waits for its model
    store: str | None = None  # postgres:SCHEMA; None for files, which `journal` names


class _PromptTime(msgspec.Struct):
    requested_at: str


def asked_at(prompt: msgspec.Raw) -> int:
    """The time of an ApprovalReport as JSON, without reading the rest. Unix milliseconds."""
    found = msgspec.json.decode(prompt, type=_PromptTime)
    return round(datetime.fromisoformat(found.requested_at).timestamp() * 1000)


def iso(at: int) -> str:
    """
    >>> iso(0)
    '1970-01-01T00:00:00.000Z'
    """
    return (
        datetime.fromtimestamp(at / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def arguments_of(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def approval_report(
    session: SessionId,
    instance: InstanceId,
    turn: Turn | None,
    approval: Approval,
    *,
    context: TurnContext | None = None,
    parent: DelegateOf | None = None,
    agent: str | None = None,
    edited_by: str | None = None,
    now: int | None = None,
) -> ApprovalReport:
    """
    With `now`, an expired prompt is reported as closed before a process has recorded it: no answer
    to it counts any more.
    """
    asked, answer = approval.asked, approval.answer
    closed_as = approval.closed_as
    if closed_as is None and answer is None and now is not None and now >= asked.expires_at:
        closed_as = "expired"
    if turn is not None and isinstance(turn.context, TurnContext):
        context = turn.context
    parent = turn.delegate_of if turn is not None else parent
    call = next((e for e in turn.calls if e.call == asked.call), None) if turn else None
    path = parent.path if parent is not None else ()
    if turn is not None and call is not None and call.path:
        path = (*(path or (turn.agent,)), *call.path)
    state: PromptState = (
        "closed" if closed_as is not None else "answered" if answer is not None else "requested"
    )
    return ApprovalReport(
        id=asked.approval,
        session=session,
        instance=instance,
        turn=asked.turn,
        call=asked.call,
        tool=asked.tool,
        arguments=arguments_of(asked.arguments),
        display=asked.display,
        digest=asked.digest,
        options=tuple(each.option for each in asked.options),
        covers={each.option: each.covers for each in asked.options},
        may_answer=asked.may_answer,
        requester=context.requester if context else None,
        audience=context.audience.value if context else None,
        boundary=context.boundary if context else None,
        channel=context.channel if context else None,
        requested_at=iso(approval.requested_at),
        expires_at=iso(asked.expires_at),
        state=state,
        closed_as=closed_as,
        answered_by=answer.by if answer else None,
        option=answer.option if answer else None,
        kind=asked.kind,
        reason=asked.reason,
        risks=asked.risks,
        quoted_speakers=context.quoted_speakers if context else (),
        principal=context.principal.value if context else None,
        path=path,
        provider_id=call.provider_id if call is not None else None,
        agent=turn.agent if turn is not None else agent,
        edited_by=call.edited_by if call is not None else edited_by,
    )


def reminder_report(session: SessionId, instance: InstanceId, reminder: Reminder) -> ReminderReport:
    context = reminder.context if isinstance(reminder.context, TurnContext) else None
    lost = None if isinstance(reminder.context, TurnContext) else reminder.context.reason
    return ReminderReport(
        id=reminder.reminder,
        session=session,
        instance=instance,
        text=reminder.text,
        when=in_words(reminder.schedule),
        schedule=msgspec.to_builtins(reminder.schedule),
        time_zone=reminder.schedule.time_zone if isinstance(reminder.schedule, Cron) else None,
        next_at=iso(reminder.next_at),
        by=reminder.by,
        audience=context.audience.value if context else None,
        boundary=context.boundary if context else None,
        may_prompt=reminder.may_prompt,
        agent=reminder.agent,
        model=reminder.model,
        set_at=iso(reminder.set_at),
        set_in=reminder.turn,
        fired=reminder.fired,
        fired_at=iso(reminder.fired_at) if reminder.fired_at is not None else None,
        state="waiting" if lost is None else "no_authority",
        reason=lost,
        asserted_by=reminder.asserted_by,
    )
