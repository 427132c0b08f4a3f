"""
A second implementation of A5 and P9: may this grant start this call under the present policy?

Written apart from `session/authority/policy.py` and `session/authority/grants.py`, from the
documentation alone. A test compares the two for every rule and giver. `PureSession` asks this one
whenever a grant starts a call.
"""

from collections.abc import Iterable

from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.home.events import GrantProposed
from proof.checkers.states import hold


def check_start(
    context: TurnContext, tool: str, grants: Iterable[GrantProposed], policy: Policy, *, now: int
) -> None:
    """
    Check a call that a grant started: some grant of its requester must still hold, unless policy
    runs the call anyway.
    """
    rule = policy.rules.get(context.audience, {}).get(tool) or policy.rules.get(
        context.audience, {}
    ).get("*")
    hold(
        "A5",
        rule is None or rule.mode != "deny",
        f"{tool} starts by a grant though policy denies it",
    )
    if rule is not None and rule.mode == "auto":
        return
    standing = [
        grant
        for grant in grants
        if grant.tool == tool
        and grant.requester == context.requester
        and grant.boundary == context.boundary
        and stands(grant, rule, now)
    ]
    hold(
        "A5",
        standing,
        f"{tool} starts by a grant whose giver may no longer answer, which is over, or which may "
        "not be remembered",
    )


def stands(grant: GrantProposed, rule: Rule | None, now: int) -> bool:
    """
    Return whether the grant counts under an `ask` rule or without a rule. The caller handles `deny`
    and `auto`.
    """
    if grant.granted_by is None or now >= grant.expires_at:
        return False
    if rule is None:
        return grant.granted_by == grant.requester
    named = rule.approvers
    is_requester = grant.granted_by == grant.requester
    requester_may = rule.requester_may_answer is not False and (
        named != () or rule.requester_may_answer is True
    )
    may_answer = requester_may if is_requester else grant.granted_by in (named or ())
    default = "never" if named is not None or rule.requester_may_answer is False else "any"
    remember = rule.remember or default
    return may_answer and (
        remember == "any" or (remember == "session" and grant.scope == "session")
    )
