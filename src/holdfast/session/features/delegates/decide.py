"""
Hand a call to another agent, and take its result back: once, and only for the call that waits for
it.

A refusal at a bound is text that a model can read. The delegate's own authority is not decided
here: it has a session, a context and prompts of its own.
"""

from typing import Literal

from holdfast import limits
from holdfast.session.call_results import superseding
from holdfast.session.commands import MarkReported, NewDelegate, ReportDelegate
from holdfast.session.decide.decision import NOTHING, Decided
from holdfast.session.decide.turns import cancelling
from holdfast.session.events import (
    CallFinished,
    DelegateEnded,
    DelegateReported,
    DelegateStarted,
    SessionEvent,
)
from holdfast.session.react import FIRST_TURN, owes_report
from holdfast.session.state import Call, CallStatus, SessionState, Turn


def bound_reached(state: SessionState, turn: Turn) -> tuple[str, str] | None:
    """Return the reason why this turn may not delegate any more work, for the model."""
    depth = len(state.parent.path) - 1 if state.parent is not None else 0
    if depth >= limits.DELEGATE_DEPTH_MAX:
        path = " > ".join(state.parent.path) if state.parent is not None else ""
        return (
            "delegate_depth",
            (
                f"{path} is as deep as delegates go ({limits.DELEGATE_DEPTH_MAX}); do it yourself,"
                " or answer with what you have"
            ),
        )
    if turn.delegations >= limits.DELEGATES_PER_TURN_MAX:
        return (
            "delegate_bound",
            (
                f"this request has started {turn.delegations} delegates, which is its bound; do the"
                " rest yourself"
            ),
        )
    return None


def started(
    turn: Turn, call: Call, new: NewDelegate, arguments: str, epoch: int
) -> DelegateStarted:
    return DelegateStarted(
        turn=turn.id,
        call=call.call,
        agent=new.agent,
        session=new.session,
        instance=new.instance,
        arguments=arguments,
        digest=call.digest or "",
        allowed_by=call.allowed_by or "",
        epoch=epoch,
        tools=new.tools,
    )


def report_delegate(
    state: SessionState, command: ReportDelegate
) -> Decided[Literal["reported", "dropped"] | None]:
    """
    Take a delegate's result. This is decided under the lock of the parent's session, so only one
    result is taken, however many processes report it.
    """
    child = state.delegates.get(command.call)
    if child is None or (child.session, child.instance) != (command.session, command.instance):
        return Decided(outcome="dropped")
    turn, call = state.turns.get(child.turn), state.open_call(child.turn, child.call)
    ended = DelegateEnded(
        turn=child.turn,
        call=child.call,
        outcome=command.ended,
        prompts=command.prompts,
        doubts=command.doubts,
        usage=command.usage,
    )
    if turn is None or call is None or call.status is not CallStatus.DELEGATED:
        return Decided((ended,), outcome="dropped")
    finished = CallFinished(
        turn=turn.id,
        call=call.call,
        outcome=command.outcome,
        text=command.text,
        code=command.code,
        output=command.output,
    )
    return Decided((finished, ended, *_end_of_turn(turn, call)), outcome="reported")


def _end_of_turn(turn: Turn, ended: Call) -> list[SessionEvent]:
    """End a cancelled or replaced turn that waited only for this delegate."""
    if turn.cancelled_by is not None:
        return cancelling(turn, turn.cancelled_by, ended=ended.call)
    if turn.superseded_by is not None:
        return superseding(turn, turn.superseded_by, ended=ended.call)
    return []


def mark_reported(state: SessionState, command: MarkReported) -> Decided[None]:
    return (
        Decided((DelegateReported(turn=FIRST_TURN, became=command.became),))
        if owes_report(state)
        else NOTHING
    )
