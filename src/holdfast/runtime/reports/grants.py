"""
A remembered approval as people see it: in the same words on the command line, over HTTP and in the
library.
"""

from typing import Any

import msgspec

from holdfast.ids import GrantId, SessionId
from holdfast.runtime.reports.types import arguments_of, iso
from holdfast.session.authority.approvals import HERE, ON_THIS_PATH
from holdfast.session.authority.context import Audience
from holdfast.session.authority.grants import ends_at, flaw_of
from holdfast.session.authority.policy import Policy, Rule, terms_of
from holdfast.session.home.events import GrantProposed
from holdfast.session.view.rendering import render

_IN_SESSION = ", in this session"


class GrantReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    `covers` states in words whom the grant lets do what. If it counts for nothing at present, the
    reason comes first.
    """

    id: GrantId
    tool: str
    arguments: Any
    scope: str
    requester: str
    boundary: str
    session: SessionId
    granted_at: str
    approval: str
    granted_by: str | None
    expires_at: str
    covers: str
    counts: bool
    folder: str | None = None
    path: str | None = None
    audience: str = ""


def grant_report(
    grant: GrantProposed, granted_at: int, policy: Policy, *, now: int
) -> GrantReport | None:
    """
    Return None once the grant has expired. The current rule decides whether it counts; a call's own
    facts are judged with the call.
    """
    ends = ends_at(grant, policy.remember_for_seconds)
    if grant.granted_by is not None and now >= ends:
        return None
    rule = policy.rule(Audience(grant.audience), grant.tool) or Rule(mode="ask")
    flaw = flaw_of(grant, terms_of(rule, grant.requester, policy, now=now))
    return GrantReport(
        id=grant.grant,
        tool=grant.tool,
        arguments=arguments_of(grant.arguments),
        scope=grant.scope,
        requester=grant.requester,
        boundary=grant.boundary,
        session=grant.session,
        granted_at=iso(granted_at),
        approval=grant.approval,
        granted_by=grant.granted_by,
        expires_at=iso(ends),
        covers=covered(grant)
        if flaw is None
        else f"nothing at present, since {flaw}. Otherwise: {covered(grant)}",
        counts=flaw is None,
        folder=grant.folder,
        path=grant.path,
        audience=grant.audience,
    )


def covered(grant: GrantProposed) -> str:
    """The text of the answered option, with the requester, the session and the arguments named."""
    words = grant.offered or f"{grant.tool}, scope {grant.scope}"
    if grant.scope == "session":
        words = f"{words.removesuffix(_IN_SESSION)}, in the session {grant.session}"
        if grant.folder is not None and words.startswith(f"this exact command {HERE}"):
            words = words.replace(HERE, f"run in {render(grant.folder).text}", 1)
    if grant.path is not None:
        words = words.replace(ON_THIS_PATH, f"on {render(grant.path).text}", 1)
    bound = (
        ""
        if grant.scope == "folder" and grant.path is None and grant.arguments == "{}"
        else f": {render(grant.arguments).text}"
    )
    return f"{render(grant.requester).text} ({render(grant.boundary).text}) may use {grant.tool} without a prompt for {words}{bound}"
