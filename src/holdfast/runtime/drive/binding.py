"""
Bind one call: determine its exact plan, or why it cannot run. Binding has no effect. It happens
when a call is made, and again right before it starts.

The place comes from the turn's journalled context. If the workspace is no longer the folder that it
was when the message was accepted, the call has no workspace.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec

from holdfast.ids import CallId, JobId, TurnId, delegate_tool_name
from holdfast.ports.tools import (
    CannotBind,
    InvalidArguments,
    JobFacts,
    ProcessFacts,
    RunsInBackground,
    Scene,
    Tool,
)
from holdfast.runtime.context import AgentSpec, World
from holdfast.secrecy import secrecy_of
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.policy import Looked, Policy
from holdfast.session.commands import DecideCalls
from holdfast.session.features.jobs.decide import find_job
from holdfast.session.features.memory.items import circle_of, origin_of
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import Call, EndedJob, Job, SessionState, Turn

_THREADS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="holdfast-look")


class Found(NamedTuple):
    """The results of binding some calls, in their order, and the grants of their requester."""

    looked: tuple[Looked, ...]
    grants: tuple[GrantProposed, ...]

    def decision(self, turn: TurnId, policy: Policy) -> DecideCalls:
        return DecideCalls(turn=turn, looked=self.looked, policy=policy, grants=self.grants)


def scene_of(world: World, state: SessionState, turn: Turn, call: CallId) -> Scene:
    context = turn.context if isinstance(turn.context, TurnContext) else None
    workspace = context.workspace if context is not None else None
    same = workspace is not None and world.folder_identity(workspace.path) == workspace.identity
    return Scene(
        session=state.session,
        instance=state.instance,
        turn=turn.turn,
        call=call,
        workspace=workspace.path if workspace is not None and same else None,
        workspace_identity=workspace.identity if workspace is not None and same else None,
        requester=context.requester if context else None,
        audience=context.audience.value if context else "public",
        boundary=context.boundary if context else "public",
        home=world.home,
        secrets=world.secrets,
        circle=circle_of(turn.context, state.readers),
        origin=origin_of(turn),
        jobs=tuple(_jobs_of(state, context)) if context is not None else (),
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
    return {
        tool.definition.name: tool
        for name in _box_names(world, agent)
        if (tool := world.tools.get(name)) is not None
    }


def _box_names(world: World, agent: AgentSpec) -> tuple[str, ...]:
    if not agent.delegates:
        return agent.tools
    return (
        *agent.tools,
        *[delegate_tool_name(name) for name in agent.delegates if name in world.agents],
    )


def turn_tools(world: World, turn: Turn) -> dict[str, Tool]:
    """
    Return the tools that the turn may call.

    A turn has its agent's tools. A delegate has only the tools that every agent above it has too,
    now and when it was started. Delegate tools are exempt: the delegate that they start is held to
    the same rule.
    """
    agent = world.agents.get(turn.agent)
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
    if turn.delegate_of is not None:
        return turn_tools(world, turn).get(name)
    agent = world.agents.get(turn.agent)
    # The last of two tools with the same name counts.
    for each in reversed(_box_names(world, agent) if agent is not None else ()):
        if each == name or ":" in each:
            tool = world.tools.get(each)
            if tool is not None and tool.definition.name == name:
                return tool
    return None


async def look(world: World, state: SessionState, turn: Turn, call: Call) -> Looked:
    tool = tool_for(world, turn, call.tool)
    if tool is None:
        return Looked(call=call.call, problem=_missing(world, turn, call.tool))
    if is_delegate(tool) and turn.loop == "foreign":
        return Looked(
            call=call.call,
            problem=(
                "cannot_bind",
                "a loop of your own calls its agents itself; delegates are for Holdfast's",
            ),
        )
    # Validated arguments are validated again as they stand: the same text in, the same text out.
    written = call.arguments if call.arguments is not None else call.made
    scene = scene_of(world, state, turn, call.call)
    if tool.definition.kind in ("plain", "question", "delegate", "job_cancel"):
        # Only the arguments matter for these kinds, so binding reads no files and needs no thread.
        return _without_secrets(_look(tool, written, scene), scene)
    looked = await asyncio.get_running_loop().run_in_executor(_THREADS, _look, tool, written, scene)
    return _of_a_lost_workspace(_without_secrets(looked, scene), scene, turn)


def _without_secrets(looked: Looked, scene: Scene) -> Looked:
    """
    Refuse a call whose prompt or arguments would hold a known secret: a bound call is journalled
    and shown. The reason holds no secret either (S1).
    """
    secrecy = secrecy_of(scene.secrets)
    if not secrecy.holds(msgspec.json.encode((looked.arguments, looked.binding, looked.problem))):
        return looked
    if looked.problem is not None:
        code, why = looked.problem[0], secrecy.hidden(looked.problem[1])
    else:
        what = (
            "its arguments hold"
            if looked.arguments is not None and secrecy.holds(looked.arguments)
            else "its prompt would hold"
        )
        code, why = "secret", f"{what} a secret"
    arguments = secrecy.hidden(looked.arguments) if looked.arguments is not None else None
    return msgspec.structs.replace(looked, arguments=arguments, binding=None, problem=(code, why))


def _of_a_lost_workspace(looked: Looked, scene: Scene, turn: Turn) -> Looked:
    """
    If the workspace was replaced by another folder, say so. The tool knows only that it has no
    workspace.
    """
    given = turn.context.workspace if isinstance(turn.context, TurnContext) else None
    if (
        given is None
        or scene.workspace is not None
        or looked.problem is None
        or looked.problem[0] != "cannot_bind"
    ):
        return looked
    return msgspec.structs.replace(
        looked,
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
    return "unknown_tool", f"there is no tool {name!r} here"


# Cached because a class never changes, and the protocol check takes longer than the binding.
@lru_cache(maxsize=256)
def _has_background(kind: type[Tool]) -> bool:
    return issubclass(kind, RunsInBackground)


def _look(tool: Tool, written: str, scene: Scene) -> Looked:
    try:
        arguments = tool.validate(written.encode())
    except (InvalidArguments, UnicodeEncodeError) as exc:
        return Looked(call=scene.call, problem=("invalid_arguments", str(exc)))
    try:
        binding = tool.bind(arguments, scene)
    except CannotBind as exc:
        return Looked(
            call=scene.call,
            definition=tool.definition,
            arguments=arguments.decode(),
            problem=(exc.code, str(exc)),
        )
    background = _has_background(type(tool)) and cast("RunsInBackground", tool).is_background(
        arguments
    )
    return Looked(
        call=scene.call,
        definition=tool.definition,
        arguments=arguments.decode(),
        binding=binding,
        background=background,
    )
