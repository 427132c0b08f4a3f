"""
The promises that hold in every state and every view, and the effects that a state permits,
which a crash must not widen (A3).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.ids import CallId, TurnId
from holdfast.session.authority.context import LostContext
from holdfast.session.commands import AnswerApproval, SessionCommand
from holdfast.session.decide.commit import decide
from holdfast.session.effects import AwaitModel, AwaitTool
from holdfast.session.react import react
from holdfast.session.state import CallStatus, Phase, SessionState
from holdfast.session.view.build import shared_messages, view_of
from holdfast.session.view.messages import AssistantMessage, Message, ResultMessage


class PromiseBroken(AssertionError):
    """Names the promise and the violation."""


def hold(letter: str, holds: object, what: str) -> None:
    if not holds:
        raise PromiseBroken(f"{letter}: {what}")


def check_state(state: SessionState) -> None:
    """Check the invariants of every state."""
    moving = [
        turn.id
        for turn in state.turns.values()
        if turn.phase not in (Phase.PARKED, Phase.CANCELLING)
    ]
    hold("T4", len(moving) <= 1, f"several turns run: {moving}")
    hold("T4", not moving or state.running == moving[0], "a turn runs that is not the running one")
    for approval, (name, call_id, _) in state.approvals.items():
        call = state.open_call(name, call_id)
        hold(
            "P7",
            call is not None
            and call.approval is not None
            and call.approval.asked.approval == approval,
            f"{approval} belongs to no open call",
        )
    for turn in state.turns.values():
        for call in turn.waiting:
            hold(
                "A6",
                call.approval is not None and call.approval.asked.may_answer,
                "an open prompt that nobody may answer",
            )
        if turn.phase in (Phase.READY, Phase.CALLING_MODEL):
            check_view(view_of(turn))
    _check_something_is_owed(state)


def _check_something_is_owed(state: SessionState) -> None:
    """
    T7: nothing is owed only when idle, parked on a person or a delegate, or driven externally.
    """
    running = state.turns.get(state.running) if state.running is not None else None
    if react(state) or state.carrying or (running is not None and running.loop == "foreign"):
        return
    for turn in state.turns.values():
        hold(
            "T7",
            turn.loop == "foreign" or (turn.phase is Phase.PARKED and turn.only_waits),
            f"{turn.id} hangs in {turn.phase.value}",
        )
    hold("T7", not state.queued, "messages wait, and nothing is owed")


def check_view(messages: Iterable[Message]) -> None:
    """T5: every call has exactly one result, in a contiguous run after the call."""
    owed: list[CallId] = []
    for message in messages:
        match message:
            case ResultMessage(call=call):
                hold(
                    "T5",
                    owed and owed.pop(0) == call,
                    f"the result of {call} is not where it belongs",
                )
            case AssistantMessage(calls=calls):
                hold("T5", not owed, f"no result for {owed}")
                owed = [each.call for each in calls]
            case _:
                hold("T5", not owed, f"no result for {owed}")
    hold("T5", not owed, f"no result for {owed}")


def check_shared_view(state: SessionState) -> None:
    check_view(shared_messages(state.view))


def permitted(
    state: SessionState, starts: Mapping[CallId, SessionCommand], people: Iterable[str], *, now: int
) -> dict[str, Any]:
    """
    Return the possible next steps: owed effects except those in flight, the result of each answer,
    and the result of each start (A3).
    """
    found: dict[str, Any] = {
        "owed": sorted(
            str(effect) for effect in react(state) if not isinstance(effect, AwaitModel | AwaitTool)
        )
    }
    for approval, (turn, call_id, _) in state.approvals.items():
        call = state.open_call(turn, call_id)
        options = (
            [each.option for each in call.approval.asked.options]
            if call is not None and call.approval is not None
            else []
        )
        for person in people:
            for option in options:
                answer = AnswerApproval(
                    approval=approval,
                    option=option,
                    by=person,
                    answer_id="what-if",
                    grant="g-what-if",
                    reason="because",
                )
                decided = decide(state, answer, now=now)
                found[f"{approval} {person} {option}"] = (
                    decided.refusal.code
                    if decided.refusal
                    else [type(event).__name__ for event in decided.events]
                )
    for call_id, command in starts.items():
        found[f"start {call_id}"] = [
            type(event).__name__ for event in decide(state, command, now=now).events
        ]
    return found


def startable(state: SessionState) -> list[tuple[TurnId, CallId]]:
    """Return calls that have not started, in turns that have authority."""
    return [
        (turn.id, call.call)
        for turn in state.turns.values()
        if not isinstance(turn.context, LostContext)
        for call in turn.calls
        if call.status not in (CallStatus.STARTED, CallStatus.DELEGATED, CallStatus.FINISHED)
    ]
