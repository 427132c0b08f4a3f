"""
A remembered approval as people see it: in the same words on the command line, over HTTP and in the
library.
"""

from typing import Any

import msgspec

from holdfast.ids import GrantId, SessionId
from holdfast.runtime.reports.types import arguments_of, iso
from holdfast.runtime.runtime import Runtime
from holdfast.session.authority.approvals import (
    FOR_SO_LONG,
    IN_THIS_CONVERSATION,
    ON_THIS_PATH,
    RUNS_NOW_AND,
)
from holdfast.session.authority.context import Audience
from holdfast.session.authority.grants import ends_at, flaw_of
from holdfast.session.authority.policy import Policy, Rule, terms_of
from holdfast.session.home.events import GrantProposed
from holdfast.session.view.safe_text import framed, render, render_argument


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
        else f"nothing at present, because {flaw}. Otherwise: {covered(grant)}",
        counts=flaw is None,
        folder=grant.folder,
        path=grant.path,
        audience=grant.audience,
    )


def covered(grant: GrantProposed) -> str:
    """
    Return the text of the answered option as a sentence of its own: the conversation, the path and
    the arguments are written out, each in a line as in the prompt. Its duration is left out: the
    report has the date of its end.
    """
    words = grant.offered.removeprefix(RUNS_NOW_AND).rstrip(".") or f"scope {grant.scope}"
    words = words.rpartition(FOR_SO_LONG)[0] or words
    words = words.replace(IN_THIS_CONVERSATION, f"in the conversation {grant.session}", 1)
    if grant.path is not None:
        words = words.replace(ON_THIS_PATH, f"on {render(grant.path).text}", 1)
    bound = (
        ""
        if grant.scope == "folder" and grant.arguments == "{}"
        else f":\n{_argument_lines(grant.arguments)}"
    )
    return f"{grant.tool} runs without a prompt {words}{bound}"


def _argument_lines(arguments: str) -> str:
    """
    >>> print(_argument_lines('{"order":"A-1","amount":3.5}'))
    | order: "A-1"
    | amount: 3.5
    >>> print(_argument_lines("{}"))
    | no values
    """
    try:
        values = msgspec.json.decode(arguments.encode(), type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:  # a foreign loop's arguments may be any text
        return framed(render(arguments).text)
    lines = (
        f"{render(name).text}: {render_argument(bytes(value).decode()).text}"
        for name, value in values.items()
    )
    return "\n".join(map(framed, lines)) or framed("no values")


async def grant_reports(runtime: Runtime) -> tuple[GrantReport, ...]:
    """The remembered approvals that have not expired, sorted by name."""
    world, state = runtime.world, await runtime.home.refresh()
    policy, now = world.policy(), runtime.home.moment(world.clock.now_ms()).now
    reports = (
        grant_report(grant, state.granted_at.get(name, 0), policy, now=now)
        for name, grant in sorted(state.grants.items())
    )
    return tuple(each for each in reports if each is not None)
