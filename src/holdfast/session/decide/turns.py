"""Decide a turn's own steps: model calls, parking, cancelling, ending."""

from typing import Literal

from holdfast import limits
from holdfast.errors import Refused
from holdfast.ids import CallId, TurnId, call_id
from holdfast.session.authority.context import LostContext
from holdfast.session.authority.policy import Policy
from holdfast.session.call_results import owed_result, superseding
from holdfast.session.commands import (
    Cancel,
    EndTurn,
    FailTurn,
    ParkTurn,
    ResumeTurn,
    StartModelCall,
    TakeAnswer,
    TakeFailure,
)
from holdfast.session.decide.decision import NOTHING, Decided
from holdfast.session.events import (
    ApprovalClosed,
    CallFinished,
    CallMade,
    InputDropped,
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
from holdfast.session.state import Call, CallStatus, Input, Phase, SessionState, Turn
from holdfast.session.turn_ids import find_turn
from holdfast.session.view.messages import AssistantMessage, ProposedCall, Usage

S = CallStatus


def start_model_call(state: SessionState, command: StartModelCall) -> Decided[int | None]:
    turn = state.turns.get(command.turn)
    if (
        turn is None
        or turn.phase is not Phase.READY
        or turn.loop == "foreign"
        or turn.answered
        or turn.failed
    ):
        return NOTHING
    if isinstance(turn.context, LostContext):
        return Decided((_failed(turn, "no_authority", turn.context.reason),))
    if bound := _bound_reached(turn, command.policy):
        return Decided((_failed(turn, bound[0], bound[1]),))
    number = turn.model_calls + 1
    return Decided(
        (ModelCallStarted(turn=turn.turn, number=number, epoch=command.epoch, model=turn.model),),
        outcome=number,
    )


def _bound_reached(turn: Turn, policy: Policy) -> tuple[str, str] | None:
    if over := calls_bound(turn, policy):
        return over
    if turn.model_calls >= policy.turn_model_calls_max:
        return (
            "turn_model_calls_max",
            f"the turn made {turn.model_calls} model calls, which is its bound",
        )
    tokens = turn.usage.input_tokens + turn.usage.output_tokens
    if policy.turn_tokens_max is not None and tokens >= policy.turn_tokens_max:
        return (
            "turn_tokens_max",
            f"the turn used {tokens} tokens; its bound is {policy.turn_tokens_max}",
        )
    if (
        policy.turn_cost_microusd_max is not None
        and turn.usage.cost_microusd >= policy.turn_cost_microusd_max
    ):
        return (
            "turn_cost_max",
            f"the turn cost {turn.usage.cost_microusd / 1e6:.4f} USD, which reaches its bound",
        )
    return None


def _failed(turn: Turn, code: str, message: str, hint: str | None = None) -> TurnEnded:
    return TurnEnded(turn=turn.turn, outcome="failed", code=code, message=message, hint=hint)


def _dropped(
    state: SessionState, turn_id: TurnId, number: int, usage: Usage
) -> Decided[Literal["dropped"]] | None:
    """Record that an answer is no longer wanted, and why. Return None if it is wanted."""
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
    return Decided(
        (ModelAnswerDropped(turn=turn_id, number=number, reason=reason, usage=usage),),
        outcome="dropped",
    )


def take_answer(state: SessionState, command: TakeAnswer) -> Decided[Literal["dropped"] | None]:
    answer = command.answer
    if dropped := _dropped(state, command.turn, command.number, answer.usage):
        return dropped
    turn = state.turns[command.turn]
    calls = calls_of_reply(state, turn, command.number, answer.calls)
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
        return Decided(
            (answered, TurnEnded(turn=turn.turn, outcome="completed", reply=answer.text))
        )
    return Decided((answered, *too_many_calls(turn, calls, command.policy)))


def calls_of_reply(
    state: SessionState, turn: Turn, number: int, calls: tuple[ProposedCall, ...]
) -> tuple[CallMade, ...]:
    return tuple(
        CallMade(
            call=call_id(state.instance, turn.turn, number, index),
            tool=each.tool,
            arguments=each.arguments,
            provider_id=each.provider_id,
        )
        for index, each in enumerate(calls)
    )


def calls_bound(turn: Turn, policy: Policy) -> tuple[str, str] | None:
    """Return the bound that the calls of a turn have passed, or None. Calls already made count."""
    return _calls_bound(len(turn.calls), turn.tool_calls, policy) or repeats_bound(turn)


def repeats_bound(turn: Turn) -> tuple[str, str] | None:
    if turn.repeats.count <= limits.EQUAL_CALLS_IN_A_ROW:
        return None
    return (
        "repeating",
        (
            "the model made the same call with the same arguments and got the same result, again and "
            "again"
        ),
    )


def _calls_bound(batch: int, of_turn: int, policy: Policy) -> tuple[str, str] | None:
    if batch > limits.CALLS_PER_BATCH_MAX:
        return (
            "batch_calls_max",
            f"the model made {batch} calls at once; {limits.CALLS_PER_BATCH_MAX} are the most",
        )
    if of_turn > policy.turn_tool_calls_max:
        return (
            "turn_tool_calls_max",
            (
                f"the turn would make more than {policy.turn_tool_calls_max} tool calls, which is its "
                "bound"
            ),
        )
    return None


def too_many_calls(
    turn: Turn, calls: tuple[CallMade, ...], policy: Policy
) -> tuple[SessionEvent, ...]:
    over = _calls_bound(len(calls), turn.tool_calls + len(calls), policy)
    if over is None:
        return ()
    bound, message = over
    finished = [
        CallFinished(
            turn=turn.turn,
            call=each.call,
            outcome="denied",
            text=f"Not run: {message}.",
            code=bound,
        )
        for each in calls
    ]
    return (*finished, _failed(turn, bound, message))


def take_failure(state: SessionState, command: TakeFailure) -> Decided[Literal["dropped"] | None]:
    if dropped := _dropped(state, command.turn, command.number, Usage()):
        return dropped
    turn = state.turns[command.turn]
    # A second summary does not help against a second overflow. No failure is retried forever,
    # whichever driver tries.
    final = (
        command.final
        or turn.model_failures >= limits.MODEL_RETRIES_MAX
        or (command.kind == "overflow" and turn.overflows > 0)
    )
    failed = ModelCallFailed(
        turn=turn.turn,
        number=command.number,
        kind=command.kind,
        message=command.message,
        final=final,
        line=command.line,
    )
    if not final:
        return Decided((failed,))
    return Decided(
        (
            failed,
            _failed(
                turn, command.kind, command.message, "send the message again when the cause is gone"
            ),
        )
    )


def park_turn(state: SessionState, command: ParkTurn) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if (
        turn is None
        or turn.phase is not Phase.RUNNING
        or not turn.only_waits
        or turn.is_half_settled
    ):
        return NOTHING
    if any(
        call.delegate is not None and not call.delegate.born and call.call not in command.born
        for call in turn.delegated
    ):
        return NOTHING
    return Decided((TurnParked(turn=turn.turn),))


def resume_turn(state: SessionState, command: ResumeTurn) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if (
        turn is None
        or turn.phase is not Phase.PARKED
        or turn.waiting
        or turn.is_half_settled
        or turn.only_waits
        or state.running is not None
    ):
        return NOTHING
    return Decided((TurnResumed(turn=turn.turn, epoch=command.epoch, after="pause"),))


def end_turn(state: SessionState, command: EndTurn) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if turn is None:
        return NOTHING
    if turn.cancelled_by is not None:
        return (
            NOTHING
            if any(turn.is_out(call) for call in turn.calls)
            else Decided(tuple(cancelling(turn, turn.cancelled_by)))
        )
    if turn.superseded_by is not None:
        return Decided(tuple(superseding(turn, turn.superseded_by)))
    if turn.is_half_settled:
        return Decided(
            tuple(owed for call in turn.calls if (owed := owed_result(turn, call)) is not None)
        )
    if turn.phase is not Phase.READY:
        return NOTHING
    if turn.failed is not None:
        return Decided((_failed(turn, turn.failed[0], turn.failed[1]),))
    if turn.loop == "foreign":
        return Decided((TurnEnded(turn=turn.turn, outcome="completed", reply=command.reply),))
    if turn.answered:
        last = turn.own.last()
        return Decided(
            (
                TurnEnded(
                    turn=turn.turn,
                    outcome="completed",
                    reply=last.text if isinstance(last, AssistantMessage) else "",
                ),
            )
        )
    return NOTHING


def fail_turn(state: SessionState, command: FailTurn) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if turn is None:
        return NOTHING
    return Decided(
        (
            *settle_calls(turn, "Not run: the turn was ended."),
            _failed(turn, command.code, command.message, command.hint),
        )
    )


DroppedAs = Literal["cancelled", "voided"]
"""How a call that never started ends, and how its prompt is closed."""


def settle_calls(
    turn: Turn, text: str, *, dropped_as: DroppedAs = "cancelled"
) -> list[SessionEvent]:
    """
    Give every open call its one result: a started call is in doubt, the others are cancelled. A
    model call in flight is lost.
    """
    events: list[SessionEvent] = []
    if turn.model_call is not None:
        events.append(ModelCallLost(turn=turn.turn, number=turn.model_call.number))
    for call in turn.calls:
        if (owed := owed_result(turn, call)) is not None:
            events.append(owed)
        elif call.status in (S.STARTED, S.DELEGATED):
            events.append(in_doubt(turn, call))
        elif call.status is not S.FINISHED:
            events.extend(drop_call(turn, call, text, dropped_as))
    return events


def in_doubt(turn: Turn, call: Call) -> CallFinished:
    text = f"In doubt: {call.tool} was started and its outcome is unknown. It may or may not have happened; check before trying again."
    return CallFinished(
        turn=turn.turn, call=call.call, outcome="in_doubt", text=text, code="in_doubt"
    )


def drop_call(
    turn: Turn, call: Call, text: str, dropped_as: DroppedAs = "cancelled"
) -> list[SessionEvent]:
    """Close the prompt of a call that never started, and record the reason as its result."""
    events: list[SessionEvent] = []
    if call.approval is not None and call.approval.closed_as is None:
        approval = call.approval.asked.approval
        events.append(
            ApprovalClosed(
                approval=approval, turn=turn.turn, call=call.call, closed_as=dropped_as, reason=text
            )
        )
    events.append(
        CallFinished(turn=turn.turn, call=call.call, outcome=dropped_as, text=text, code=dropped_as)
    )
    return events


def cancel(state: SessionState, command: Cancel) -> Decided[tuple[TurnId, ...] | None]:
    """
    Cancel turns, durably at once. A call that has not started never will. A started call ends with
    its real outcome, and then the turn ends.
    """
    queued = [each for each in state.queued if each.turn == command.turn]
    if queued:
        return _not_begun(queued[0], command)
    asked_for = None if command.turn is None else find_turn(state, command.turn)
    wanted = [turn for turn in state.turns.values() if command.turn is None or turn is asked_for]
    wanted = [turn for turn in wanted if turn.cancelled_by is None and turn.superseded_by is None]
    mine = [turn for turn in wanted if command.may_all or turn.context.requester == command.by]
    if wanted and not mine:
        return _may_not_cancel(command)
    events: list[SessionEvent] = []
    for turn in mine:
        events.append(TurnCancelled(turn=turn.turn, by=command.by))
        events.extend(cancelling(turn, command.by))
    return Decided(tuple(events), outcome=tuple(turn.turn for turn in mine))


def cancelling(turn: Turn, by: str, *, ended: CallId | None = None) -> list[SessionEvent]:
    """
    Return the events that follow a cancel: results for calls that never started, and the end once
    no call is running. `ended` is a call that just finished.
    """
    events: list[SessionEvent] = []
    for call in turn.calls:
        if call.status is S.FINISHED or call.call == ended or turn.is_out(call):
            continue
        if (owed := owed_result(turn, call)) is not None:
            events.append(owed)
        elif call.status is S.STARTED:
            events.append(in_doubt(turn, call))
        else:
            events.extend(drop_call(turn, call, f"Not run: cancelled by {by}."))
    if not any(turn.is_out(call) and call.call != ended for call in turn.calls):
        events.append(
            TurnEnded(
                turn=turn.turn, outcome="cancelled", code="cancelled", message=f"cancelled by {by}"
            )
        )
    return events


def _not_begun(queued: Input, command: Cancel) -> Decided[tuple[TurnId, ...] | None]:
    """Drop a message that still waits in the queue. Its turn never begins."""
    if queued.context.requester != command.by and not command.may_all:
        return _may_not_cancel(command)
    return Decided(
        (InputDropped(input=queued.input, reason=f"cancelled by {command.by}"),),
        outcome=(queued.turn,),
    )


def _may_not_cancel(command: Cancel) -> Decided[tuple[TurnId, ...] | None]:
    message = f"{command.by} did not ask for what runs here, and may not cancel it"
    return Decided(
        refusal=Refused(
            message, code="no_authority", hint="the requester, the operator or an admin may"
        )
    )
