"""
Apply events to one open turn and its calls. Each function maps a turn to the next one. `turn_moved`
finds the turn, checks the transition table and stores the result. The model's part of a turn is in
`model_calls.py`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.ids import CallId, TurnId
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    CallAllowed,
    CallFinished,
    DelegateStarted,
    Event,
    ToolStarted,
    TurnCancelled,
    TurnParked,
    TurnResumed,
)
from holdfast.session.features.memory.items import taints
from holdfast.session.state import (
    Call,
    CallStatus,
    Delegate,
    Repeats,
    SessionState,
    Turn,
)
from holdfast.session.transitions import TRANSITIONS, IllegalTransition, check
from holdfast.session.view.messages import (
    ResultMessage,
)

S = CallStatus
_PROPOSED, _ALLOWED, _STARTED, _FINISHED = S.PROPOSED, S.ALLOWED, S.STARTED, S.FINISHED
# The outcomes that only a started call can have, and those that only a call that never started can
# have. An error may come from either.
_NEEDS_START = frozenset({"ok", "timed_out", "in_doubt"})
_NEVER_STARTED = frozenset({"superseded", "cancelled", "denied", "unattended", "voided"})


def turn_moved(
    state: SessionState, event: Event, move: Callable[..., Turn], seq: int, at: int
) -> SessionState:
    name: TurnId = event.turn  # type: ignore[attr-defined]  # only called with events of a turn
    turn = state.turns.get(name)
    if turn is None:
        raise IllegalTransition(None, event)
    before = turn.phase
    moved = move(turn, event)
    after = moved.phase
    if moved.parked and moved.is_left and not turn.is_left:
        moved = replace(moved, parked_at=at)  # its last prompt is over: now it waits for its loop
    if after not in TRANSITIONS.get((before, type(event)), ()):
        check(before, event, after)
    usage = state.usage if moved.usage is turn.usage else state.usage + event.usage  # type: ignore[attr-defined]
    return replace(state, turns={**state.turns, name: moved}, usage=usage, seq=seq, at=at)


def with_turn(state: SessionState, event: Event, move: Callable[..., Turn]) -> SessionState:
    """
    Apply an event that does more than change its turn; `evolve` adds the record's seq and time.
    """
    return turn_moved(state, event, move, state.seq, state.at)


def turn_parked(turn: Turn, event: TurnParked) -> Turn:
    if not turn.only_waits and turn.loop != "foreign":
        raise IllegalTransition(turn.phase, event, "something can still be done without a person")
    calls = tuple(
        [
            (
                replace(call, delegate=replace(call.delegate, exists=True))
                if call.delegate is not None
                else call
            )
            for call in turn.calls
        ]
    )
    return replace(turn, parked=True, attempts=0, calls=calls)


def turn_resumed(turn: Turn, event: TurnResumed) -> Turn:
    waits = turn.loop != "foreign" and (turn.waiting or turn.only_waits)
    if turn.parked and (waits or turn.is_half_settled):
        raise IllegalTransition(turn.phase, event, "not all of its answers are in")
    if event.epoch < turn.epoch:
        raise IllegalTransition(turn.phase, event, f"epoch {event.epoch} after {turn.epoch}")
    # A wait does nothing that could have killed the driver, so it is not a crash of this turn.
    more = event.after != "wait"
    return replace(turn, parked=False, epoch=event.epoch, attempts=turn.attempts + more)


def turn_cancelled(turn: Turn, event: TurnCancelled) -> Turn:
    return replace(turn, cancelled_by=event.by, model_call=None, parked=False)


def update_call(
    turn: Turn,
    event: Event,
    call_id: CallId,
    allowed: tuple[CallStatus, ...],
    move: Callable[[Call], Call],
) -> Turn:
    index, call = _find(turn, event, call_id)
    if call.status not in allowed:
        raise IllegalTransition(turn.phase, event, f"the call is {call.status.value}")
    return _with_call(turn, index, move(call))


def _find(turn: Turn, event: Event, call_id: CallId) -> tuple[int, Call]:
    for index, call in enumerate(turn.calls):
        if call.call == call_id:
            return index, call
    raise IllegalTransition(turn.phase, event, "no such call in the open batch")


def _with_call(turn: Turn, index: int, call: Call) -> Turn:
    calls = list(turn.calls)
    calls[index] = call
    return replace(turn, calls=tuple(calls))


def call_allowed(turn: Turn, event: CallAllowed) -> Turn:
    index, call = _find(turn, event, event.call)
    if call.status is not _PROPOSED:
        raise IllegalTransition(turn.phase, event, f"the call is {call.status.value}")
    return _with_call(
        turn,
        index,
        replace(
            call,
            status=_ALLOWED,
            arguments=event.arguments,
            digest=event.digest,
            allowed_by=event.by,
        ),
    )


def approval_answered(turn: Turn, event: ApprovalAnswered) -> Turn:
    def move(call: Call) -> Call:
        approval = call.approval
        if approval is None or approval.asked.approval != event.approval or not approval.is_open:
            raise IllegalTransition(turn.phase, event, "no such open prompt")
        answered = replace(call, approval=replace(approval, answer=event))
        if call.is_asking:
            return answered  # the open call goes on with it
        if event.option == "edit":
            return replace(
                answered, status=S.PROPOSED, arguments=event.arguments, edited_by=event.by
            )
        asked = approval.asked
        if event.option != "deny" and asked.form is not None:
            return replace(answered, status=S.APPROVED)  # allowed by what allowed its first start
        if event.option == "deny" or asked.kind == "question":
            return answered  # its result follows in the same commit
        return replace(answered, status=S.APPROVED, allowed_by=event.approval)

    return update_call(turn, event, event.call, (S.WAITING, S.STARTED), move)


def approval_closed(turn: Turn, event: ApprovalClosed) -> Turn:
    def move(call: Call) -> Call:
        approval = call.approval
        if (
            approval is None
            or approval.asked.approval != event.approval
            or approval.closed_as is not None
            or (call.status is S.STARTED and not call.is_asking)
        ):
            raise IllegalTransition(turn.phase, event, "no such prompt to close")
        return replace(call, approval=replace(approval, closed_as=event.closed_as))

    before = (S.WAITING, S.APPROVED, S.PROPOSED, S.STARTED)
    return update_call(turn, event, event.call, before, move)


def tool_started(turn: Turn, event: ToolStarted) -> Turn:
    index, call = _find(turn, event, event.call)
    if call.status is not _ALLOWED:
        _check_start(turn, event, call)
    if (
        call.allowed_by != event.allowed_by
        or call.digest != event.digest
        or call.run + 1 != event.run
    ):
        raise IllegalTransition(turn.phase, event, "it is not what was allowed")
    started = replace(
        call,
        status=_STARTED,
        run=event.run,
        epoch=event.epoch,
        contract=event.contract,
        process=event.process,
        arguments=event.arguments,
    )
    return _with_call(turn, index, started)


def delegate_started(turn: Turn, event: DelegateStarted) -> Turn:
    index, call = _find(turn, event, event.call)
    if call.status is S.STARTED:
        raise IllegalTransition(turn.phase, event, "it was started as a tool")
    if call.status is not _ALLOWED:
        _check_start(turn, event, call)
    if call.allowed_by != event.allowed_by or call.digest != event.digest:
        raise IllegalTransition(turn.phase, event, "it is not what was allowed")
    child = Delegate(
        turn=turn.id,
        call=call.call,
        agent=event.agent,
        session=event.session,
        instance=event.instance,
        tools=event.tools,
    )
    started = replace(
        call,
        status=S.DELEGATED,
        run=1,
        epoch=event.epoch,
        arguments=event.arguments,
        delegate=child,
    )
    return replace(_with_call(turn, index, started), delegations=turn.delegations + 1)


def _check_start(turn: Turn, event: ToolStarted | DelegateStarted, call: Call) -> None:
    """Check the start of a call that a person approved or that runs again."""
    if call.status not in (S.APPROVED, S.STARTED):
        raise IllegalTransition(turn.phase, event, f"the call is {call.status.value}")
    if call.status is S.STARTED and call.contract == "once":
        raise IllegalTransition(turn.phase, event, "it was started before and must not run twice")
    if call.status is S.STARTED and event.epoch <= call.epoch:
        raise IllegalTransition(turn.phase, event, "it runs already")
    if call.approval is not None and (
        call.approval.answer is None or call.approval.closed_as is not None
    ):
        raise IllegalTransition(turn.phase, event, "its prompt was closed")
    needs_siblings = call.status is S.APPROVED and turn.loop != "foreign"
    if needs_siblings and any(each.status in (S.WAITING, S.PROPOSED) for each in turn.calls):
        raise IllegalTransition(turn.phase, event, "a sibling still needs an answer")


def call_finished(turn: Turn, event: CallFinished) -> Turn:
    index, call = _find(turn, event, event.call)
    runs = call.status is _STARTED or call.status is S.DELEGATED
    if call.status is _FINISHED or call.is_asking:
        why = "its question is open" if call.is_asking else "the call is finished"
        raise IllegalTransition(turn.phase, event, why)
    if (
        not runs
        and event.outcome in _NEEDS_START
        and not (event.outcome == "ok" and _is_answered_question(call))
    ):
        raise IllegalTransition(turn.phase, event, "it never started")
    # A call that waits for a form of its server has started, and does not run now.
    if call.run > 0 and event.outcome in _NEVER_STARTED:
        raise IllegalTransition(
            turn.phase, event, "it started: only its real outcome, or in doubt, can follow"
        )
    finished = replace(
        call,
        status=_FINISHED,
        outcome=event.outcome,
        text=event.text,
        code=event.code,
        result=event.result,
    )
    calls = list(turn.calls)
    calls[index] = finished
    own, tainted = turn.own, turn.tainted
    if all([each.status is _FINISHED for each in calls]):  # noqa: C419  # a list is faster than a generator here
        own = own.extend(
            ResultMessage(
                each.call,
                each.tool,
                each.outcome or "error",
                each.text,
                each.provider_id,
                each.code,
            )
            for each in calls
        )
        # Add taint together with the results, not before: while a batch is open, the binding of its
        # calls must not change.
        tainted = tainted or any([each.run > 0 and taints(each.tool) for each in calls])  # noqa: C419
    # Recovery also records unknown outcomes, and recovery is not a step of an attempt.
    attempts = turn.attempts if event.outcome == "in_doubt" else 1
    return replace(
        turn,
        calls=tuple(calls),
        own=own,
        repeats=_repeats(turn.repeats, finished),
        attempts=attempts,
        tainted=tainted,
    )


def _is_answered_question(call: Call) -> bool:
    approval = call.approval
    return (
        approval is not None
        and approval.asked.kind == "question"
        and approval.asked.form is None
        and approval.answer is not None
        and approval.answer.option != "deny"
    )


def _repeats(before: Repeats, call: Call) -> Repeats:
    if call.outcome in ("cancelled", "superseded") or (call.may_repeat and call.contract == "pure"):
        return before
    if call.code == "repeated":
        return replace(before, count=before.count + 1)
    key = (call.tool, call.arguments or call.made)
    if key == before.key and call.text == before.result:
        return Repeats(key, call.text, before.count + 1)
    return Repeats(key, call.text, 1)
