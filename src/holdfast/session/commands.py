"""
Requests for a change, in the imperative. `decide` turns a command into events, or refuses it.

A command carries every input of the decision that is not in the state: current settings, an
adapter's findings, active grants. Times come with `decide`.
"""

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Generic, Literal, TypeVar

import msgspec

from holdfast.ids import ApprovalId, CallId, InstanceId, JobId, ReminderId, SessionId, TurnId
from holdfast.session.authority.context import Audience, MessageSource, TurnContext, Workspace
from holdfast.session.authority.policy import WAYS, Looked, Policy, Way
from holdfast.session.events import CallOutcome, InputKind, JobHost, JobOutcome, Loop
from holdfast.session.features.memory.items import MemoryItem
from holdfast.session.features.reminders.schedule import Schedule
from holdfast.session.home.events import GrantProposed
from holdfast.session.results import (
    Accepted,
    Answered,
    Duplicate,
    OnlyAnAnswerWord,
    ReminderStanding,
)
from holdfast.session.view.messages import ModelAnswer, ProposedCall, Usage

Result = TypeVar("Result", covariant=True)  # noqa: PLC0105  # the result of a command


class Command(msgspec.Struct, Generic[Result], frozen=True, kw_only=True):
    """
    A request for a change. Deciding it gives events, and a result of this type for its sender.
    """


class AcceptInput(Command[Accepted | Duplicate | OnlyAnAnswerWord], frozen=True):
    """
    Accept a message. `context` is set for a child's message and is already narrowed. The context of
    any other message is made from its source.
    """

    text: str
    source: MessageSource | None
    agent: str
    model: str
    policy: Policy
    workspace: Workspace | None = None
    dedup: str | None = None
    kind: InputKind = "message"
    loop: Loop = "ours"
    context: TurnContext | None = None
    asked_below: Mapping[
        TurnId, tuple[ApprovalId, ...]
    ] = {}  # open prompts of parked turns' delegates, which stand in other sessions


class StartTurn(Command[TurnId | None], frozen=True):
    epoch: int


class StartModelCall(Command[int | None], frozen=True):
    turn: TurnId
    epoch: int
    policy: Policy


class RecordRecall(Command[None], frozen=True):
    """
    Record the items that memory gave to a turn that has not called a model yet. The turn's own
    context decides again which of them it may see.
    """

    turn: TurnId
    items: tuple[MemoryItem, ...]
    degraded: str | None = None


class TakeAnswer(Command[Literal["dropped"] | None], frozen=True):
    turn: TurnId
    number: int
    answer: ModelAnswer
    policy: Policy


class TakeFailure(Command[Literal["dropped"] | None], frozen=True):
    """Record a failed model call. `final`: the runtime will not try again."""

    turn: TurnId
    number: int
    kind: str
    message: str
    final: bool
    line: int | None = None


class ProposeCalls(Command[tuple[CallId, ...] | None], frozen=True):
    """Propose calls that the model of an external loop made."""

    turn: TurnId
    calls: tuple[ProposedCall, ...]
    text: str
    policy: Policy


class DecideCalls(Command[None], frozen=True):
    """Decide for each bound call whether it runs, asks or is denied."""

    turn: TurnId
    looked: tuple[Looked, ...]
    policy: Policy
    grants: tuple[GrantProposed, ...] = ()


class NewDelegate(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a call to a delegate would start. `tools` are the calling agent's tools."""

    agent: str
    session: SessionId
    instance: InstanceId
    tools: tuple[str, ...]


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """
    A job that is ready to run in the background: its host, the facts to find it again, and its
    bounds.
    """

    host: JobHost
    process: dict[str, Any]
    seconds_max: float
    bytes_max: int


class StartTool(Command[int | None], frozen=True):
    """
    Start a prepared call: judge it once more under the current policy, then make the start durable.
    With `job` it goes on in the background.
    """

    turn: TurnId
    looked: Looked
    policy: Policy
    grants: tuple[GrantProposed, ...]
    epoch: int
    process: dict[str, Any] | None = None
    delegate: NewDelegate | None = None
    job: JobPlan | None = None


class ReportDelegate(Command[Literal["reported", "dropped"] | None], frozen=True):
    """
    Report the end of a delegate's turn to the call that waits for it. If the call no longer waits,
    only the fact that the delegate ended is kept.
    """

    call: CallId
    session: SessionId
    instance: InstanceId
    ended: str
    outcome: CallOutcome
    text: str
    code: str | None = None
    output: str | None = None
    prompts: int = 0
    doubts: tuple[str, ...] = ()
    usage: Usage = Usage()


class MarkReported(Command[None], frozen=True):
    """Record that the delegate's parent knows the result, or that the parent is gone."""

    became: Literal["reported", "dropped"]


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


class FinishCall(Command[Literal["dropped"] | None], frozen=True):
    turn: TurnId
    call: CallId
    run: int
    outcome: CallOutcome
    text: str
    code: str | None = None
    output: str | None = None


class ParkTurn(Command[None], frozen=True):
    """
    Park a turn. `born`: calls whose delegates' sessions are known to exist. A turn is not parked on
    a delegate that may not exist yet, because nothing would create it.
    """

    turn: TurnId
    born: tuple[CallId, ...] = ()


class ResumeTurn(Command[None], frozen=True):
    turn: TurnId
    epoch: int


class EndTurn(Command[None], frozen=True):
    """
    Close a turn with nothing left to do, for the reason that its state gives. In an external loop,
    close it with this reply.
    """

    turn: TurnId
    policy: Policy
    reply: str | None = None


class FailTurn(Command[None], frozen=True):
    """
    End a turn for a reason from outside the state. Calls that have not started are cancelled;
    started ones are in doubt.
    """

    turn: TurnId
    code: str
    message: str
    hint: str | None = None


class AnswerApproval(Command[Answered], frozen=True):
    approval: ApprovalId
    option: str
    by: str
    answer_id: str
    digest: str | None = None
    reason: str | None = None
    arguments: str | None = None
    grant: str | None = None
    asserted_by: str | None = None
    way: Way | None = None  # how the answer arrived
    consent: tuple[Way, ...] = WAYS  # the ways that count under the current settings


class Cancel(Command[tuple[TurnId, ...] | None], frozen=True):
    """
    Stop running and waiting turns. `turn` None: every open turn. `may_all`: the operator or an
    admin, who may cancel other people's turns.
    """

    by: str
    turn: TurnId | None = None
    may_all: bool = False


class Expire(Command[None], frozen=True):
    """Close every prompt whose time is over."""


class Recover(Command[tuple[tuple[TurnId, str], ...]], frozen=True):
    """
    A driver with this epoch claimed the session: settle all work that earlier drivers left in
    flight.
    """

    epoch: int


class GiveModel(Command[None], frozen=True):
    """Continue with another model, for turns whose own model is no longer available."""

    model: str
    by: str


class RecordCompaction(Command[str], frozen=True):
    """
    Record a summary. It is taken only if the summarised span is still there (`compactions`
    unchanged) and the number of tokens really falls.
    """

    summary: str
    turns: int
    compactions: int
    tokens_before: int
    tokens_after: int
    trigger: str
    usage: Usage = Usage()


class RecordTurnCompaction(Command[str], frozen=True):
    """
    Record a summary of one turn's own view. It is taken only if the turn is between two steps and
    the summarised span is still there.
    """

    turn: TurnId
    summary: str
    part: Literal["base", "own"]
    messages: int
    # The number of the turn's own messages when the compaction was planned. If it only grew, the
    # summarised messages are still there.
    own_length: int
    tokens_before: int
    tokens_after: int
    trigger: str
    usage: Usage = Usage()


class QueueDelivery(Command[str | None], frozen=True):
    turn: TurnId
    channel: str
    part: str
    kind: str
    text: str


class MarkDelivery(Command[None], frozen=True):
    delivery: str
    became: str  # sent, confirmed, failed, in_doubt
    detail: str = ""


class SetReminder(Command[ReminderStanding], frozen=True):
    """
    Set a reminder, which starts a turn later. A tool sets it from the named turn and call; the
    journalled context is then its only authority. A command sets it from the caller's source.
    """

    reminder: ReminderId
    text: str
    schedule: Schedule
    zone: tzinfo | None = None  # the time zone that the schedule names
    may_prompt: bool = False
    turn: TurnId | None = None
    call: CallId | None = None
    source: MessageSource | None = None
    workspace: Workspace | None = None
    agent: str = ""
    model: str = ""


class FireReminders(Command[tuple[TurnId, ...] | None], frozen=True):
    """
    Turn due reminders into inputs. `zones` are the time zones that the set reminders name. A
    reminder whose zone is missing waits.
    """

    zones: Mapping[str, tzinfo] = {}


class CancelReminder(Command[str], frozen=True):
    """
    Cancel a reminder. `circle` is the (audience, boundary) of the turn that asks; a reminder
    outside of it is not found. `may_all`: the operator, who may cancel other people's reminders.
    """

    reminder: ReminderId
    by: str
    may_all: bool = False
    circle: tuple[str, str] | None = None


class CloseLife(Command[None], frozen=True):
    """The last command on carried-over history: none of its work is owed any more."""

    by: str
    reason: str
    attached: tuple[str, ...] = ()


SessionCommand = (
    AcceptInput
    | StartTurn
    | RecordRecall
    | StartModelCall
    | TakeAnswer
    | TakeFailure
    | ProposeCalls
    | DecideCalls
    | StartTool
    | EndJob
    | ReportEndedJob
    | CancelJob
    | FinishCall
    | ReportDelegate
    | MarkReported
    | ParkTurn
    | ResumeTurn
    | EndTurn
    | FailTurn
    | AnswerApproval
    | Cancel
    | Expire
    | Recover
    | GiveModel
    | RecordCompaction
    | RecordTurnCompaction
    | QueueDelivery
    | MarkDelivery
    | SetReminder
    | FireReminders
    | CancelReminder
    | CloseLife
)
