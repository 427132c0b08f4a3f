"""
The state of a session: the fold of its events. Frozen; only `evolve` makes the next state.

The state is bounded by the open turns and the view, never by the length of history. Flags that can
be derived are derived. A fold makes many values. Frozen values cannot form cycles, so the garbage
collector need not visit them (`gc=False`).
"""

from enum import StrEnum
from typing import Any

import msgspec

from holdfast import limits
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
from holdfast.session.authority.context import Audience, LostContext, TurnContext, Workspace
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallOutcome,
    ClosedAs,
    DelegateOf,
    InputKind,
    JobEnded,
    JobHost,
    JobOutcome,
    Loop,
    RecalledItem,
)
from holdfast.session.features.reminders.schedule import Schedule
from holdfast.session.persistent import PersistentList, Window
from holdfast.session.view.messages import Message, Quote, Usage


class Phase(StrEnum):
    """The position of a turn in its state machine."""

    READY = "ready"  # the next step is a model call (or, in an external loop, the loop's own step)
    CALLING_MODEL = "calling_model"  # a model call is in flight
    DECIDING = "deciding"  # calls were proposed; not each is allowed, asked or denied yet
    RUNNING = "running"  # calls may start, or have started
    PARKED = "parked"  # only a person, or the end of a delegate, can move it on
    CANCELLING = "cancelling"  # cancelled; a started call has not ended yet
    ENDED = "ended"


class CallStatus(StrEnum):
    PROPOSED = "proposed"  # made by the model, or edited by a person; not decided yet
    ALLOWED = "allowed"  # by policy or a grant
    WAITING = "waiting"  # a prompt is open
    APPROVED = "approved"  # by a person; starts when its sibling calls have answers too
    STARTED = "started"
    DELEGATED = "delegated"  # handed to a delegate, whose own session holds its state
    FINISHED = "finished"


# Read twice for every event: a module name is found faster than an enum member.
_PROPOSED, _FINISHED = CallStatus.PROPOSED, CallStatus.FINISHED
_READY, _DECIDING, _RUNNING = Phase.READY, Phase.DECIDING, Phase.RUNNING


class Approval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One prompt of one call: the request, and its answer or closing."""

    asked: ApprovalRequested
    requested_at: int
    answer: ApprovalAnswered | None = None
    closed_as: ClosedAs | None = None
    refusals: int = 0  # journalled attempts by people who may not answer

    @property
    def is_open(self) -> bool:
        return self.answer is None and self.closed_as is None


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    call: CallId
    tool: str
    made: str  # arguments as the model wrote them
    provider_id: str | None
    status: CallStatus = CallStatus.PROPOSED
    arguments: str | None = None  # as they would run: validated, or edited by a person
    edited_by: str | None = None
    digest: str | None = None
    allowed_by: str | None = None
    approval: Approval | None = None
    prompts: int = 0
    run: int = 0
    epoch: int = 0  # of the driver that started it
    contract: str = "once"
    process: dict[str, Any] | None = None
    delegate: "Delegate | None" = None
    outcome: CallOutcome | None = None
    text: str = ""
    code: str | None = None
    job: JobId | None = None  # the call goes on as this job; its own result only names the job

    @property
    def owes_result(self) -> bool:
        """
        True if the prompt is over, or the call became a job, but its result is missing: a crash
        came between the two records.
        """
        if self.job is not None:
            return self.status is CallStatus.STARTED
        approval = self.approval
        if (
            approval is None
            or self.status is CallStatus.STARTED
            or self.status is CallStatus.FINISHED
        ):
            return False
        return approval.closed_as is not None or (
            self.status is CallStatus.WAITING and approval.answer is not None
        )


class Delegate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The session that a call was handed to."""

    turn: TurnId
    call: CallId
    agent: str
    session: SessionId
    instance: InstanceId
    tools: tuple[str, ...]
    born: bool = False  # known to exist: its turn was parked after the session was created
    ended: str | None = None
    prompts: int = 0


class Input(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    input: InputId
    turn: TurnId
    text: str
    context: TurnContext | LostContext
    agent: str
    model: str
    kind: InputKind
    loop: Loop
    quotes: tuple[Quote, ...]


class ModelCall(msgspec.Struct, frozen=True, gc=False):
    number: int
    epoch: int


class Repeats(msgspec.Struct, frozen=True, gc=False):
    """
    The same call with the same result, in a row. Both are kept as they are, not as digests: the
    view holds them anyway.
    """

    key: tuple[str, str] = ("", "")  # tool, arguments
    result: str = ""
    count: int = 0


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One open request."""

    turn: TurnId
    context: TurnContext | LostContext
    agent: str
    model: str
    loop: Loop
    kind: InputKind
    inputs: tuple[InputId, ...]
    started_at: int
    base: "View"  # the shared view when the turn started
    own: PersistentList[Message]
    epoch: int
    others: tuple[str, ...] = ()  # a line for each turn that was parked when it started
    calls: tuple[Call, ...] = ()  # the open batch
    model_call: ModelCall | None = None
    model_calls: int = 0
    model_failures: int = 0  # of the current model call, in a row
    last_failure: str | None = None
    failed: tuple[str, str] | None = None  # a final failure of the model: (kind, message)
    answered: bool = False  # the model's last answer made no calls: the turn is done
    tool_calls: int = 0
    prompts: int = 0
    parked: bool = False
    cancelled_by: str | None = None
    superseded_by: InputId | None = (
        None  # a later message replaced it; its calls get their results, then it ends
    )
    ended: bool = False
    attempts: int = 1  # attempts in a row without a finished step
    overflows: int = 0
    repeats: Repeats = Repeats()
    usage: Usage = Usage()
    delegations: int = 0  # number of delegates that the turn started
    delegate_of: DelegateOf | None = None
    # Tokens of its view, as the model counted them at its last answer, the answer included. 0: the
    # model never reported a count.
    tokens: int = 0
    recalled: tuple[RecalledItem, ...] | None = (
        None  # items that memory gave to the turn; None: nothing was recorded
    )
    recall_degraded: str | None = None
    # True if its view holds text that is neither the requester's own nor from a tool whose results
    # hold no outside content.
    tainted: bool = True

    @property
    def phase(self) -> Phase:
        if self.ended:
            return Phase.ENDED
        if self.cancelled_by is not None:
            return Phase.CANCELLING
        if self.parked:
            return Phase.PARKED
        if self.model_call is not None:
            return Phase.CALLING_MODEL
        phase = _READY
        for call in self.calls:
            if call.status is _PROPOSED:
                return _DECIDING
            if call.status is not _FINISHED:
                phase = _RUNNING
        return phase

    @property
    def waiting(self) -> tuple[Call, ...]:
        """Calls whose prompt is open."""
        return tuple(
            [
                call
                for call in self.calls
                if call.status is CallStatus.WAITING and not call.owes_result
            ]
        )

    @property
    def open_approvals(self) -> tuple[Approval, ...]:
        """Prompts that wait for an answer."""
        return tuple([call.approval for call in self.waiting if call.approval is not None])

    @property
    def delegated(self) -> tuple[Call, ...]:
        """Calls that a delegate works on."""
        return tuple([call for call in self.calls if call.status is CallStatus.DELEGATED])

    @property
    def is_half_settled(self) -> bool:
        """
        True if a decision about the turn is journalled, but not all records that follow from it.
        """
        return self.superseded_by is not None or any(call.owes_result for call in self.calls)

    @property
    def may_go_on(self) -> bool:
        """
        True if the turn is parked, has all its answers, and has work to do. The driver does this
        before any new request.
        """
        ours = self.parked and self.loop == "ours" and self.phase is Phase.PARKED
        return ours and not self.waiting and not self.is_half_settled and not self.only_waits

    def is_out(self, call: Call) -> bool:
        """
        True if the call was started by the attempt that drives the turn now. A call that an older
        attempt started is gone, and only waits to be run again. A delegate outlives attempts.
        """
        if call.status is CallStatus.DELEGATED:
            return True
        return call.status is CallStatus.STARTED and call.epoch >= self.epoch and call.job is None

    @property
    def only_waits(self) -> bool:
        """
        True if the turn is parked or about to be: no step is possible before a person answers or a
        delegate ends.
        """
        if self.cancelled_by is not None or self.superseded_by is not None:
            return False
        if self.waiting:
            idle = (
                CallStatus.WAITING,
                CallStatus.APPROVED,
                CallStatus.DELEGATED,
                CallStatus.FINISHED,
            )
            return self.parked or all(call.status in idle for call in self.calls)
        working = (CallStatus.DELEGATED, CallStatus.FINISHED)
        return bool(self.delegated) and all(call.status in working for call in self.calls)


class ViewEntry(msgspec.Struct, frozen=True, gc=False):
    """One ended turn as later turns see it."""

    turn: TurnId
    messages: tuple[Message, ...]
    audience: Audience = Audience.PERSONAL  # who may see it; the narrowest audience if unknown
    tainted: bool = True


class View(msgspec.Struct, frozen=True, gc=False):
    """The part that all turns share: a summary of the oldest turns, and the ended turns since."""

    summary: str | None = None
    entries: PersistentList[ViewEntry] = PersistentList()
    # number of compactions that led to it; views of the same number share their past
    compactions: int = 0
    # as the model counted them at the last turn's end; 0: the model never reported a count
    tokens: int = 0
    summary_audience: Audience = Audience.PERSONAL  # the narrowest audience of the summarised turns
    # Characters of the summary and all entries, so that a long view need not be counted again.
    chars: int = 0
    tainted: bool = (
        False  # True if any of it, or any summarised part, was tainted: taint is never removed
    )

    def narrowest(self, turns: int | None = None) -> Audience:
        """
        Return the narrowest audience of the summary and the oldest `turns` entries, or of all
        entries.
        """
        seen = [entry.audience for entry in list(self.entries)[:turns]]
        if self.summary is not None:
            seen.append(self.summary_audience)
        return max(seen, key=lambda audience: audience.narrowness, default=Audience.PUBLIC)


class Recall(msgspec.Struct, frozen=True, gc=False):
    """The memory items that a turn was given, for display."""

    turn: TurnId
    items: tuple[MemoryId, ...]
    degraded: str | None


class SettledApproval(msgspec.Struct, frozen=True, gc=False):
    """The facts kept about a prompt whose turn is over."""

    turn: TurnId
    call: CallId
    answer_id: str | None
    option: str | None
    by: str | None
    closed_as: ClosedAs | None
    asked_seq: int
    said: str | None = None  # digest of the answer's content beside its option


class TurnResult(msgspec.Struct, frozen=True, gc=False):
    """
    The place of a turn's end in the journal, its outcome, and the turn's total usage, which that
    record does not hold.
    """

    seq: int
    outcome: str
    usage: Usage = Usage()


class Delivery(msgspec.Struct, frozen=True, gc=False):
    delivery: str
    turn: TurnId
    channel: str
    kind: str
    text: str
    sent: bool = False


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


class Deduplicated(msgspec.Struct, frozen=True, gc=False):
    turn: TurnId
    text: str  # digest


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


class Reader(msgspec.Struct, frozen=True, gc=False):
    """
    A person who sent an accepted message or who may answer one of its prompts, with the audience
    and boundary of that message.
    """

    person: str
    audience: str
    boundary: str


class SessionState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    session: SessionId
    instance: InstanceId
    seq: int = 0
    at: int = 0
    born: bool = False
    carrying: int = 0  # records of an earlier instance that are still to come
    inputs: int = 0  # accepted so far; also the number of the last turn id
    turns_ended: int = 0
    turns: dict[TurnId, Turn] = {}
    running: TurnId | None = None
    queued: tuple[Input, ...] = ()
    view: View = View()
    compactions: int = 0
    dedup: Window[Deduplicated] = Window(limits.DEDUP_INPUTS)
    results: Window[TurnResult] = Window(limits.DEDUP_INPUTS)
    settled: Window[SettledApproval] = Window(limits.DEDUP_INPUTS)
    in_doubt: Window[CallId] = Window(limits.DEDUP_INPUTS)  # by (tool, arguments)
    approvals: dict[
        ApprovalId, tuple[TurnId, CallId, int]
    ] = {}  # of open turns, with the seq of each request
    model: str | None = None
    agent: str | None = None
    workspaces: dict[str, Workspace] = {}  # by requester
    people: frozenset[str] = frozenset()  # people who sent an accepted message here
    readers: frozenset[Reader] = (
        frozenset()
    )  # requesters and approvers, each with audience and boundary
    scripts: dict[str, int] = {}  # lines used, by model name
    deliveries: dict[str, Delivery] = {}  # not yet confirmed or given up
    delivered: Window[str] = Window(
        limits.DEDUP_INPUTS
    )  # confirmed or given up: never queued again
    usage: Usage = Usage()
    recalls: tuple[Recall, ...] = ()  # of the last turns that were given any items
    reminders: dict[ReminderId, Reminder] = {}  # those that are set
    reminders_over: Window[ReminderOver] = Window(limits.DEDUP_INPUTS)  # how the others ended
    parent: DelegateOf | None = None  # of a delegate's session
    reported: bool = False  # the parent was sent the result
    delegates: dict[CallId, Delegate] = {}  # at work, as far as this session knows
    delegates_ended: Window[Delegate] = Window(limits.DELEGATES_REMEMBERED)
    jobs: dict[JobId, Job] = {}  # running, or ended and not yet reported
    ended_jobs: Window[EndedJob] = Window(limits.JOBS_REMEMBERED)

    def open_call(self, turn: TurnId, call: CallId) -> Call | None:
        open_turn = self.turns.get(turn)
        if open_turn is None:
            return None
        return next((each for each in open_turn.calls if each.call == call), None)
