"""
Apply events to a session's state. Pure, total over the events, and the only place where state
changes.

`fold` is for replay: an illegal event means that the journal cannot be believed. `evolve` is for
one step. Equal bytes give equal state. This module routes each event. The changes of one open turn
are in `evolve/turn.py`, the others in the module of this folder that is named after the changed
part.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from msgspec.structs import replace

from holdfast import limits
from holdfast.errors import BrokenChain
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.session.events import (
    AnswerRefused,
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallAllowed,
    CallFinished,
    CallsProposed,
    Compacted,
    DelegateEnded,
    DelegateReported,
    DelegateStarted,
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryPostponed,
    DeliveryQueued,
    DeliverySent,
    Event,
    InputAccepted,
    InputDropped,
    ItemAdded,
    ItemsRemoved,
    JobCancelled,
    JobEnded,
    JobSubmitted,
    LifeCarried,
    MemoryRecalled,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    ModelGiven,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
    SessionBorn,
    SessionEvent,
    SessionRenamed,
    StateKept,
    TailRepaired,
    ToolStarted,
    TurnCancelled,
    TurnCompacted,
    TurnEnded,
    TurnImported,
    TurnParked,
    TurnResumed,
    TurnStarted,
)
from holdfast.session.evolve.approvals import answer_refused, approval_requested, batch_over
from holdfast.session.evolve.inputs import input_accepted, input_dropped
from holdfast.session.evolve.lifecycle import (
    delivery_moved,
    delivery_over,
    life_carried,
    model_given,
    session_born,
    session_renamed,
)
from holdfast.session.evolve.model_calls import (
    calls_proposed,
    memory_recalled,
    model_answered,
    model_call_failed,
    model_call_lost,
    model_call_started,
    state_kept,
    turn_compacted,
)
from holdfast.session.evolve.running_turn import running_moved
from holdfast.session.evolve.turn import (
    approval_answered,
    approval_closed,
    call_allowed,
    call_finished,
    tool_started,
    turn_cancelled,
    turn_moved,
    with_turn,
)
from holdfast.session.evolve.view import compacted, turn_imported
from holdfast.session.features.delegates.evolve import delegate_moved
from holdfast.session.features.jobs.evolve import call_key, job_moved
from holdfast.session.features.reminders.evolve import reminder_moved
from holdfast.session.state import Phase, Recall, SessionState, Turn
from holdfast.session.transitions import IllegalTransition


def initial(session: SessionId, instance: InstanceId) -> SessionState:
    """The state before the first record."""
    return SessionState(session=session, instance=instance)


def fold(state: SessionState, events: Iterable[tuple[int, int, SessionEvent]]) -> SessionState:
    """
    Replay (seq, at, event). An illegal event in a genuine record means that history cannot be
    believed.
    """
    for seq, at, event in events:
        try:
            state = evolve(state, event, seq=seq, at=at)
        except IllegalTransition as exc:
            raise BrokenChain(
                f"record {seq} can't follow the ones before it: {exc}", at_seq=seq
            ) from exc
    return state


def evolve(state: SessionState, event: SessionEvent, *, seq: int, at: int) -> SessionState:
    """Apply one event."""
    at = max(at, state.at)
    move = _STEPS.get(type(event))
    if move is not None and not (type(event) is CallFinished and event.outcome == "in_doubt"):
        return turn_moved(state, event, move, seq, at)
    if type(event) is ModelAnswered and event.line is None:
        return turn_moved(batch_over(state, event.turn), event, model_answered, seq, at)
    return replace(_moved(state, event, seq, at), seq=seq, at=at)


def _moved(state: SessionState, event: SessionEvent, seq: int, at: int) -> SessionState:  # noqa: C901, PLR0911, PLR0912  # one line per event: the list itself is the point
    match event:
        case ModelAnswered():
            return with_turn(
                batch_over(_line_used(state, event, event.line), event.turn), event, model_answered
            )
        case CallFinished():
            return with_turn(_doubt_noted(state, event), event, call_finished)
        case InputAccepted():
            return input_accepted(state, event)
        case TurnStarted() | TurnParked() | TurnResumed() | TurnEnded():
            return running_moved(state, event, seq, at)
        case ApprovalRequested():
            return approval_requested(state, event, seq, at)
        case ModelCallFailed():
            return with_turn(_line_used(state, event, event.line), event, model_call_failed)
        case CallsProposed():
            return with_turn(_batch_over_if_done(state, event.turn), event, calls_proposed)
        case MemoryRecalled():
            return _memory_recalled(state, event)
        case ModelAnswerDropped():
            return replace(state, usage=state.usage + event.usage)
        case DelegateStarted() | DelegateEnded() | DelegateReported():
            return delegate_moved(state, event)
        case JobSubmitted() | JobCancelled() | JobEnded():
            return job_moved(state, event, seq, at)
        case ReminderSet() | ReminderFired() | ReminderCancelled():
            return reminder_moved(state, event, at)
        case DeliveryQueued() | DeliverySent() | DeliveryPostponed():
            return delivery_moved(state, event, at)
        case DeliveryConfirmed() | DeliveryFailed():
            return delivery_over(state, event)
        case AnswerRefused():
            return answer_refused(state, event)
        case InputDropped():
            return input_dropped(state, event, seq)
        case Compacted():
            return compacted(state, event)
        case TurnImported():
            return turn_imported(state, event)
        case ModelGiven():
            return model_given(state, event)
        case SessionRenamed():
            return session_renamed(state, event)
        case SessionBorn():
            return session_born(state, event)
        case LifeCarried():
            return life_carried(state, event)
        case TailRepaired() | ItemAdded() | ItemsRemoved():
            return state
        case ModelCallStarted() | ModelCallLost() | ToolStarted() | CallAllowed():
            return with_turn(state, event, _STEPS[type(event)])
        case ApprovalAnswered() | ApprovalClosed() | TurnCancelled() | TurnCompacted():
            return with_turn(state, event, _STEPS[type(event)])
        case StateKept():
            return with_turn(state, event, _STEPS[type(event)])
        case _:
            assert_never(event)


def _batch_over_if_done(state: SessionState, name: TurnId) -> SessionState:
    """Settle the prompts of a batch that new calls replace. New calls may also join it."""
    turn = state.turns.get(name)
    return batch_over(state, name) if turn is not None and turn.phase is Phase.READY else state


def _memory_recalled(state: SessionState, event: MemoryRecalled) -> SessionState:
    given = Recall(event.turn, tuple(each.memory for each in event.items), event.degraded)
    recalls = (*state.recalls, given)[-limits.MEMORY_RECALLS_SHOWN :]
    return replace(with_turn(state, event, memory_recalled), recalls=recalls)


def _line_used(
    state: SessionState, event: ModelAnswered | ModelCallFailed, line: int | None
) -> SessionState:
    turn = state.turns.get(event.turn)
    if line is None or turn is None:
        return state
    return replace(
        state,
        scripts={**state.scripts, turn.model: max(line + 1, state.scripts.get(turn.model, 0))},
    )


def _doubt_noted(state: SessionState, event: CallFinished) -> SessionState:
    if event.outcome != "in_doubt":
        return state
    call = state.open_call(event.turn, event.call)
    if call is None:
        return state
    return replace(
        state,
        in_doubt=state.in_doubt.add(call_key(call.tool, call.arguments or call.made), call.call),
    )


_STEPS: Mapping[type[Event], Callable[..., Turn]] = {
    CallFinished: call_finished,
    ToolStarted: tool_started,
    CallAllowed: call_allowed,
    ModelCallStarted: model_call_started,
    ModelCallLost: model_call_lost,
    ApprovalAnswered: approval_answered,
    ApprovalClosed: approval_closed,
    StateKept: state_kept,
    TurnCancelled: turn_cancelled,
    TurnCompacted: turn_compacted,
}
"""
Events that only change their turn, which are most records. The lookup avoids the list in `_moved`.
That list has them too, so that the type checker sees every event handled.
"""
