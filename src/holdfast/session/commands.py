"""
Wishes, in the imperative. `decide` turns one into events, or refuses it.

A command carries all that deciding needs and that is not in the state: settings of now, what an
adapter saw, active grants. Times come with `decide`.
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
    Take a message in. `context` is a child's, already narrowed; a message's own is made from its
    source.
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
    ] = {}  # prompts of parked turns' delegates, which stand in other sessions


class StartTurn(Command[TurnId | None], frozen=True):
    epoch: int


class StartModelCall(Command[int | None], frozen=True):
    turn: TurnId
    epoch: int
    policy: Policy


class RecordRecall(Command[None], frozen=True):
    """
    What memory gave for a turn that has asked no model yet. Who may see it is judged again, by the
    turn's own context.
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
    """`final` is the runtime's word that it won't be tried again."""

    turn: TurnId
    number: int
    kind: str
    message: str
    final: bool
    line: int | None = None


class ProposeCalls(Command[tuple[CallId, ...] | None], frozen=True):
    """A foreign loop's model wants these."""

    turn: TurnId
    calls: tuple[ProposedCall, ...]
    text: str
    policy: Policy


class DecideCalls(Command[None], frozen=True):
    """What a look at the proposed calls found; say for each whether it runs, asks or is denied."""

    turn: TurnId
    looked: tuple[Looked, ...]
    policy: Policy
    grants: tuple[GrantProposed, ...] = ()


class NewDelegate(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a call to a delegate would start. `tools` is what the calling agent has."""

    agent: str
    session: SessionId
    instance: InstanceId
    tools: tuple[str, ...]


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """
    What is ready to run in the background, and waits: where, how it is found again, and within
    which bounds.
    """

    host: JobHost
    process: dict[str, Any]
    seconds_max: float
    bytes_max: int


class StartTool(Command[int | None], frozen=True):
    """
    Everything is prepared: look at it once more under the policy of now, then make the start
    durable. With `job` it goes on in the background.
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
    How a delegate's turn ended, told to the call that waits for it. Of a call that waits no longer,
    only that it ended is kept.
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
    """The delegate's parent knows, or is gone."""

    became: Literal["reported", "dropped"]


class EndJob(Command[Literal["ended", "dropped"]], frozen=True):
    """
    A job was found to be over. Said by anyone, as often as they like: the first one counts, and its
    report goes with it.
    """

    job: JobId
    outcome: JobOutcome
    text: str
    code: str | None = None
    output: str | None = None


class ReportEndedJob(Command[None], frozen=True):
    """The message that says how a job ended, where it could not go with the end itself."""

    job: JobId


class CancelJob(Command[Literal["over", "cancelled"]], frozen=True):
    """Stop a job. It is there only for its own circle; `may_all` is the operator or an admin."""

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
    `born`: calls whose delegates are known to exist. A turn is not parked on one that may not:
    nobody would bring it into the world.
    """

    turn: TurnId
    born: tuple[CallId, ...] = ()


class ResumeTurn(Command[None], frozen=True):
    turn: TurnId
    epoch: int


class EndTurn(Command[None], frozen=True):
    """
    Close a turn with nothing left to do, for the reason that its state gives. Of a foreign loop:
    with this reply.
    """

    turn: TurnId
    policy: Policy
    reply: str | None = None


class FailTurn(Command[None], frozen=True):
    """
    End a turn for a reason from outside the state. Calls not started are cancelled, started ones
    are in doubt.
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
    way: Way | None = None  # how it came
    consent: tuple[Way, ...] = WAYS  # the ways that count: settings of now


class Cancel(Command[tuple[TurnId, ...] | None], frozen=True):
    """
    Stop what runs and waits. `turn` None: every open turn. `may_all`: the operator or an admin, who
    may cancel others' turns.
    """

    by: str
    turn: TurnId | None = None
    may_all: bool = False


class Expire(Command[None], frozen=True):
    """Close every prompt whose time is over."""


class Recover(Command[tuple[tuple[TurnId, str], ...]], frozen=True):
    """A driver with this epoch found the session: settle what earlier ones left in flight."""

    epoch: int


class GiveModel(Command[None], frozen=True):
    """Go on with another model: for turns whose own can't be had any more."""

    model: str
    by: str


class RecordCompaction(Command[str], frozen=True):
    """
    A summary is ready. Taken only if what it summarised is still there (`compactions` unchanged)
    and tokens really fall.
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
    The same for one turn's own view. Taken only if the turn is between two steps and what it
    summarised is still there.
    """

    turn: TurnId
    summary: str
    part: Literal["base", "own"]
    messages: int
    # of the turn's own messages when it was planned: what was summarised is still there if it only
    # grew
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
    A turn later. By a tool: in the turn and by the call named, whose journalled context is all
    there is. By a command: from the source of who gives it.
    """

    reminder: ReminderId
    text: str
    schedule: Schedule
    zone: tzinfo | None = None  # the one that the schedule names
    may_prompt: bool = False
    turn: TurnId | None = None
    call: CallId | None = None
    source: MessageSource | None = None
    workspace: Workspace | None = None
    agent: str = ""
    model: str = ""


class FireReminders(Command[tuple[TurnId, ...] | None], frozen=True):
    """
    Turn what is due into inputs. `zones` are those that the standing reminders name; one that lacks
    its zone waits.
    """

    zones: Mapping[str, tzinfo] = {}


class CancelReminder(Command[str], frozen=True):
    """
    `circle` (audience, boundary): of the turn that asks; whatever is outside of it is not there.
    `may_all`: the operator, who may cancel others'.
    """

    reminder: ReminderId
    by: str
    may_all: bool = False
    circle: tuple[str, str] | None = None


class CloseLife(Command[None], frozen=True):
    """The last command on carried-over history: nothing of it is owed any more."""

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
