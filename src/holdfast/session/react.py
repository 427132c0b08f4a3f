"""
Compute the work that is owed, from the state alone. Used after every append and, unchanged, after a
crash.

Every phase has a listed next step. No phase hangs, and no owed work is forgotten (T7). A session
owes nothing only when it is idle, parked on a person, or driven from outside.
"""

from holdfast import limits
from holdfast.ids import turn_id
from holdfast.session.effects import (
    AwaitModel,
    AwaitTool,
    BeginTurn,
    CallModel,
    CreateDelegate,
    Deliver,
    Finish,
    LookAtCalls,
    Park,
    ReportJob,
    ReportToParent,
    Resume,
    RunTools,
    SessionEffect,
    StopDelegate,
)
from holdfast.session.state import Call, CallStatus, Delegate, Delivery, Phase, SessionState, Turn

S = CallStatus


def react(state: SessionState) -> tuple[SessionEffect, ...]:
    """Return the effects that are owed, in the order in which to perform them."""
    if state.carrying:
        return ()  # work of an earlier instance is never owed
    owed: list[SessionEffect] = []
    running = state.turns.get(state.running) if state.running is not None else None
    if running is not None:
        owed += _of_turn(running)
    for turn in state.turns.values():
        if turn is not running and (turn.phase is Phase.CANCELLING or turn.is_half_settled):
            owed += _of_turn(turn)
    # A running job needs no work. An ended one is reported as soon as the queue has room.
    if state.jobs and len(state.queued) < limits.QUEUED_INPUTS_MAX:
        owed += [ReportJob(job.job) for job in state.jobs.values() if job.ended is not None]
    if running is None:
        owed += _next_turn(state)
    if state.delegates:
        owed += [
            StopDelegate(each.call)
            for each in state.delegates.values()
            if not is_wanted(state, each)
        ]
    if state.parent is not None and owes_report(state):
        owed.append(ReportToParent())
    if state.deliveries:
        owed += [Deliver(each.delivery) for each in state.deliveries.values() if not each.sent]
    return tuple(owed)


def is_wanted(state: SessionState, delegate: Delegate) -> bool:
    """
    Check that a call still waits for that delegate's result, and that the request was not cancelled
    or replaced.
    """
    turn, call = state.turns.get(delegate.turn), state.open_call(delegate.turn, delegate.call)
    if (
        turn is None
        or call is None
        or turn.cancelled_by is not None
        or turn.superseded_by is not None
    ):
        return False
    return (
        call.status is S.DELEGATED
        and call.delegate is not None
        and call.delegate.instance == delegate.instance
    )


def owes_report(state: SessionState) -> bool:
    """
    True if the report to the parent is owed. A delegate's session has one request, its first. Once
    that is over, the parent must know.
    """
    return state.parent is not None and not state.reported and FIRST_TURN in state.results


FIRST_TURN = turn_id(1)


def unsettled(state: SessionState) -> tuple[Delivery, ...]:
    """
    Return deliveries that were sent and not confirmed: in flight for the driver that sent them, in
    doubt for the next driver.
    """
    return tuple([each for each in state.deliveries.values() if each.sent])


def _next_turn(state: SessionState) -> tuple[SessionEffect, ...]:
    """Resume answered requests before starting new ones: their requesters have waited longer."""
    for turn in state.turns.values():
        if turn.may_go_on:
            return (Resume(turn.id),)
    if state.queued:
        return (BeginTurn(),)
    return ()


def _of_turn(turn: Turn) -> tuple[SessionEffect, ...]:
    if turn.is_half_settled and turn.phase is not Phase.CANCELLING:
        # The message that replaced this turn does not wait for the turn's delegates. The turn's end
        # does: it is recorded after theirs.
        stopping = turn.delegated and all(
            call.status in (S.DELEGATED, S.FINISHED) for call in turn.calls
        )
        return _in_flight(turn) if stopping else (Finish(turn.id), *_in_flight(turn))
    match turn.phase:
        case Phase.READY:
            return _when_ready(turn)
        case Phase.CALLING_MODEL:
            return (
                (AwaitModel(turn.id, turn.model_call.number, turn.model_call.epoch),)
                if turn.model_call
                else ()
            )
        case Phase.DECIDING:
            in_flight = _in_flight(turn)
            if turn.loop == "foreign":
                return in_flight
            proposed = tuple(call.call for call in turn.calls if call.status is S.PROPOSED)
            return (LookAtCalls(turn.id, proposed), *in_flight)
        case Phase.RUNNING:
            return _when_running(turn)
        case Phase.CANCELLING:
            out = tuple(
                AwaitTool(turn.id, call.call, call.epoch)
                for call in turn.calls
                if call.status is S.STARTED and turn.is_out(call)
            )
            return out if out or turn.delegated else (Finish(turn.id),)
        case Phase.PARKED | Phase.ENDED:
            return ()


def _when_ready(turn: Turn) -> tuple[SessionEffect, ...]:
    if turn.loop == "foreign":
        return ()
    if turn.answered or turn.failed is not None:
        return (Finish(turn.id),)
    return (CallModel(turn.id),)


def _when_running(turn: Turn) -> tuple[SessionEffect, ...]:
    in_flight = _in_flight(turn)
    runnable = runnable_calls(turn)
    if turn.loop == "foreign":
        # A call that hosts a nested agent waits with the agent's own calls.
        busy = any(call.status is S.STARTED and not turn.hosts(call) for call in turn.calls)
        return in_flight if not turn.waiting or busy or runnable else (Park(turn.id),)
    creations = tuple(
        CreateDelegate(turn.id, call.call) for call in turn.calls if _may_not_exist(call)
    )
    if runnable:
        return (RunTools(turn.id, tuple(call.call for call in runnable)), *in_flight, *creations)
    return (*creations, *(in_flight or (Park(turn.id),)))


def _may_not_exist(call: Call) -> bool:
    return call.status is S.DELEGATED and call.delegate is not None and not call.delegate.exists


def runnable_calls(turn: Turn) -> tuple[Call, ...]:
    """
    Return calls that may start: allowed ones at once, approved ones when no sibling call waits for
    an answer any more. An external loop starts each by itself.
    """
    needs_siblings = turn.waiting and turn.loop != "foreign"
    startable = {S.ALLOWED} if needs_siblings else {S.ALLOWED, S.APPROVED}
    return tuple([call for call in turn.calls if call.status in startable])


def _in_flight(turn: Turn) -> tuple[SessionEffect, ...]:
    return tuple(
        [
            AwaitTool(turn.id, call.call, call.epoch)
            for call in turn.calls
            if call.status is S.STARTED and call.job is None
        ]
    )
