"""
Apply events to a session's prompts: the place of each open prompt, and the facts kept about settled
ones.

A prompt is settled when it can no longer be answered: the call is asked again, the next batch
replaces its batch, or its turn ends.
"""

from msgspec.structs import replace

from holdfast.ids import ApprovalId, CallId, TurnId
from holdfast.session.authority.approvals import ANSWER
from holdfast.session.authority.context import TurnContext
from holdfast.session.events import AnswerRefused, ApprovalRequested
from holdfast.session.evolve.inputs import text_digest, with_readers
from holdfast.session.evolve.turn import S, update_call, with_turn
from holdfast.session.persistent import Window
from holdfast.session.state import Approval, Call, SessionState, SettledApproval, Turn

OpenPrompts = dict[ApprovalId, tuple[TurnId, CallId, int]]
"""The place of each open prompt: its turn, its call, and the seq of its request."""


def approval_requested(
    state: SessionState, event: ApprovalRequested, seq: int, at: int
) -> SessionState:
    settled, approvals = state.settled, state.approvals
    earlier = state.open_call(event.turn, event.call)
    if earlier is not None and earlier.approval is not None:
        settled, approvals = _with_settled(settled, approvals, earlier.approval)

    def move(call: Call) -> Call:
        asked = replace(
            call,
            arguments=event.arguments,
            digest=event.digest,
            approval=Approval(asked=event, requested_at=at),
            prompts=call.prompts + 1,
        )
        if event.form is None:
            return replace(asked, status=S.WAITING, allowed_by=None)
        # A form is not consent: the call stays allowed by what allowed it.
        asked = replace(asked, consent=_consent(call))
        if event.form.is_inside:
            # A person's answer belongs to this one run, so the call never runs again.
            return replace(asked, contract="once")
        return replace(asked, status=S.WAITING)

    def moved(turn: Turn, event: ApprovalRequested) -> Turn:
        before = (S.PROPOSED, S.ALLOWED, S.APPROVED) if event.form is None else (S.STARTED,)
        turn = update_call(turn, event, event.call, before, move)
        return replace(turn, prompts=turn.prompts + 1, attempts=1)

    state = with_turn(state, event, moved)
    context = state.turns[event.turn].context
    readers = (
        with_readers(state.readers, context, event.may_answer)
        if isinstance(context, TurnContext)
        else state.readers
    )
    return replace(
        state,
        settled=settled,
        readers=readers,
        approvals={**approvals, event.approval: (event.turn, event.call, seq)},
    )


def _consent(call: Call) -> Approval | None:
    """Return the approval that the call started under. An earlier form of the call is not it."""
    approval = call.approval
    return call.consent if approval is None or approval.asked.form is not None else approval


def answer_refused(state: SessionState, event: AnswerRefused) -> SessionState:
    where = state.approvals.get(event.approval)
    turn = state.turns.get(where[0]) if where else None
    if where is None or turn is None:
        return state
    calls = tuple(
        replace(call, approval=replace(call.approval, refusals=call.approval.refusals + 1))
        if call.call == where[1] and call.approval
        else call
        for call in turn.calls
    )
    return replace(state, turns={**state.turns, turn.id: replace(turn, calls=calls)})


def batch_over(state: SessionState, name: TurnId) -> SessionState:
    """Settle the prompts of this batch, because the next batch replaces it."""
    turn = state.turns.get(name)
    if turn is None or all([call.approval is None for call in turn.calls]):  # noqa: C419  # a list is faster than a generator here
        return state
    settled, approvals = prompts_settled(state, turn)
    return replace(state, settled=settled, approvals=approvals)


def prompts_settled(state: SessionState, turn: Turn) -> tuple[Window[SettledApproval], OpenPrompts]:
    """Return the settled prompts and the open ones, once the turn's batch is over."""
    settled, approvals = state.settled, state.approvals
    for call in turn.calls:
        if call.approval is not None:
            settled, approvals = _with_settled(settled, approvals, call.approval)
    return settled, approvals


def _with_settled(
    settled: Window[SettledApproval], approvals: OpenPrompts, approval: Approval
) -> tuple[Window[SettledApproval], OpenPrompts]:
    asked, answer = approval.asked, approval.answer
    entry = SettledApproval(
        asked.turn,
        asked.call,
        answer.answer_id if answer else None,
        answer.option if answer else None,
        answer.by if answer else None,
        approval.closed_as,
        said(answer.option, answer.reason, answer.arguments) if answer else None,
    )
    left = {name: where for name, where in approvals.items() if name != asked.approval}
    return settled.add(asked.approval, entry), left


def said(option: str, reason: str | None, arguments: str | None) -> str | None:
    """
    Return a digest of an answer's content beside its option: edited arguments, or the text that
    answers a question. Return None for an option alone.
    """
    words = arguments if arguments is not None else reason if option == ANSWER else None
    return None if words is None else text_digest(words)
