"""From an answer that should be remembered to the grant that it proposes."""

from holdfast.errors import Refused
from holdfast.ids import GrantId, short_digest
from holdfast.session.authority.approvals import SCOPES
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.grants import SCOPES_OF, identities_of
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.commands import AnswerApproval
from holdfast.session.events import ApprovalRequested
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import SessionState


def proposed_grant(
    state: SessionState, command: AnswerApproval, policy: Policy, *, now: int
) -> GrantProposed | None:
    """
    Return None if the answer grants nothing, or cannot be taken anyway: deciding it gives the
    reason.
    """
    scope, found = SCOPES.get(command.option), state.find_prompt(command.approval)
    if scope is None or found is None:
        return None
    turn, call = found
    if (
        call is None
        or call.approval is None
        or not call.approval.is_open
        or not isinstance(turn.context, TurnContext)
    ):
        return None
    asked, context = call.approval.asked, turn.context
    offered = {each.option: each.covers for each in asked.options}
    if (
        context.requester is None
        or command.option not in offered
        or command.by not in asked.may_answer
    ):
        return None
    _check_scope(asked, context, scope, policy)
    people = dict.fromkeys((command.by, context.requester))
    return GrantProposed(
        # One id for one answer of one person: another answer under the same answer id never
        # replaces this grant.
        grant=GrantId(
            "g-"
            + short_digest("grant", asked.approval, command.answer_id, command.by, command.option)
        ),
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
        granted_by=command.by,
        expires_at=now + policy.remember_for_seconds * 1000,
        identities={name: identities_of(name, policy.people) for name in people},
        path=None if scope == "folder" else asked.path,
        offered=offered[command.option],
        way=command.way,
    )


def _check_scope(
    asked: ApprovalRequested, context: TurnContext, scope: str, policy: Policy
) -> None:
    """
    The prompt may be older than the rule. An answer that cannot be remembered as asked is refused;
    the prompt stays open.
    """
    rule = policy.rule(context.audience, asked.tool) or Rule(mode="ask")
    if scope not in SCOPES_OF[rule.remembers]:
        raise Refused(
            f"policy no longer lets an answer about {asked.tool} be remembered like that (remember "
            f"= {rule.remembers!r})",
            code="option_unavailable",
            hint="approve_once still stands"
            if rule.remembers == "never"
            else "approve_once and approve_session still stand",
        )
