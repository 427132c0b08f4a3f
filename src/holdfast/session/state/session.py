"""The whole state of one session, and the facts kept about turns that are over."""

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
    turn_id_of,
)
from holdfast.session.authority.context import LostContext, TurnContext, Workspace
from holdfast.session.events import (
    ClosedAs,
    DelegateOf,
    InputKind,
    Loop,
)
from holdfast.session.persistent import Window
from holdfast.session.state.features import (
    Delegate,
    Delivery,
    EndedJob,
    Job,
    Reminder,
    ReminderOver,
    ShownPrompt,
)
from holdfast.session.state.turn import Call, CallStatus, Turn
from holdfast.session.state.view import View
from holdfast.session.view.messages import Quote, Usage


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
    said: str | None = None  # digest of the answer's content beside its option


class TurnResult(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """
    The place of a turn's end in the journal, its outcome, and the turn's total usage, which that
    record does not hold.
    """

    seq: int
    outcome: str
    usage: Usage = Usage()


class Deduplicated(msgspec.Struct, frozen=True, gc=False, array_like=True):
    turn: TurnId
    text: str  # digest


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
    exists: bool = False
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
    shown: dict[str, ShownPrompt] = {}  # by channel and message: what waits for an update
    usage: Usage = Usage()
    opening: str = ""  # the title that the first message gives
    given_title: str = ""  # the title that a person gave
    recalls: tuple[Recall, ...] = ()  # of the last turns that were given any items
    reminders: dict[ReminderId, Reminder] = {}  # those that are set
    reminders_over: Window[ReminderOver] = Window(limits.DEDUP_INPUTS)  # how the others ended
    parent: DelegateOf | None = None  # of a delegate's session
    reported: bool = False  # the parent was sent the result
    delegates: dict[CallId, Delegate] = {}  # at work, as far as this session knows
    delegates_ended: Window[Delegate] = Window(limits.DELEGATES_REMEMBERED)
    jobs: dict[JobId, Job] = {}  # running, or ended and not yet reported
    ended_jobs: Window[EndedJob] = Window(limits.JOBS_REMEMBERED)

    @property
    def title(self) -> str:
        return self.given_title or self.opening

    def find_turn(self, turn: TurnId) -> Turn | None:
        """Return the open turn of that id, or the turn that its message joined."""
        found = self.turns.get(turn)
        if found is None:
            for each in self.turns.values():
                if any(turn_id_of(name) == turn for name in each.inputs):
                    return each
        return found

    def started_call(self, turn: TurnId, call: CallId, run: int) -> tuple[Turn, Call] | None:
        """Return the call if this start of it is the one that runs now."""
        open_turn, found = self.turns.get(turn), self.open_call(turn, call)
        if open_turn is None or found is None or found.job is not None:
            return None
        runs = found.status is CallStatus.STARTED and found.run == run
        return (open_turn, found) if runs else None

    def open_call(self, turn: TurnId, call: CallId) -> Call | None:
        open_turn = self.turns.get(turn)
        if open_turn is not None:
            for each in open_turn.calls:
                if each.call == call:
                    return each
        return None

    def find_prompt(self, approval: ApprovalId) -> tuple[Turn, Call | None] | None:
        """
        Return the turn and the call of a prompt. None if the turn is over. The call is None if it
        belongs to an earlier batch.
        """
        where = self.approvals.get(approval)
        if where is None:
            return None
        turn, call, _ = where
        return self.turns[turn], self.open_call(turn, call)
