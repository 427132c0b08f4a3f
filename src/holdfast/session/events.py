"""
Every fact about a session, as frozen values. Events are in the past tense and are never edited. The
journal holds nothing else.

An event holds everything that its fold needs: no clock, no settings, no outside facts. Times inside
are Unix milliseconds. The stored names and versions are in `codec.py`. To add an event, add it
here, in `SessionEvent`, in `transitions.py` and in `evolve/fold.py` (the type checker insists), and
add a golden file.
"""

from typing import Any, Literal

import msgspec

from holdfast.ids import (
    ApprovalId,
    CallId,
    InputId,
    InstanceId,
    JobId,
    MemoryId,
    ReminderId,
    SessionId,
    TurnId,
)
from holdfast.session.features.reminders.schedule import Schedule
from holdfast.session.view.messages import Message, Quote, Usage

Loop = Literal["ours", "foreign"]
InputKind = Literal["message", "job", "reminder", "delegate"]
TurnOutcome = Literal["completed", "failed", "cancelled", "superseded"]
CallOutcome = Literal[
    "ok",
    "error",
    "denied",
    "unattended",
    "superseded",
    "cancelled",
    "voided",
    "timed_out",
    "in_doubt",
]
ClosedAs = Literal["expired", "superseded", "voided", "cancelled"]
PromptKind = Literal["approval", "question"]
JobOutcome = Literal["ok", "error", "timed_out", "in_doubt"]
JobHost = Literal["process", "task"]


class DelegateOf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    The call that a delegate works for, and the upper bound of its authority. Written once, when its
    session is created. Its context is in its input, as for every session.
    """

    session: SessionId
    instance: InstanceId
    turn: TurnId
    call: CallId
    path: tuple[str, ...]  # agents, from the one that a person asked to this one
    tools: tuple[str, ...]  # its parent's tools when it was started; it has no others
    prompts_max: int  # the prompts left in its parent's budget
    doubts: tuple[str, ...] = ()  # calls in doubt in its parent: an equal call asks here too


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fact about a session."""


class SessionBorn(Event, frozen=True):
    """
    The first record of a life. What an unseal, fork, import or restore carried over follows it.
    """

    session: SessionId
    instance: InstanceId
    origin: str  # created, unseal, fork, import, restore, delegate
    by: str
    from_session: SessionId | None = None
    from_instance: InstanceId | None = None
    from_seq: int | None = None
    carried: int = 0  # number of records of the earlier instance that follow
    parent: DelegateOf | None = None  # of a delegate's session


class LifeCarried(Event, frozen=True):
    """All of the earlier life is here now; nothing of it is owed any more."""

    by: str
    reason: str
    attached: tuple[
        str, ...
    ] = ()  # quarantined outcomes that belong to it, as text; later turns see them as notes
    not_run: tuple[str, ...] = ()  # inputs, deliveries and reminders that were waiting, by id


class TailRepaired(Event, frozen=True):
    """A torn, never acknowledged tail was cut; its bytes are in quarantine."""

    bytes: int
    quarantine: str


class InputAccepted(Event, frozen=True):
    """
    A message, with its own authority, kept before anyone is told so. `context` is a TurnContext,
    restored on every fold.
    """

    input: InputId
    turn: TurnId
    text: str
    context: msgspec.Raw
    agent: str
    model: str
    kind: InputKind = "message"
    loop: Loop = "ours"
    quotes: tuple[Quote, ...] = ()
    dedup: str | None = None
    asserted_by: str | None = None
    supersedes: tuple[TurnId, ...] = ()  # parked turns that it replaces; their closing follows


class InputDropped(Event, frozen=True):
    input: InputId
    reason: str


class TurnStarted(Event, frozen=True):
    turn: TurnId
    inputs: tuple[InputId, ...]
    epoch: int


class TurnParked(Event, frozen=True):
    """
    Nothing can be done before somebody answers: the turn costs no task and no memory from here on.
    """

    turn: TurnId


class TurnResumed(Event, frozen=True):
    """Another attempt drives the turn on: after a pause, or because the one before died."""

    turn: TurnId
    epoch: int
    after: Literal["pause", "crash"]


class TurnCancelled(Event, frozen=True):
    """Wished for, and durable; the turn ends once its started calls have ended."""

    turn: TurnId
    by: str


class TurnEnded(Event, frozen=True):
    turn: TurnId
    outcome: TurnOutcome
    reply: str | None = None
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    by_input: InputId | None = None  # the message that superseded it


class ModelGiven(Event, frozen=True):
    """A person named another model for what is open, and for what comes."""

    model: str
    by: str


class ModelCallStarted(Event, frozen=True):
    """
    Journalled before the call leaves: if we die now, recovery knows that money may have been spent.
    """

    turn: TurnId
    number: int
    epoch: int
    model: str


class RecalledItem(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One memory item as a turn was given it. An item without a clean mark is tainted."""

    memory: MemoryId
    text: str
    audience: str
    boundary: str
    person: str
    session: SessionId  # where it was formed
    turn: TurnId
    created_at: int
    tainted: bool = True


class MemoryRecalled(Event, frozen=True):
    """
    What was remembered for a turn, before its first model call, under its journalled context: all
    that memory ever adds to its view.
    """

    turn: TurnId
    items: tuple[RecalledItem, ...] = ()
    degraded: str | None = None  # why it may be incomplete


class CallMade(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    call: CallId
    tool: str
    arguments: str  # the exact JSON text the model wrote
    provider_id: str | None = None


class ModelAnswered(Event, frozen=True):
    turn: TurnId
    number: int
    text: str
    calls: tuple[CallMade, ...] = ()
    usage: Usage = Usage()
    blob: str | None = None
    blob_adapter: str | None = None
    line: int | None = None


class ModelCallFailed(Event, frozen=True):
    """It gave no answer, and we know it. `final`: no further try of this call."""

    turn: TurnId
    number: int
    kind: str
    message: str
    final: bool
    line: int | None = None


class ModelCallLost(Event, frozen=True):
    """The driver died while the call was out; it is repeated under a new number."""

    turn: TurnId
    number: int


class ModelAnswerDropped(Event, frozen=True):
    """
    An answer came that nobody waits for any more: cancelled, superseded, or of an older number.
    """

    turn: TurnId
    number: int
    reason: str
    usage: Usage = Usage()


class CallsProposed(Event, frozen=True):
    """
    A foreign loop's model asked for these calls. The twin of ModelAnswered where the model call is
    not ours.
    """

    turn: TurnId
    number: int
    calls: tuple[CallMade, ...]
    text: str = ""


class CallAllowed(Event, frozen=True):
    """It may run without asking: by policy, or by a grant. Decided again right before it starts."""

    turn: TurnId
    call: CallId
    by: str  # "policy" or a grant's id
    arguments: str
    digest: str


class OptionOffered(msgspec.Struct, frozen=True):
    """One way to answer, with a text of the calls that it would cover."""

    option: str
    covers: str


class ApprovalRequested(Event, frozen=True):
    """
    The turn asks a person. Everything that will be shown, and the digest that an answer is bound
    to.
    """

    approval: ApprovalId
    turn: TurnId
    call: CallId
    tool: str
    definition: str
    arguments: str  # as they would run
    binding: str
    display: str
    digest: str
    options: tuple[OptionOffered, ...]
    may_answer: tuple[str, ...]
    expires_at: int
    kind: PromptKind = "approval"
    cwd: str | None = None
    folder: str | None = None  # the folder that approve_folder would allow
    granted: dict[str, str] = {}  # for each scope a grant could have: the arguments it would bind
    dangerous: bool = False
    reason: str = ""  # why it asks
    in_doubt_twin: bool = False  # the prompt warns that an equal call is in doubt
    path: str | None = None  # for file tools: the resolved path; a grant is for it


class ApprovalAnswered(Event, frozen=True):
    approval: ApprovalId
    turn: TurnId
    call: CallId
    option: str
    by: str
    answer_id: str
    digest: str
    reason: str | None = None
    arguments: str | None = None  # with `edit`: the arguments to run instead
    grant: str | None = None
    asserted_by: str | None = None
    way: str | None = None  # how the answer arrived: script, terminal, page or channels


class AnswerRefused(Event, frozen=True):
    """
    Somebody tried to answer who may not, or in a way that does not count. Kept for the audit; the
    prompt stands.
    """

    approval: ApprovalId
    turn: TurnId
    by: str
    option: str
    code: str


class ApprovalClosed(Event, frozen=True):
    approval: ApprovalId
    turn: TurnId
    call: CallId
    closed_as: ClosedAs
    reason: str = ""


class ToolStarted(Event, frozen=True):
    """
    Durable before anything runs. Carries what is needed to find the process again, or to know that
    it is gone.
    """

    turn: TurnId
    call: CallId
    tool: str
    arguments: str
    digest: str
    contract: Literal["pure", "idempotent", "once"]
    allowed_by: str  # "policy", a grant's id or an approval's id
    epoch: int
    run: int = 1
    process: dict[str, Any] | None = None


class DelegateStarted(Event, frozen=True):
    """
    A call was handed to another agent; durable before that agent's session is born. What
    ToolStarted is for a tool.
    """

    turn: TurnId
    call: CallId
    agent: str
    session: SessionId
    instance: InstanceId  # minted here, so that a crash before creation leads to the same instance
    arguments: str
    digest: str
    allowed_by: str
    epoch: int
    tools: tuple[str, ...] = ()  # this agent's tools: the most that the delegate may have


class DelegateEnded(Event, frozen=True):
    """
    The delegate's turn is over and this session knows it: the call has its result, unless its turn
    ended first.
    """

    turn: TurnId
    call: CallId
    outcome: str  # of its turn; lost: the outcome can no longer be known
    prompts: int = 0
    doubts: tuple[str, ...] = ()  # the delegate's calls in doubt: an equal call asks here too
    usage: Usage = Usage()


class DelegateReported(Event, frozen=True):
    """
    In the delegate's own journal: its parent was told, or is gone (dropped). Nothing is owed any
    more.
    """

    turn: TurnId
    became: Literal["reported", "dropped"]


class CallFinished(Event, frozen=True):
    """The one result of one call, real or synthetic."""

    turn: TurnId
    call: CallId
    outcome: CallOutcome
    text: str
    code: str | None = None
    output: str | None = None  # digest of the full output kept beside the journal


class JobSubmitted(Event, frozen=True):
    """
    A started call goes on in the background. Durable, with `tool_started` and the call's result,
    before the job is let go.

    `context` is the turn's own, narrowed, and restored on every fold: without it nothing starts and
    nothing is reported.
    """

    job: JobId
    turn: TurnId
    call: CallId
    tool: str
    arguments: str
    digest: str
    contract: Literal["pure", "idempotent", "once"]
    context: msgspec.Raw
    agent: str  # the agent that receives the result
    model: str
    epoch: int
    host: JobHost  # a process of its own, or a task of the program that drove the turn
    process: dict[
        str, Any
    ]  # of the job's supervisor, or of that program: enough to know whether it still runs
    seconds_max: float
    bytes_max: int


class JobCancelled(Event, frozen=True):
    """
    Wished for, and durable, before the job is asked to end; it ends with its real outcome, or in
    doubt.
    """

    job: JobId
    turn: TurnId
    by: str


class JobEnded(Event, frozen=True):
    """
    How a job ended, said once by whoever found out first. The input that reports it follows;
    without authority none does.
    """

    job: JobId
    turn: TurnId
    outcome: JobOutcome
    text: str
    code: str | None = None
    output: str | None = None  # digest of the full output kept beside the journal


class Compacted(Event, frozen=True):
    """
    In the view, the oldest `turns` entries are replaced by this summary. The journal keeps
    everything.
    """

    summary: str
    turns: int
    tokens_before: int
    tokens_after: int
    trigger: str
    usage: Usage = Usage()


class TurnCompacted(Event, frozen=True):
    """
    In the view of this one turn alone: what it began with (`part` base), or the first `messages`
    after its own inputs (`part` own), is replaced.

    For a turn that outgrows the window by itself, or that was parked while the others' view moved
    on.
    """

    turn: TurnId
    summary: str
    part: Literal["base", "own"]
    messages: int
    tokens_before: int
    tokens_after: int
    trigger: str
    usage: Usage = Usage()


class TurnImported(Event, frozen=True):
    """
    A piece of a conversation that took place elsewhere: text without a context. It informs the
    model, allows nothing, and stays tainted.
    """

    turn: TurnId
    messages: tuple[Message, ...]  # of people, models and notes; never calls or results
    source: str  # the id in the imported file, for people
    at: int | None = None  # the time of the message, as in the file


class DeliveryQueued(Event, frozen=True):
    """A reply or a prompt is owed to a channel: one id per (turn, channel, part)."""

    delivery: str
    turn: TurnId
    channel: str
    kind: str  # reply, prompt, notice
    text: str


class DeliverySent(Event, frozen=True):
    delivery: str


class DeliveryConfirmed(Event, frozen=True):
    delivery: str
    receipt: str | None = None


class DeliveryFailed(Event, frozen=True):
    """Given up, or in doubt: sent, with no word whether it arrived. Never sent again by itself."""

    delivery: str
    code: str
    message: str


class ReminderSet(Event, frozen=True):
    """
    A turn is wished for later. `context` is its whole authority, narrowed from the creator's;
    without it, or with less of it, nothing fires.
    """

    reminder: ReminderId
    text: str
    schedule: Schedule
    context: msgspec.Raw
    by: str
    agent: str
    model: str
    next_at: int
    may_prompt: bool = False  # the creator's permission: prompts of its turns may reach the creator
    turn: TurnId | None = None  # the turn in which a tool set it, and the call
    call: CallId | None = None
    asserted_by: str | None = None


class ReminderFired(Event, frozen=True):
    """
    Its input was accepted right before this record, once for all processes. `next_at` None: it was
    the last time.
    """

    reminder: ReminderId
    turn: TurnId
    scheduled_at: int
    fired_at: int
    missed: int = 0  # further instants that passed meanwhile; they get no turn of their own
    next_at: int | None = None


class ReminderCancelled(Event, frozen=True):
    reminder: ReminderId
    by: str
    reason: str = ""


SessionEvent = (
    SessionBorn
    | LifeCarried
    | TailRepaired
    | InputAccepted
    | InputDropped
    | TurnStarted
    | TurnParked
    | TurnResumed
    | TurnCancelled
    | TurnEnded
    | ModelGiven
    | MemoryRecalled
    | ModelCallStarted
    | ModelAnswered
    | ModelCallFailed
    | ModelCallLost
    | ModelAnswerDropped
    | CallsProposed
    | CallAllowed
    | ApprovalRequested
    | ApprovalAnswered
    | AnswerRefused
    | ApprovalClosed
    | ToolStarted
    | DelegateStarted
    | DelegateEnded
    | DelegateReported
    | CallFinished
    | JobSubmitted
    | JobCancelled
    | JobEnded
    | Compacted
    | TurnCompacted
    | TurnImported
    | DeliveryQueued
    | DeliverySent
    | DeliveryConfirmed
    | DeliveryFailed
    | ReminderSet
    | ReminderFired
    | ReminderCancelled
)
