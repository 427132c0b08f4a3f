"""From an answer that should be remembered to the grant it proposes."""

from holdfast.ids import GrantId, short_digest
from holdfast.session.approvals import SCOPES
from holdfast.session.authority import TurnContext
from holdfast.session.commands import AnswerApproval
from holdfast.session.home_events import GrantProposed
from holdfast.session.state import SessionState


def proposed_grant(state: SessionState, command: AnswerApproval, *, now: int) -> GrantProposed | None:
    """None when the answer leaves nothing behind, or can't be taken anyway: deciding it says why."""
    scope, where = SCOPES.get(command.option), state.approvals.get(command.approval)
    if scope is None or where is None:
        return None
    turn, call = state.turns[where[0]], state.open_call(where[0], where[1])
    if call is None or call.approval is None or not call.approval.is_open or not isinstance(turn.context, TurnContext):
        return None
    asked, context = call.approval.asked, turn.context
    if context.requester is None or command.option not in {each.option for each in asked.options} or command.by not in asked.may_answer:
        return None
    return GrantProposed(
        grant=GrantId("g-" + short_digest("grant", asked.approval, command.answer_id)),
        tool=asked.tool,
        definition=asked.definition,
        arguments=asked.granted[scope],
        scope=scope,
        folder=asked.cwd if scope == "session" else asked.folder if scope == "folder" else None,
        requester=context.requester,
        boundary=context.boundary,
        audience=context.audience.value,
        session=state.session,
        instance=state.instance,
        approval=asked.approval,
        answer=command.answer_id,
        proposed_at=now,
    )
