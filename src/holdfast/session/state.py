"""
Where a session stands: what a fold of its events adds up to. Frozen; moved only by `evolve`.

Bounded by the open turns and the view, never by the length of history. Flags that can be derived
are derived. Frozen values can't form cycles, so the garbage collector need not look at them
(`gc=False`): a fold makes many.
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
    """Where a turn stands."""

    READY = "ready"  # the next step is a model call (or, in a foreign loop, the loop's own)
    CALLING_MODEL = "calling_model"  # a model call is out
    DECIDING = "deciding"  # calls were made; what may run, must ask or is denied is not decided yet
    RUNNING = "running"  # calls may start, or have started
    PARKED = "parked"  # only a person, or the end of a delegate, can move it on
    CANCELLING = "cancelling"  # cancelled; a started call has not ended yet
    ENDED = "ended"


class CallStatus(StrEnum):
    PROPOSED = "proposed"  # made by the model, or edited by a person: to be decided
    ALLOWED = "allowed"  # by policy or a grant
    WAITING = "waiting"  # a prompt is open
    APPROVED = "approved"  # by a person; starts when its siblings have answers too
    STARTED = "started"
    DELEGATED = "delegated"  # handed to a delegate, whose own session says where it stands
    FINISHED = "finished"


# Read twice for every event: a name is found faster than a member.
_PROPOSED, _FINISHED = CallStatus.PROPOSED, CallStatus.FINISHED
_READY, _DECIDING, _RUNNING = Phase.READY, Phase.DECIDING, Phase.RUNNING


class Approval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One prompt of one call: as asked, and what came of it."""

    asked: ApprovalRequested
    requested_at: int
    answer: ApprovalAnswered | None = None
    closed_as: ClosedAs | None = None
    refusals: int = 0  # journalled tries by people who may not answer

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
    job: JobId | None = None  # it goes on as this one, and its own result is only that

    @property
    def owes_result(self) -> bool:
        """
        Its prompt is over, or it became a job, but the result that goes with it is missing: a crash
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
    born: bool = False  # known to exist: its turn was parked after the birth
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
    The same call with the same result, in a row. Both as they are: the view holds them anyway.
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
    base: "View"  # the shared view when it started
    own: PersistentList[Message]
    epoch: int
    others: tuple[str, ...] = ()  # a line for each turn that was parked when it started
    calls: tuple[Call, ...] = ()  # the open batch
    model_call: ModelCall | None = None
    model_calls: int = 0
    model_failures: int = 0  # of the present call, in a row
    last_failure: str | None = None
    failed: tuple[str, str] | None = None  # a final failure of the model: (kind, message)
    answered: bool = False  # the model's last answer made no calls: the turn is done
    tool_calls: int = 0
    prompts: int = 0
    parked: bool = False
    cancelled_by: str | None = None
    superseded_by: InputId | None = (
        None  # a later message took its place; its calls get their results, then it ends
    )
    ended: bool = False
    attempts: int = 1  # in a row, without a finished step
    overflows: int = 0
    repeats: Repeats = Repeats()
    usage: Usage = Usage()
    delegations: int = 0  # delegates it started
    delegate_of: DelegateOf | None = None
    # its view, as the model counted it at its last answer, the answer included; 0: it never said
    tokens: int = 0
    recalled: tuple[RecalledItem, ...] | None = (
        None  # what memory gave it; None: nothing was recorded
    )
    recall_degraded: str | None = None
    # something in its view is not its requester's own word, or a tool's that can't say anything
    # else
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
        """Something was decided about it that its records don't say to the end yet."""
        return self.superseded_by is not None or any(call.owes_result for call in self.calls)

    @property
    def may_go_on(self) -> bool:
        """
        Parked, with all its answers in and something to do: a driver's next step, before any new
        request.
        """
        ours = self.parked and self.loop == "ours" and self.phase is Phase.PARKED
        return ours and not self.waiting and not self.is_half_settled and not self.only_waits

    def is_out(self, call: Call) -> bool:
        """
        Started, and by the attempt that drives the turn now: an older one's is gone, and only waits
        to be run again. A delegate outlives attempts.
        """
        if call.status is CallStatus.DELEGATED:
            return True
        return call.status is CallStatus.STARTED and call.epoch >= self.epoch and call.job is None

    @property
    def only_waits(self) -> bool:
        """
        Parked, or about to be: nothing can be done before somebody answers, or a delegate ends.
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
    audience: Audience = Audience.PERSONAL  # who may see it; the narrowest where nobody knows
    tainted: bool = True


class View(msgspec.Struct, frozen=True, gc=False):
    """What all turns share: a summary of the oldest, and the ended turns since."""

    summary: str | None = None
    entries: PersistentList[ViewEntry] = PersistentList()
    compactions: int = 0  # how many led to it: views of the same number share their past
    tokens: int = 0  # as the model counted them, at the last turn's end; 0: it never said
    summary_audience: Audience = Audience.PERSONAL  # the narrowest of what was summarised
    # of the summary and all entries: so that the size of a long view need not be counted again
    chars: int = 0
    tainted: bool = (
        False  # something in it, or in what was summarised, was: taint is never washed off
    )

    def narrowest(self, turns: int | None = None) -> Audience:
        """Of the summary and the oldest `turns` entries, or all of them."""
        seen = [entry.audience for entry in list(self.entries)[:turns]]
        if self.summary is not None:
            seen.append(self.summary_audience)
        return max(seen, key=lambda audience: audience.narrowness, default=Audience.PUBLIC)


class Recall(msgspec.Struct, frozen=True, gc=False):
    """Which memory a turn was given, for people who look."""

    turn: TurnId
    items: tuple[MemoryId, ...]
    degraded: str | None


class SettledApproval(msgspec.Struct, frozen=True, gc=False):
    """What is remembered of a prompt whose turn is over."""

    turn: TurnId
    call: CallId
    answer_id: str | None
    option: str | None
    by: str | None
    closed_as: ClosedAs | None
    asked_seq: int
    said: str | None = None  # digest of what the answer said beside its option


class TurnResult(msgspec.Struct, frozen=True, gc=False):
    """
    Where the end of a turn is in the journal, how it was, and what the turn had cost by then, which
    that record does not say.
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
    """Background work that runs, or that ended and is not reported yet."""

    job: JobId
    turn: TurnId
    call: CallId
    tool: str
    arguments: str
    contract: str
    context: TurnContext | LostContext  # of its own record, never of the turn that happens to run
    agent: str
    model: str
    host: JobHost
    process: dict[str, Any]
    seconds_max: float
    bytes_max: int
    submitted_at: int
    submitted_seq: int
    cancelled_by: str | None = None
    ended: JobEnded | None = None  # its report is owed


class EndedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is remembered of a job that is over; the journal has the rest."""

    job: JobId
    turn: TurnId
    tool: str
    outcome: JobOutcome
    code: str | None
    audience: Audience | None  # None: its authority could not be restored, and nobody was told
    boundary: str | None
    submitted_at: int
    ended_at: int
    submitted_seq: int
    ended_seq: int


class Deduplicated(msgspec.Struct, frozen=True, gc=False):
    turn: TurnId
    text: str  # digest


class Reminder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One that stands. A lost context never fires, and says why."""

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
    """How one ended, and in whose circle it stood."""

    how: str
    audience: str
    boundary: str


class Reader(msgspec.Struct, frozen=True, gc=False):
    """
    Somebody who sent an accepted message, or who may answer a prompt of one: as of the circle that
    message belongs to.
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
    carrying: int = 0  # records of an earlier life still to come
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
    ] = {}  # of open turns, and where they were asked
    model: str | None = None
    agent: str | None = None
    workspaces: dict[str, Workspace] = {}  # by requester
    people: frozenset[str] = frozenset()  # who sent an accepted message here
    readers: frozenset[Reader] = (
        frozenset()
    )  # who takes part, and in which circle: requesters, and whoever was asked
    scripts: dict[str, int] = {}  # lines used, by model name
    deliveries: dict[str, Delivery] = {}  # not yet confirmed or given up
    delivered: Window[str] = Window(
        limits.DEDUP_INPUTS
    )  # confirmed or given up: never queued again
    usage: Usage = Usage()
    recalls: tuple[Recall, ...] = ()  # of the last turns that were given any
    reminders: dict[ReminderId, Reminder] = {}  # those that stand
    reminders_over: Window[ReminderOver] = Window(limits.DEDUP_INPUTS)  # how the others ended
    parent: DelegateOf | None = None  # of a delegate's session
    reported: bool = False  # and its parent was told how it ended
    delegates: dict[CallId, Delegate] = {}  # at work, as far as this session knows
    delegates_ended: Window[Delegate] = Window(limits.DELEGATES_REMEMBERED)
    jobs: dict[JobId, Job] = {}  # running, or ended and not yet reported
    ended_jobs: Window[EndedJob] = Window(limits.JOBS_REMEMBERED)

    def open_call(self, turn: TurnId, call: CallId) -> Call | None:
        open_turn = self.turns.get(turn)
        if open_turn is None:
            return None
        return next((each for each in open_turn.calls if each.call == call), None)
