"""
Apply events to a session's delegates, and to a session that is a delegate's. Pure; `evolve/fold.py`
routes the events here.

Once a delegate has ended, its usage and its calls in doubt count for the parent too. An equal call
in the parent then asks.
"""

from msgspec.structs import replace

from holdfast.session.events import DelegateEnded, DelegateReported, DelegateStarted
from holdfast.session.evolve.turn import S, delegate_started, with_turn
from holdfast.session.state import SessionState
from holdfast.session.transitions import IllegalTransition


def delegate_moved(
    state: SessionState, event: DelegateStarted | DelegateEnded | DelegateReported
) -> SessionState:
    match event:
        case DelegateStarted():
            return _started(state, event)
        case DelegateEnded():
            return _ended(state, event)
        case DelegateReported():
            return _reported(state, event)


def _started(state: SessionState, event: DelegateStarted) -> SessionState:
    state = with_turn(state, event, delegate_started)
    call = state.open_call(event.turn, event.call)
    if call is None or call.delegate is None:
        raise IllegalTransition(None, event, "no such call")
    return replace(state, delegates={**state.delegates, event.call: call.delegate})


def _ended(state: SessionState, event: DelegateEnded) -> SessionState:
    child = state.delegates.get(event.call)
    call = state.open_call(event.turn, event.call)
    if child is None or (call is not None and call.status is S.DELEGATED):
        raise IllegalTransition(None, event, "no such delegate, or its call has no result yet")
    in_doubt = state.in_doubt
    for key in event.doubts:
        in_doubt = in_doubt.add(key, event.call)
    turns, turn = state.turns, state.turns.get(event.turn)
    if turn is not None:
        turns = {
            **turns,
            turn.id: replace(
                turn, usage=turn.usage + event.usage, prompts=turn.prompts + event.prompts
            ),
        }
    return replace(
        state,
        turns=turns,
        usage=state.usage + event.usage,
        in_doubt=in_doubt,
        delegates={name: each for name, each in state.delegates.items() if name != event.call},
        delegates_ended=state.delegates_ended.add(
            event.call, replace(child, exists=True, ended=event.outcome, prompts=event.prompts)
        ),
    )


def _reported(state: SessionState, event: DelegateReported) -> SessionState:
    if state.reported or (state.parent is None and not state.carrying):
        raise IllegalTransition(None, event, "there is nobody to report to")
    return replace(state, reported=True)
