"""
Choose the running turn: at most one. A turn starts with the next inputs, parks, resumes, and joins
the shared view when it ends.
"""

from msgspec.structs import replace

from holdfast.ids import turn_id_of
from holdfast.session.authority.context import Audience, LostContext, TurnContext
from holdfast.session.events import TurnEnded, TurnParked, TurnResumed, TurnStarted
from holdfast.session.evolve.approvals import prompts_settled
from holdfast.session.evolve.turn import turn_parked, turn_resumed, with_turn
from holdfast.session.evolve.view import joined
from holdfast.session.features.memory.items import asked_tainted, without_recalled
from holdfast.session.persistent import PersistentList, Window
from holdfast.session.state import CallStatus, Input, SessionState, Turn, TurnResult, ViewEntry
from holdfast.session.transitions import IllegalTransition, check
from holdfast.session.view.messages import AssistantMessage, Message, NoteMessage, UserMessage


def running_moved(
    state: SessionState,
    event: TurnStarted | TurnParked | TurnResumed | TurnEnded,
    seq: int,
    at: int,
) -> SessionState:
    match event:
        case TurnStarted():
            return _started(state, event, at)
        case TurnEnded():
            return _ended(state, event, seq)
        case TurnParked():
            return _parked(state, event, at)
        case TurnResumed():
            return _resumed(state, event)


def _started(state: SessionState, event: TurnStarted, at: int) -> SessionState:
    taken = state.queued[: len(event.inputs)]
    if (
        state.running is not None
        or not taken
        or tuple(each.input for each in taken) != event.inputs
        or event.turn != taken[0].turn
    ):
        raise IllegalTransition(
            None, event, "another turn runs, or its inputs are not the next ones"
        )
    first = taken[0]
    own: PersistentList[Message] = PersistentList()
    for each in taken:
        speaker = _speaker(state, each)
        # A job's result is not a person's message. The model receives it as a note from Holdfast,
        # never as its requester's words.
        own = own.add(
            NoteMessage(each.text)
            if each.kind == "job"
            else UserMessage(each.text, speaker, each.quotes)
        )
    turn = Turn(
        id=event.turn,
        context=first.context,
        agent=first.agent,
        model=first.model,
        loop=first.loop,
        kind=first.kind,
        inputs=event.inputs,
        started_at=at,
        base=state.view,
        own=own,
        epoch=event.epoch,
        others=tuple(_one_line(each, first.context) for each in state.turns.values()),
        tainted=state.view.tainted or asked_tainted(first.context, state.people),
        delegate_of=state.parent,
    )
    return replace(
        state,
        turns={**state.turns, event.turn: turn},
        running=event.turn,
        queued=state.queued[len(taken) :],
    )


def _speaker(state: SessionState, accepted: Input) -> str | None:
    """
    Return the speaker of an input. An agent speaks a delegate's task, for whichever requester it
    works.
    """
    if accepted.kind == "delegate" and state.parent is not None:
        return f"the agent {state.parent.path[-2]}" if len(state.parent.path) > 1 else None
    return accepted.context.requester


def _one_line(parked: Turn, reader: TurnContext | LostContext) -> str:
    """
    Return the line that another turn sees about a parked one. It names the requester only behind
    the same boundary, and never the subject.
    """
    same = (
        isinstance(parked.context, TurnContext)
        and isinstance(reader, TurnContext)
        and parked.context.boundary == reader.boundary
    )
    who = f" of {parked.context.requester}" if same else ""
    return f"(Another request{who} in this conversation waits for a person's answer.)"


def _parked(state: SessionState, event: TurnParked, at: int) -> SessionState:
    state = with_turn(state, event, turn_parked)
    turn = state.turns[event.turn]
    begun = {call.call: call.delegate for call in turn.delegated if call.delegate is not None}
    return replace(
        state,
        running=None,
        turns={**state.turns, event.turn: replace(turn, parked_at=at)},
        delegates={**state.delegates, **begun} if begun else state.delegates,
    )


def _resumed(state: SessionState, event: TurnResumed) -> SessionState:
    if state.running not in (None, event.turn):
        raise IllegalTransition(None, event, f"{state.running} runs")
    return replace(with_turn(state, event, turn_resumed), running=event.turn)


def _ended(state: SessionState, event: TurnEnded, seq: int) -> SessionState:
    turn = state.turns.get(event.turn)
    if turn is None:
        raise IllegalTransition(None, event)
    if any(call.status is not CallStatus.FINISHED for call in turn.calls):
        raise IllegalTransition(turn.phase, event, "a call has no result")
    check(turn.phase, event, replace(turn, ended=True).phase)
    settled, approvals = prompts_settled(state, turn)
    audience = turn.context.audience if isinstance(turn.context, TurnContext) else Audience.PERSONAL
    own = tuple(without_recalled(turn.own.extend(_closing_messages(turn, event))))
    entry = ViewEntry(turn.id, own, audience, turn.tainted)
    return replace(
        state,
        turns={name: each for name, each in state.turns.items() if name != event.turn},
        running=None if state.running == event.turn else state.running,
        turns_ended=state.turns_ended + 1,
        view=joined(state.view, turn, entry),
        results=_results(state, turn, TurnResult(seq, event.outcome, turn.usage)),
        settled=settled,
        approvals=approvals,
    )


def _results(state: SessionState, turn: Turn, result: TurnResult) -> Window[TurnResult]:
    """Record the result under the turn's own id and under the ids of the inputs that joined it."""
    results = state.results
    for each in turn.inputs:
        results = results.add(turn_id_of(each), result)
    return results


def _closing_messages(turn: Turn, event: TurnEnded) -> list[Message]:
    if event.outcome == "completed":
        # The loop may have recorded the model's last answer, which is the reply.
        is_said = turn.own.last() == AssistantMessage(event.reply or "")
        replies = turn.loop == "foreign" and event.reply is not None and not is_said
        return [AssistantMessage(event.reply or "")] if replies else []
    return [
        NoteMessage(
            f"This request {event.outcome}: {event.message or event.code or 'no reason given'}"
        )
    ]
