"""One open turn, its calls and their prompts, and every flag that is derived from them."""

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.ids import (
    CallId,
    InputId,
    JobId,
    TurnId,
)
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Blob,
    CallOutcome,
    ClosedAs,
    DelegateOf,
    InputKind,
    Loop,
    RecalledItem,
)
from holdfast.session.persistent import PersistentList
from holdfast.session.state.features import Delegate
from holdfast.session.state.view import View
from holdfast.session.view.messages import Message, Usage


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
    WAITING = "waiting"  # a prompt is open; with a run, its server wants a form filled in
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
    consent: Approval | None = None  # the approval that it started under, once a form is open
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
    # For an external loop: see `CallMade`, and the result as its framework has it.
    parent: CallId | None = None
    path: tuple[str, ...] = ()
    may_repeat: bool = False
    result: Blob | None = None

    @property
    def is_asking(self) -> bool:
        """True if its server asks a person inside of the open call, and waits for the answer."""
        approval = self.approval
        return self.status is CallStatus.STARTED and approval is not None and approval.is_open

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


class ModelCall(msgspec.Struct, frozen=True, gc=False):
    number: int
    epoch: int


class ReplayedAnswer(msgspec.Struct, frozen=True, gc=False):
    """One answer of an external loop's model, for a loop that replays it."""

    number: int
    text: str
    calls: tuple[CallId, ...]
    blob: Blob | None
    parent: CallId | None = None  # the call whose nested agent said it


class Repeats(msgspec.Struct, frozen=True, gc=False):
    """
    The same call with the same result, in a row. Both are kept as they are, not as digests: the
    view holds them anyway.
    """

    key: tuple[str, str] = ("", "")  # tool, arguments
    result: str = ""
    count: int = 0


class ModelFailure(msgspec.Struct, frozen=True, gc=False):
    """Why a model call was given up."""

    kind: str
    message: str
    hint: str | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One open request."""

    id: TurnId
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
    failed_calls: int = 0  # of all model calls; the bound on model calls does not count them
    failing_since: int = 0  # Unix milliseconds of the first failure in the row; 0: none
    retry_at: int = 0  # Unix milliseconds of the next try, while the turn waits for it; 0: none
    retry_wait_ms: int = 0  # the last decided wait
    waited_ms: int = 0  # all decided waits in the row
    last_failure: str | None = None
    failed: ModelFailure | None = None  # a final failure of the model
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
    # For an external loop: the answers of its model, the calls of earlier batches, the state of its
    # framework by adapter, and the time since when the turn waits for the loop.
    said: tuple[ReplayedAnswer, ...] = ()
    past: tuple[Call, ...] = ()
    kept: tuple[Blob, ...] = ()
    parked_at: int = 0

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
    def waits_for_model(self) -> bool:
        """True if its model did not answer, and the next try is later."""
        return self.retry_at != 0 and self.failed is None and self.phase is Phase.READY

    @property
    def waiting(self) -> tuple[Call, ...]:
        """Calls whose prompt is open."""
        return tuple(
            [
                call
                for call in self.calls
                if (call.status is CallStatus.WAITING and not call.owes_result) or call.is_asking
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
    def is_left(self) -> bool:
        """
        True if an external loop left this turn, or died, and no prompt of the turn is open. It
        waits for its loop, and only for a while.
        """
        return self.parked and self.loop == "foreign" and not self.waiting

    def hosts(self, call: Call) -> bool:
        """True if the call runs a nested agent, one of whose own calls is open."""
        return any(
            each.parent == call.call and each.status is not CallStatus.FINISHED
            for each in self.calls
        )

    @property
    def is_half_settled(self) -> bool:
        """
        True if a decision about the turn is journalled, but not all records that follow from it.
        """
        if self.superseded_by is not None:
            return True
        for call in self.calls:  # noqa: SIM110  a generator costs as much as the rest of `react`
            if call.owes_result:
                return True
        return False

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
            return self.parked or all(
                call.status in idle
                or (
                    self.loop == "foreign"
                    and call.status is CallStatus.STARTED
                    and self.hosts(call)
                )
                for call in self.calls
            )
        working = (CallStatus.DELEGATED, CallStatus.FINISHED)
        return bool(self.delegated) and all(call.status in working for call in self.calls)
