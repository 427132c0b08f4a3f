"""A turn's own steps: model calls, parking, cancelling, ending."""

from holdfast import limits
from holdfast.errors import Refused
from holdfast.ids import TurnId, call_id
from holdfast.session.authority import LostContext, TurnContext
from holdfast.session.commands import Cancel, EndTurn, FailTurn, ParkTurn, ResumeTurn, StartModelCall, TakeAnswer, TakeFailure
from holdfast.session.decided import NOTHING, Decided
from holdfast.session.events import (
    ApprovalClosed,
    CallFinished,
    CallMade,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    SessionEvent,
    TurnCancelled,
    TurnEnded,
    TurnParked,
    TurnResumed,
)
from holdfast.session.messages import AssistantMessage, ProposedCall, Usage
from holdfast.session.policy import Policy
from holdfast.session.react import runnable_calls
from holdfast.session.state import Call, CallStatus, Phase, SessionState, Turn

S = CallStatus


def start_model_call(state: SessionState, command: StartModelCall) -> Decided:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase is not Phase.READY or turn.loop == "foreign" or turn.answered or turn.failed:
        return NOTHING
    if isinstance(turn.context, LostContext):
        return Decided((_failed(turn, "no_authority", turn.context.reason),))
    if bound := _bound_reached(turn, command.policy):
        return Decided((_failed(turn, bound[0], bound[1]),))
    number = turn.model_calls + 1
    return Decided((ModelCallStarted(turn=turn.turn, number=number, epoch=command.epoch, model=turn.model),), outcome=number)


def _bound_reached(turn: Turn, policy: Policy) -> tuple[str, str] | None:
    if turn.model_calls >= policy.turn_model_calls_max:
        return "turn_model_calls_max", f"the turn made {turn.model_calls} model calls, which is its bound"
    tokens = turn.usage.input_tokens + turn.usage.output_tokens
    if policy.turn_tokens_max is not None and tokens >= policy.turn_tokens_max:
        return "turn_tokens_max", f"the turn used {tokens} tokens; its bound is {policy.turn_tokens_max}"
    if policy.turn_cost_microusd_max is not None and turn.usage.cost_microusd >= policy.turn_cost_microusd_max:
        return "turn_cost_max", f"the turn cost {turn.usage.cost_microusd / 1e6:.4f} USD, which reaches its bound"
    return None


def _failed(turn: Turn, code: str, message: str, hint: str | None = None) -> TurnEnded:
    return TurnEnded(turn=turn.turn, outcome="failed", code=code, message=message, hint=hint)


def _dropped(state: SessionState, turn_id: TurnId, number: int, usage: Usage) -> Decided | None:
    """An answer nobody waits for any more: say so, and why."""
    turn = state.turns.get(turn_id)
    if turn is not None and turn.model_call is not None and turn.model_call.number == number:
        return None
    if turn is None or turn.ended:
        result = state.results.get(turn_id)
        reason = f"the turn is over ({result.outcome if result else 'ended'})"
    elif turn.cancelled_by is not None:
        reason = f"cancelled by {turn.cancelled_by}"
    else:
        reason = "a newer model call took its place"
    return Decided((ModelAnswerDropped(turn=turn_id, number=number, reason=reason, usage=usage),), outcome="dropped")


def take_answer(state: SessionState, command: TakeAnswer) -> Decided:
    answer = command.answer
    if dropped := _dropped(state, command.turn, command.number, answer.usage):
        return dropped
    turn = state.turns[command.turn]
    calls = calls_made(state, turn, command.number, answer.calls)
    answered = ModelAnswered(
        turn=turn.turn,
        number=command.number,
        text=answer.text,
        calls=calls,
        usage=answer.usage,
        blob=answer.blob,
        blob_adapter=answer.blob_adapter,
        line=answer.line,
    )
    if not calls:
        return Decided((answered, TurnEnded(turn=turn.turn, outcome="completed", reply=answer.text)))
    return Decided((answered, *too_many_calls(turn, calls, command.policy)))


def calls_made(state: SessionState, turn: Turn, number: int, calls: tuple[ProposedCall, ...]) -> tuple[CallMade, ...]:
    return tuple(
        CallMade(call=call_id(state.instance, turn.turn, number, index), tool=each.tool, arguments=each.arguments, provider_id=each.provider_id)
        for index, each in enumerate(calls)
    )


def too_many_calls(turn: Turn, calls: tuple[CallMade, ...], policy: Policy) -> tuple[SessionEvent, ...]:
    if len(calls) > limits.CALLS_PER_BATCH_MAX:
        bound, message = "batch_calls_max", f"the model made {len(calls)} calls at once; {limits.CALLS_PER_BATCH_MAX} are the most"
    elif turn.tool_calls + len(calls) > policy.turn_tool_calls_max:
        bound, message = "turn_tool_calls_max", f"the turn would make more than {policy.turn_tool_calls_max} tool calls, which is its bound"
    else:
        return ()
    finished = [CallFinished(turn=turn.turn, call=each.call, outcome="denied", text=f"Not run: {message}.", code=bound) for each in calls]
    return (*finished, _failed(turn, bound, message))


def take_failure(state: SessionState, command: TakeFailure) -> Decided:
    if dropped := _dropped(state, command.turn, command.number, Usage()):
        return dropped
    turn = state.turns[command.turn]
    failed = ModelCallFailed(
        turn=turn.turn, number=command.number, kind=command.kind, message=command.message, final=command.final, line=command.line
    )
    if not command.final:
        return Decided((failed,))
    return Decided((failed, _failed(turn, command.kind, command.message, "send the message again when the cause is gone")))


def park_turn(state: SessionState, command: ParkTurn) -> Decided:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase is not Phase.RUNNING or not turn.waiting or runnable_calls(turn):
        return NOTHING
    if any(call.status is S.STARTED for call in turn.calls):
        return NOTHING
    return Decided((TurnParked(turn=turn.turn),))


def resume_turn(state: SessionState, command: ResumeTurn) -> Decided:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase is not Phase.PARKED or turn.waiting or state.running is not None:
        return NOTHING
    return Decided((TurnResumed(turn=turn.turn, epoch=command.epoch, after="pause"),))


def end_turn(state: SessionState, command: EndTurn) -> Decided:
    turn = state.turns.get(command.turn)
    if turn is None or any(call.status is not S.FINISHED for call in turn.calls):
        return NOTHING
    if turn.phase is Phase.CANCELLING:
        return Decided((_cancelled(turn, turn.cancelled_by or ""),))
    if turn.phase is not Phase.READY:
        return NOTHING
    if turn.failed is not None:
        return Decided((_failed(turn, turn.failed[0], turn.failed[1]),))
    if turn.loop == "foreign":
        return Decided((TurnEnded(turn=turn.turn, outcome="completed", reply=command.reply),))
    if turn.answered:
        last = turn.own.last()
        return Decided((TurnEnded(turn=turn.turn, outcome="completed", reply=last.text if isinstance(last, AssistantMessage) else ""),))
    return NOTHING


def fail_turn(state: SessionState, command: FailTurn) -> Decided:
    turn = state.turns.get(command.turn)
    if turn is None:
        return NOTHING
    return Decided((*settle_calls(turn, "Not run: the turn was ended."), _failed(turn, command.code, command.message, command.hint)))


def settle_calls(turn: Turn, text: str, *, closed_as: str = "cancelled") -> list[SessionEvent]:
    """Give every open call its one result: what started is in doubt, what did not is cancelled. A model call that is out is lost."""
    events: list[SessionEvent] = []
    if turn.model_call is not None:
        events.append(ModelCallLost(turn=turn.turn, number=turn.model_call.number))
    for call in turn.calls:
        if call.status is S.STARTED:
            events.append(in_doubt(turn, call))
        elif call.status is not S.FINISHED:
            events.extend(drop_call(turn, call, text, closed_as=closed_as))
    return events


def in_doubt(turn: Turn, call: Call) -> CallFinished:
    text = f"In doubt: {call.tool} was started and its outcome is unknown. It may or may not have happened; check before trying again."
    return CallFinished(turn=turn.turn, call=call.call, outcome="in_doubt", text=text, code="in_doubt")


def drop_call(turn: Turn, call: Call, text: str, *, closed_as: str = "cancelled") -> list[SessionEvent]:
    """A call that never started: its prompt is closed, its result says why."""
    events: list[SessionEvent] = []
    voided = closed_as == "voided"
    if call.approval is not None and call.approval.closed_as is None:
        events.append(
            ApprovalClosed(
                approval=call.approval.asked.approval, turn=turn.turn, call=call.call, closed_as="voided" if voided else "cancelled", reason=text
            )
        )
    events.append(CallFinished(turn=turn.turn, call=call.call, outcome="voided" if voided else "cancelled", text=text, code=closed_as))
    return events


def cancel(state: SessionState, command: Cancel) -> Decided:
    """Durable at once. What has not started never will; what has ends with its real outcome, and then the turn does."""
    wanted = [turn for name, turn in state.turns.items() if command.turn in (None, name) and turn.cancelled_by is None]
    mine = [turn for turn in wanted if command.may_all or _is_requester(turn, command.by)]
    if wanted and not mine:
        message = f"{command.by} did not ask for what runs here, and may not cancel it"
        return Decided(refusal=Refused(message, code="no_authority", hint="the requester, the operator or an admin may"))
    events: list[SessionEvent] = []
    for turn in mine:
        events.append(TurnCancelled(turn=turn.turn, by=command.by))
        for call in turn.calls:
            if call.status not in (S.STARTED, S.FINISHED):
                events.extend(drop_call(turn, call, f"Not run: cancelled by {command.by}."))
        if not any(call.status is S.STARTED for call in turn.calls):
            events.append(_cancelled(turn, command.by))
    return Decided(tuple(events), outcome=tuple(turn.turn for turn in mine))


def _cancelled(turn: Turn, by: str) -> TurnEnded:
    return TurnEnded(turn=turn.turn, outcome="cancelled", code="cancelled", message=f"cancelled by {by}")


def _is_requester(turn: Turn, person: str) -> bool:
    return isinstance(turn.context, TurnContext) and turn.context.requester == person
