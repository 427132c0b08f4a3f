"""
Bind one call: determine its exact plan, or why it cannot run. Binding has no effect. It happens
when a call is made, and again right before it starts.

The place comes from the turn's journalled context. If the workspace is no longer the folder that it
was when the message was accepted, the call has no workspace.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec

from holdfast.errors import Unusable
from holdfast.ids import CallId, JobId, TurnId, delegate_tool_name
from holdfast.ports.tool_servers import ToolServers
from holdfast.ports.tools import (
    CannotBind,
    InvalidArguments,
    JobFacts,
    ProcessFacts,
    RunsInBackground,
    Scene,
    Tool,
)
from holdfast.runtime.context import (
    ALL_SERVED_TOOLS,
    CODING_AGENTS,
    PROXY_AGENT,
    AgentSpec,
    World,
)
from holdfast.secrecy import secrecy_of
from holdfast.session.authority.context import RELAYED_SAME_USER, TurnContext
from holdfast.session.authority.policy import BoundCall, Policy
from holdfast.session.commands import DecideCalls
from holdfast.session.features.jobs.decide import find_job
from holdfast.session.features.memory.items import origin_of, reader_set_of
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import Call, EndedJob, Job, SessionState, Turn
from holdfast.threads import ThreadPool

_BINDERS = ThreadPool(4, "holdfast-bind")
_QUICK_CHARS_MAX = 16 * 1024  # of a call's arguments; longer ones take longer to check and to show


class BoundBatch(NamedTuple):
    """The results of binding some calls, in their order, and the grants of their requester."""

    bound: tuple[BoundCall, ...]
    grants: tuple[GrantProposed, ...]
    # The tool that each call was bound to, or None.
    tools: tuple[Tool | None, ...] = ()

    def decision(self, turn: TurnId, policy: Policy) -> DecideCalls:
        return DecideCalls(turn=turn, bound=self.bound, policy=policy, grants=self.grants)


def scene_of(world: World, state: SessionState, turn: Turn, call: CallId) -> Scene:
    context = turn.context if isinstance(turn.context, TurnContext) else None
    workspace = context.workspace if context is not None else None
    same = (
        workspace is not None
        and world.is_here(workspace.node)
        and world.folder_identity(workspace.path) == workspace.identity
    )
    return Scene(
        session=state.session,
        instance=state.instance,
        turn=turn.id,
        call=call,
        workspace=workspace.path if workspace is not None and same else None,
        workspace_identity=workspace.identity if workspace is not None and same else None,
        requester=context.requester if context else None,
        audience=context.audience.value if context else "public",
        boundary=context.boundary if context else "public",
        home=world.home,
        secrets=world.secrets,
        reader_set=reader_set_of(turn.context, state.readers),
        origin=origin_of(turn),
        jobs=tuple(_jobs_of(state, context)) if context is not None else (),
        asker_shares_user=context is not None and context.provenance.kind == RELAYED_SAME_USER,
    )


def _jobs_of(state: SessionState, context: TurnContext) -> Iterator[JobFacts]:
    """
    Yield the jobs that this turn may see. Every other job is reported as missing, whichever id is
    asked for.
    """
    for name in (
        *state.jobs,
        *(over for over, _ in state.ended_jobs.items() if over not in state.jobs),
    ):
        match find_job(state, JobId(name), context.audience, context.boundary):
            case Job() as job:
                process = ProcessFacts(**job.process) if job.host == "process" else None
                yield JobFacts(
                    job=job.job,
                    tool=job.tool,
                    submitted_at=job.submitted_at,
                    cancelled_by=job.cancelled_by,
                    process=process,
                )
            case EndedJob() as over:
                yield JobFacts(
                    job=over.job,
                    tool=over.tool,
                    submitted_at=over.submitted_at,
                    ended_at=over.ended_at,
                    outcome=over.outcome,
                )
            case None:
                continue


def agent_tools(world: World, agent: AgentSpec) -> dict[str, Tool]:
    """
    Return an agent's tools by the names that the model calls. Settings may name them differently
    (`module:attribute`).
    """
    found = {
        tool.definition.name: tool
        for name in _box_names(world, agent)
        if (tool := world.tools.get(name)) is not None
    }
    return {**found, **world.added_tools.get(agent.name, {})}


def _box_names(world: World, agent: AgentSpec, only: str | None = None) -> tuple[str, ...]:
    """Return the agent's tools by name. `only` leaves out the other tools of servers."""
    tools = agent.tools
    if world.servers is not None and _ALL_OF_SERVER in "".join(tools):
        tools = tuple(name for each in tools for name in _of_server(world.servers, each, only))
    if not agent.delegates:
        return tools
    return (
        *tools,
        *[delegate_tool_name(name) for name in agent.delegates if name in world.agents],
    )


_ALL_OF_SERVER = ".*"


def names_servers(agent: AgentSpec) -> bool:
    """Whether the agent may have tools of servers, which are named `SERVER.TOOL`."""
    return "." in "".join(agent.tools)


def _of_server(servers: ToolServers, name: str, only: str | None) -> Sequence[str]:
    """`SERVER.*` stands for the tools of a server that are pinned now, `*.*` for all of them."""
    if not name.endswith(_ALL_OF_SERVER):
        return (name,)
    if only is not None:
        server = only.partition(".")[0]
        if name not in (ALL_SERVED_TOOLS, f"{server}{_ALL_OF_SERVER}"):
            return ()
        return [tool for tool in servers.offers(server) if tool == only]
    if name == ALL_SERVED_TOOLS:
        return [tool for server in servers.names() for tool in servers.offers(server)]
    return servers.offers(name.removesuffix(_ALL_OF_SERVER))


def turn_tools(world: World, turn: Turn, agent: AgentSpec | None) -> dict[str, Tool]:
    """
    Return the tools that the turn may call. `agent` is the turn's agent, if it is known here.

    A turn has its agent's tools. A delegate has only the tools that every agent above it has too,
    now and when it was started. Delegate tools are exempt: the delegate that they start is held to
    the same rule.
    """
    tools = agent_tools(world, agent) if agent is not None else {}
    parent = turn.delegate_of
    if parent is None:
        return tools
    above = [
        agent_tools(world, world.agents[name]) if name in world.agents else {}
        for name in parent.path[:-1]
    ]
    return {
        name: tool
        for name, tool in tools.items()
        if is_delegate(tool) or (name in parent.tools and all(_has(each, tool) for each in above))
    }


def add_tools(world: World, tools: Sequence[Tool], agent: str | None) -> None:
    """
    Give an agent further tools. A tool that was added before is replaced by the one of its name;
    prompts of a changed definition are voided when their calls would start.
    """
    spec = world.agent(agent)
    added = world.added_tools.setdefault(spec.name, {})
    for tool in tools:
        name = tool.definition.name
        known = None if name in added else agent_tools(world, spec).get(name)
        if known is not None and known.definition.digest() != tool.definition.digest():
            raise Unusable(
                f"the agent {spec.name!r} has a tool named {name!r} already",
                code="malformed",
                hint="give the new one another name",
            )
    added.update({tool.definition.name: tool for tool in tools})


def is_delegate(tool: Tool) -> bool:
    return tool.definition.kind == "delegate"


def _has(tools: dict[str, Tool], tool: Tool) -> bool:
    """Whether it is the same tool: another tool of that name does not count."""
    known = tools.get(tool.definition.name)
    return known is not None and (
        known is tool or known.definition.digest() == tool.definition.digest()
    )


def tool_for(world: World, turn: Turn, name: str) -> Tool | None:
    """
    Return the tool of that name, if the turn may call it. Equal to a lookup in `turn_tools`,
    without loading all the other tools.
    """
    agent = world.agents.get(turn.agent)
    if turn.delegate_of is not None:
        return turn_tools(world, turn, agent).get(name)
    if agent is not None and (added := world.added_tools.get(agent.name, {}).get(name)):
        return added
    if turn.agent == PROXY_AGENT and name.partition(".")[0] in CODING_AGENTS:
        return world.tools.get(name)
    # The last of two tools with the same name counts.
    for each in reversed(_box_names(world, agent, name) if agent is not None else ()):
        if each == name or ":" in each:
            tool = world.tools.get(each)
            if tool is not None and tool.definition.name == name:
                return tool
    return None


async def bind_call(world: World, state: SessionState, turn: Turn, call: Call) -> BoundCall:
    """Bind a call to the tool that the turn has under its name now."""
    return await bind_to_tool(world, state, turn, call, tool_for(world, turn, call.tool))


async def bind_to_tool(
    world: World, state: SessionState, turn: Turn, call: Call, tool: Tool | None
) -> BoundCall:
    if tool is None:
        return BoundCall(call=call.call, problem=_missing(world, turn, call.tool))
    if lacking := _lacked_by(world, call.path, tool):
        return BoundCall(
            call=call.call,
            problem=("no_authority", f"{call.tool!r} is not for the nested agent {lacking}"),
        )
    if is_delegate(tool) and turn.loop == "foreign":
        return BoundCall(
            call=call.call,
            problem=(
                "cannot_bind",
                "a loop of your own calls its agents itself; delegates are for Holdfast's",
            ),
        )
    # Validated arguments are validated again as they stand: the same text in, the same text out.
    written = call.arguments if call.arguments is not None else call.made
    scene = scene_of(world, state, turn, call.call)
    if tool.definition.kind in ("plain", "question", "delegate", "job_cancel", "handed_over"):
        # Only the arguments matter for these kinds, so binding reads no files and needs no thread.
        return _without_secrets(_bind(tool, written, scene), scene)
    if _binds_quickly(tool, written):
        return _without_secrets(_bind(tool, written, scene), scene)
    bound = await _BINDERS.call(lambda: _bind(tool, written, scene))
    return _of_a_lost_workspace(_without_secrets(bound, scene), scene, turn)


def _binds_quickly(tool: Tool, written: str) -> bool:
    if tool.definition.kind != "server" or len(written) > _QUICK_CHARS_MAX:
        return False
    return bool(getattr(tool, "binds_quickly", False))


def _lacked_by(world: World, path: tuple[str, ...], tool: Tool) -> str | None:
    """
    Return the first nested agent that this home knows and that lacks the tool. An agent that the
    home does not know has the tools of the turn's own agent.
    """
    for name in path:
        known = world.agents.get(name)
        if known is not None and not _has(agent_tools(world, known), tool):
            return name
    return None


def _without_secrets(bound: BoundCall, scene: Scene) -> BoundCall:
    """
    Refuse a call whose prompt or arguments would hold a known secret: a bound call is journalled
    and shown. The reason holds no secret either (S1).
    """
    secrecy = secrecy_of(scene.secrets)
    if not secrecy.holds(msgspec.json.encode((bound.arguments, bound.binding, bound.problem))):
        return bound
    if bound.problem is not None:
        code, why = bound.problem[0], secrecy.hidden(bound.problem[1])
    else:
        what = (
            "its arguments hold"
            if bound.arguments is not None and secrecy.holds(bound.arguments)
            else "its prompt would hold"
        )
        code, why = "secret", f"{what} a secret"
    arguments = secrecy.hidden(bound.arguments) if bound.arguments is not None else None
    return msgspec.structs.replace(bound, arguments=arguments, binding=None, problem=(code, why))


def _of_a_lost_workspace(bound: BoundCall, scene: Scene, turn: Turn) -> BoundCall:
    """
    If the workspace was replaced by another folder, say so. The tool knows only that it has no
    workspace.
    """
    given = turn.context.workspace if isinstance(turn.context, TurnContext) else None
    if (
        given is None
        or scene.workspace is not None
        or bound.problem is None
        or bound.problem[0] != "cannot_bind"
    ):
        return bound
    return msgspec.structs.replace(
        bound,
        problem=(
            "cannot_bind",
            (
                f"the workspace {given.path} is not the folder any more that it was when this was "
                "asked for"
            ),
        ),
    )


def _missing(world: World, turn: Turn, name: str) -> tuple[str, str]:
    agent = world.agents.get(turn.agent)
    if turn.delegate_of is not None and agent is not None and name in agent_tools(world, agent):
        above = " > ".join(turn.delegate_of.path[:-1])
        return (
            "no_authority",
            f"{name!r} is not for you here: a delegate has no tool that {above} lacks",
        )
    return "unknown_tool", f"no tool {name!r} here"


# Cached because a class never changes, and the protocol check takes longer than the binding.
@lru_cache(maxsize=256)
def _has_background(kind: type[Tool]) -> bool:
    return issubclass(kind, RunsInBackground)


def _bind(tool: Tool, written: str, scene: Scene) -> BoundCall:
    try:
        arguments = tool.validate(written.encode())
    except (InvalidArguments, UnicodeEncodeError) as exc:
        return BoundCall(call=scene.call, problem=("invalid_arguments", str(exc)))
    try:
        binding = tool.bind(arguments, scene)
    except CannotBind as exc:
        return BoundCall(
            call=scene.call,
            definition=tool.definition,
            arguments=arguments.decode(),
            problem=(exc.code, str(exc)),
        )
    background = _has_background(type(tool)) and cast("RunsInBackground", tool).is_background(
        arguments
    )
    return BoundCall(
        call=scene.call,
        definition=tool.definition,
        arguments=arguments.decode(),
        binding=binding,
        background=background,
    )
