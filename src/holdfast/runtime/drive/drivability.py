"""
Whether this process can drive a session on: it must be able to resolve the turn's model, agent and
workspace, and every tool of the open batch.

What it lacks is said in words. What it lacks only for another turn, or for one that waits for a
person, hinders nothing.
"""

import logging

from holdfast.errors import Unusable
from holdfast.ports.tools import WRITING_TOOLS
from holdfast.runtime.context import World
from holdfast.runtime.drive.binding import agent_tools, tool_for
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.state import CallStatus, SessionState, Turn

_log = logging.getLogger("holdfast.service")


def why_cannot_drive(world: World, state: SessionState) -> str | None:
    """What this process lacks to drive the session on, in words; None when it lacks nothing."""
    running = state.turns.get(state.running) if state.running is not None else None
    turns = (
        [running]
        if running is not None
        else [turn for turn in state.turns.values() if not turn.waiting and not turn.only_waits]
    )
    for turn in turns:
        if turn.loop == "foreign":
            continue
        if (
            lacking := lacks(world, turn.agent, turn.model)
            or _lacking_tools(world, turn)
            or _unfit_folder(world, turn.agent, turn.context)
        ):
            return lacking
    if running is None and state.queued:
        first = state.queued[0]
        return lacks(world, first.agent, first.model) or _unfit_folder(
            world, first.agent, first.context
        )
    return None


def lacks(world: World, agent: str, model: str) -> str | None:
    """What is missing of this agent and this model, whatever the turn."""
    try:
        agent_tools(world, world.agent(agent))
        world.model(model)
    except Unusable as exc:
        return exc.message
    return None


def _lacking_tools(world: World, turn: Turn) -> str | None:
    undecided = (CallStatus.PROPOSED, CallStatus.FINISHED)
    for call in turn.calls:
        if call.status is CallStatus.DELEGATED:
            if (
                call.delegate is not None
                and not call.delegate.born
                and (lacking := _lacking_delegate(world, call.delegate.agent))
            ):
                return lacking
        elif call.status not in undecided and tool_for(world, turn, call.tool) is None:
            return f"the tool {call.tool!r} is not here"
    return None


def _unfit_folder(world: World, agent: str, context: TurnContext | LostContext) -> str | None:
    """
    A folder that is not there may be where somebody else drives. One that was replaced is here:
    what was approved for the old one is voided.
    """
    workspace = context.workspace if isinstance(context, TurnContext) else None
    if workspace is None:
        return None
    if world.folder_identity(workspace.path) is None:
        return f"its workspace {workspace.path} is not here"
    return code_in_reach(world, agent, workspace.path)


def code_in_reach(world: World, agent: str, workspace: str) -> str | None:
    """
    The user's program lies where the agent's tools write: who changes it is loaded next to the keys
    the next time.

    That is refused where answers of scripts do not count as consent, because such code could give
    them. Elsewhere it is said.
    """
    tools = [name for name in world.agent(agent).tools if name in WRITING_TOOLS]
    folders = world.code_folders(workspace) if tools else ()
    if not folders:
        return None
    text = (
        f"the program that this process runs next to the keys was loaded from {folders[0]}, which {' and '.join(tools)} may write: "
        f"it is inside the workspace {workspace}; keep the two apart with --workspace FOLDER or --app FOLDER/FILE.py:AGENT"
    )
    if "script" not in world.policy().consent:
        return text
    if text not in world.warned:
        world.warned.add(text)
        _log.warning("%s", text)
    return None


def _lacking_delegate(world: World, agent: str) -> str | None:
    """
    What is missing to bring a delegate into the world that was started and may not be there yet.
    """
    try:
        return lacks(world, agent, world.agent(agent).model)
    except Unusable as exc:
        return exc.message
