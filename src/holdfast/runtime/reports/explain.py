"""
Explain a call before it is made: which rule decides, on which line, with which verdict, and whom it
would ask.

The same function judges as for a real call. Nothing is written and nothing runs.
"""

from typing import Literal

import msgspec

from holdfast.errors import Refused, Unusable
from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.ports.tools import CannotBind, InvalidArguments, Scene, Tool
from holdfast.runtime.context import World
from holdfast.runtime.drive.bound_call import agent_tools
from holdfast.session.authority.context import (
    MessageSource,
    TurnContext,
    Workspace,
    context_from_source,
)
from holdfast.session.authority.plan import Binding
from holdfast.session.authority.policy import Allow, Ask, Deny, Verdict, judge, place_of
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import SessionState

NEVER_BEGUN = InstanceId("never-begun")  # of a session that does not exist; no grant names it


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`rule` names the section and the line, or says that no rule of the settings applies."""

    session: SessionId
    begun: bool  # false: the session does not exist, and is judged as it would begin
    tool: str
    requester: str | None
    audience: str
    verdict: Literal["allow", "ask", "deny"]
    rule: str
    line: int | None
    reason: str
    may_answer: tuple[str, ...] = ()
    remember: str | None = None  # how far an answer may be remembered


def explain(
    world: World,
    state: SessionState,
    tool: str,
    arguments: bytes | None,
    *,
    source: MessageSource,
    workspace: Workspace | None,
    grants: tuple[GrantProposed, ...],
) -> Explanation:
    """Judge a call of the session's agent as the source's person. Without arguments: any call."""
    found = agent_tools(world, world.agent(state.agent)).get(tool)
    if found is None:
        raise Refused(
            f"the agent {world.agent(state.agent).name!r} has no tool {tool!r}",
            code="unknown_tool",
            hint="`holdfast config show` lists each agent's tools; --app loads your own",
        )
    context = context_from_source(
        source,
        session=state.session,
        instance=state.instance,
        turn=TurnId(f"t{state.inputs + 1}"),
        workspace=workspace,
    )
    rule = world.policy().rule(context.audience, tool)
    about = Explanation(
        session=state.session,
        begun=state.exists,
        tool=tool,
        requester=context.requester,
        audience=context.audience.value,
        verdict="deny",
        rule=(
            "no rule of the settings: the default of the audience"
            if rule is None
            else place_of(context.audience, rule)
        ),
        line=None if rule is None else rule.line,
        reason="",
    )
    try:
        normal, binding = _bound(found, arguments, context, world)
    except (CannotBind, InvalidArguments) as exc:
        return msgspec.structs.replace(about, reason=f"It cannot run: {exc}.")
    verdict = judge(
        context=context,
        definition=found.definition,
        arguments=normal,
        binding=binding,
        policy=world.policy(),
        grants=grants,
        in_doubt_twin=False,
        now=world.clock.now_ms(),
    )
    return _explained(about, verdict)


def _explained(about: Explanation, verdict: Verdict) -> Explanation:
    match verdict:
        case Allow(by=by):
            why = "The policy lets it run." if by == "policy" else f"The grant {by} covers it."
            return msgspec.structs.replace(about, verdict="allow", reason=why)
        case Deny(text=text):
            return msgspec.structs.replace(about, verdict="deny", reason=f"{text}.")
        case Ask(may_answer=people, reason=reason, remember=remember):
            return msgspec.structs.replace(
                about, verdict="ask", reason=reason, may_answer=people, remember=remember
            )


def _bound(
    tool: Tool, arguments: bytes | None, context: TurnContext, world: World
) -> tuple[str, Binding]:
    if arguments is None:
        return "{}", Binding(display="", readable=False, memorable=False)
    place = context.workspace
    scene = Scene(
        session=context.session,
        instance=context.instance,
        turn=context.turn,
        call=CallId("c-explain"),
        workspace=place.path if place is not None else None,
        workspace_identity=place.identity if place is not None else None,
        requester=context.requester,
        audience=context.audience.value,
        boundary=context.boundary,
        home=world.home,
        secrets=world.secrets,
    )
    try:
        normal = tool.validate(arguments)
    except msgspec.DecodeError as exc:
        raise Unusable(
            f"the arguments are not JSON: {exc}", code="malformed", hint="one JSON object"
        ) from exc
    return normal.decode(), tool.bind(normal, scene)
