"""Decide a turn's own steps: model calls, parking, cancelling, ending."""

from typing import Literal

from holdfast import limits
from holdfast.errors import Refused
from holdfast.ids import CallId, TurnId, call_id
from holdfast.session.authority.context import LostContext
from holdfast.session.authority.policy import Policy
from holdfast.session.call_results import (
    lost_call,
    owed_result,
    question_closed,
    superseding,
    unfinished,
)
from holdfast.session.commands import (
    Cancel,
    EndTurn,
    FailTurn,
    KeepPartialAnswer,
    ParkTurn,
    ResumeTurn,
    StartModelCall,
    TakeAnswer,
)
from holdfast.session.decide.decision import NOTHING, Decided
from holdfast.session.events import (
    ApprovalClosed,
    CallFinished,
    CallMade,
    InputDropped,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallLost,
    ModelCallStarted,
    SessionEvent,
    TurnCancelled,
    TurnEnded,
    TurnParked,
    TurnResumed,
)
from holdfast.session.state import Call, CallStatus, Input, Phase, SessionState, Turn
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
        return Decided((failed_end(turn, "no_authority", turn.context.reason),))
    if bound := model_bound_reached(turn, command.policy):
        return Decided((failed_end(turn, bound[0], bound[1]),))
    number = turn.model_calls + 1
    return Decided(
        (ModelCallStarted(turn=turn.id, number=number, epoch=command.epoch, model=turn.model),),
        outcome=number,
    )


def model_bound_reached(turn: Turn, policy: Policy) -> tuple[str, str] | None:
    if over := calls_bound(turn, policy):
        return over
    made = turn.model_calls - turn.failed_calls  # an outage does not use up the turn's own calls
    if made >= policy.turn_model_calls_max:
        return ("turn_model_calls_max", f"the turn made {made} model calls, which is its bound")
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


def failed_end(turn: Turn, code: str, message: str, hint: str | None = None) -> TurnEnded:
    return TurnEnded(turn=turn.id, outcome="failed", code=code, message=message, hint=hint)


def drop_late_answer(
    state: SessionState, turn_id: TurnId, number: int, usage: Usage, text: str = ""
) -> Decided[Literal["dropped"]] | None:
    """
    Record that an answer is no longer wanted, and why. Return None if it is wanted. The text of a
    cancelled turn is kept: people saw it. Any other answer was replaced.
    """
    turn = state.turns.get(turn_id)
    if turn is not None and turn.model_call is not None and turn.model_call.number == number:
        return None
    result = state.results.get(turn_id)
    stopped = turn.cancelled_by is not None if turn else result and result.outcome == "cancelled"
    if turn is None or turn.ended:
        reason = f"the turn is over ({result.outcome if result else 'ended'})"
    elif turn.cancelled_by is not None:
        reason = f"stopped by {turn.cancelled_by}"
    else:
        reason = "a newer model call took its place"
    dropped = ModelAnswerDropped(
        turn=turn_id, number=number, reason=reason, usage=usage, text=text if stopped else ""
    )
    return Decided((dropped,), outcome="dropped")


def take_answer(state: SessionState, command: TakeAnswer) -> Decided[Literal["dropped"] | None]:
    answer = command.answer
    if dropped := drop_late_answer(state, command.turn, command.number, answer.usage, answer.text):
        return dropped
    turn = state.turns[command.turn]
    calls = calls_of_reply(state, turn, command.number, answer.calls)
    answered = ModelAnswered(
        turn=turn.id,
        number=command.number,
        text=answer.text,
        calls=calls,
        usage=answer.usage,
        blob=answer.blob,
        blob_adapter=answer.blob_adapter,
        line=answer.line,
    )
    if not calls:
        return Decided((answered, TurnEnded(turn=turn.id, outcome="completed", reply=answer.text)))
    return Decided((answered, *too_many_calls(turn, calls, command.policy)))


def keep_partial_answer(
    state: SessionState, command: KeepPartialAnswer
) -> Decided[Literal["dropped"] | None]:
    dropped = drop_late_answer(state, command.turn, command.number, Usage(), command.text)
    return dropped or NOTHING


def calls_of_reply(
    state: SessionState, turn: Turn, number: int, calls: tuple[ProposedCall, ...]
) -> tuple[CallMade, ...]:
    return tuple(
        CallMade(
            call=call_id(state.instance, turn.id, number, index),
            tool=each.tool,
            arguments=each.arguments,
            provider_id=each.provider_id,
            parent=each.parent,
            path=each.path,
            may_repeat=each.may_repeat,
        )
        for index, each in enumerate(calls)
    )


def calls_bound(turn: Turn, policy: Policy) -> tuple[str, str] | None:
    """Return the bound that the calls of a turn have passed, or None. Calls already made count."""
    # In an external loop calls join an open batch, so that its size says nothing.
    batch = len(turn.calls) if turn.loop == "ours" else 0
    return _calls_bound(batch, turn.tool_calls, policy) or repeats_bound(turn)


def repeats_bound(turn: Turn) -> tuple[str, str] | None:
    if turn.repeats.count <= limits.EQUAL_CALLS_IN_A_ROW:
        return None
    return (
        "repeating",
        (
            "the model made the same call with the same arguments and got the same result, again"
            " and again"
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
                f"the turn would make more than {policy.turn_tool_calls_max} tool calls, which is"
                " its bound"
            ),
        )
    return None


def too_many_calls(
    turn: Turn, calls: tuple[CallMade, ...], policy: Policy
) -> tuple[SessionEvent, ...]:
    over = _calls_bound(len(calls), turn.tool_calls + len(calls), policy)
    if over is None:
        return ()
    return not_run(turn, calls, over)


def not_run(
    turn: Turn, calls: tuple[CallMade, ...], over: tuple[str, str]
) -> tuple[SessionEvent, ...]:
    """End a turn that has passed a bound, with a result for each call that was just made."""
    bound, message = over
    finished = [
        CallFinished(
            turn=turn.id,
            call=each.call,
            outcome="denied",
            text=f"Not run: {message}.",
            code=bound,
        )
        for each in calls
    ]
    return (*finished, failed_end(turn, bound, message))


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
        call.delegate is not None and not call.delegate.exists and call.call not in command.existing
        for call in turn.delegated
    ):
        return NOTHING
    return Decided((TurnParked(turn=turn.id),))


def resume_turn(state: SessionState, command: ResumeTurn) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if (
        turn is None
        or turn.phase is not Phase.PARKED
        or turn.is_half_settled
        or state.running is not None
        or (turn.loop != "foreign" and (turn.waiting or turn.only_waits))
    ):
        return NOTHING
    return Decided((TurnResumed(turn=turn.id, epoch=command.epoch, after="pause"),))


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
        failed = turn.failed
        return Decided((failed_end(turn, failed.kind, failed.message, failed.hint),))
    if turn.loop == "foreign":
        return Decided((TurnEnded(turn=turn.id, outcome="completed", reply=command.reply),))
    if turn.answered:
        last = turn.own.last()
        return Decided(
            (
                TurnEnded(
                    turn=turn.id,
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
            failed_end(turn, command.code, command.message, command.hint),
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
        events.append(ModelCallLost(turn=turn.id, number=turn.model_call.number))
    for call in turn.calls:
        if (owed := owed_result(turn, call)) is not None:
            events.append(owed)
        elif call.status in (S.STARTED, S.DELEGATED):
            events.extend(lost_call(turn, call))
        elif call.status is not S.FINISHED:
            events.extend(drop_call(turn, call, text, dropped_as))
    return events


def drop_call(
    turn: Turn, call: Call, text: str, dropped_as: DroppedAs = "cancelled"
) -> list[SessionEvent]:
    """
    Close the prompt of a call that does not run, and record the reason as its result. A call whose
    server waits for a form has started, and ends as not finished.
    """
    events: list[SessionEvent] = []
    if call.approval is not None and call.approval.closed_as is None:
        approval = call.approval.asked.approval
        events.append(
            ApprovalClosed(
                approval=approval, turn=turn.id, call=call.call, closed_as=dropped_as, reason=text
            )
        )
    if call.run:
        why = text.removeprefix("Not run: ").removesuffix(".")
        events.append(unfinished(turn.id, call, why, dropped_as))
        return events
    events.append(
        CallFinished(turn=turn.id, call=call.call, outcome=dropped_as, text=text, code=dropped_as)
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
    asked_for = None if command.turn is None else state.find_turn(command.turn)
    wanted = [turn for turn in state.turns.values() if command.turn is None or turn is asked_for]
    wanted = [turn for turn in wanted if turn.cancelled_by is None and turn.superseded_by is None]
    mine = [turn for turn in wanted if command.may_all or turn.context.requester == command.by]
    if wanted and not mine:
        return _may_not_cancel(command)
    events: list[SessionEvent] = []
    for turn in mine:
        events.append(TurnCancelled(turn=turn.id, by=command.by))
        events.extend(cancelling(turn, command.by))
    return Decided(tuple(events), outcome=tuple(turn.id for turn in mine))


def cancelling(turn: Turn, by: str, *, ended: CallId | None = None) -> list[SessionEvent]:
    """
    Return the events that follow a cancel: results for calls that never started, and the end once
    no call is running. `ended` is a call that just finished.
    """
    events: list[SessionEvent] = []
    for call in turn.calls:
        if call.status is S.FINISHED or call.call == ended:
            continue
        if turn.is_out(call):
            events.extend(question_closed(turn, call, f"it was cancelled by {by}"))
            continue
        if (owed := owed_result(turn, call)) is not None:
            events.append(owed)
        elif call.status is S.STARTED:
            events.extend(lost_call(turn, call))
        else:
            events.extend(drop_call(turn, call, f"Not run: stopped by {by}."))
    if not any(turn.is_out(call) and call.call != ended for call in turn.calls):
        events.append(
            TurnEnded(
                turn=turn.id, outcome="cancelled", code="cancelled", message=f"stopped by {by}"
            )
        )
    return events


def _not_begun(queued: Input, command: Cancel) -> Decided[tuple[TurnId, ...] | None]:
    """Drop a message that still waits in the queue. Its turn never begins."""
    if queued.context.requester != command.by and not command.may_all:
        return _may_not_cancel(command)
    return Decided(
        (InputDropped(input=queued.input, reason=f"stopped by {command.by}"),),
        outcome=(queued.turn,),
    )


def _may_not_cancel(command: Cancel) -> Decided[tuple[TurnId, ...] | None]:
    message = f"{command.by} did not ask for what runs here, and may not cancel it"
    return Decided(
        refusal=Refused(
            message, code="no_authority", hint="the requester, the operator or an admin may"
        )
    )
