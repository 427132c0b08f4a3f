"""
Check whether this process can drive a session: it must resolve the turn's model, agent and
workspace, and every tool of the open batch.

The result names the missing part. A part that only another turn needs, or a turn that waits for a
person, does not count.
"""

import logging
from typing import NamedTuple

from holdfast.errors import Unusable
from holdfast.ports.tools import WRITING_TOOLS
from holdfast.runtime.context import World
from holdfast.runtime.drive.bound_call import agent_tools, tool_for
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.state import CallStatus, SessionState, Turn

_log = logging.getLogger("holdfast.service")


class MissingPart(NamedTuple):
    """A part that this process lacks, and how a person makes the session go on."""

    name: str
    remedy: str


# SESSION stands for the session's name.
_RESUME = "`holdfast resume SESSION` goes on then"
_BRING_THE_PROGRAM = "`holdfast --app MODULE:AGENT resume SESSION` brings it from your program"
_CHOOSE_A_MODEL = "`holdfast resume SESSION --model M` goes on with another model"
_PUT_BACK = f"put the folder back; {_RESUME}"


def why_cannot_drive(world: World, state: SessionState) -> MissingPart | None:
    """Return the part that this process lacks to drive the session; None if it lacks nothing."""
    running = state.turns.get(state.running) if state.running is not None else None
    turns = (
        [running]
        if running is not None
        else [turn for turn in state.turns.values() if not turn.waiting and not turn.only_waits]
    )
    for turn in turns:
        if turn.loop == "foreign":
            continue
        missing = (
            missing_part(world, turn.agent, turn.model)
            or _missing_tools(world, turn)
            or _unfit_folder(world, turn.agent, turn.context)
        )
        if missing is not None:
            return missing
    if running is None and state.queued and state.queued[0].loop == "ours":
        first = state.queued[0]
        return missing_part(world, first.agent, first.model) or _unfit_folder(
            world, first.agent, first.context
        )
    return None


def missing_part(world: World, agent: str, model: str) -> MissingPart | None:
    """Return the missing part of this agent and this model, for any turn."""
    remedy = _BRING_THE_PROGRAM
    try:
        agent_tools(world, world.agent(agent))
        remedy = _CHOOSE_A_MODEL
        world.models.resolve(model)
    except Unusable as exc:
        return MissingPart(exc.message, remedy)
    return None


def _missing_tools(world: World, turn: Turn) -> MissingPart | None:
    undecided = (CallStatus.PROPOSED, CallStatus.FINISHED)
    for call in turn.calls:
        if call.status is CallStatus.DELEGATED:
            if (
                call.delegate is not None
                and not call.delegate.exists
                and (missing := _missing_delegate(world, call.delegate.agent))
            ):
                return missing
        elif call.status not in undecided and tool_for(world, turn, call.tool) is None:
            return MissingPart(f"the tool {call.tool!r} is not here", _BRING_THE_PROGRAM)
    return None


def _unfit_folder(
    world: World, agent: str, context: TurnContext | LostContext
) -> MissingPart | None:
    """
    Check the turn's workspace.

    There are three cases:

    1. The folder is on another node that is alive: that node drives.
    2. The folder is missing: another process may have it, so this one cannot drive.
    3. The folder was replaced, or its node is gone and the path exists here: this process drives,
       and approvals for the old folder are voided.
    """
    workspace = context.workspace if isinstance(context, TurnContext) else None
    if workspace is None:
        return None
    if world.is_left_to(workspace.node):
        return MissingPart(
            f"its workspace {workspace.path} is on node {workspace.node}",
            "that node goes on with it",
        )
    if world.folder_identity(workspace.path) is None:
        return MissingPart(f"its workspace {workspace.path} is not here", _PUT_BACK)
    reached = code_in_reach(world, agent, workspace.path)
    return None if reached is None else MissingPart(reached, _RESUME)


def code_in_reach(world: World, agent: str, workspace: str) -> str | None:
    """
    Check whether the user's program lies where the agent's tools write. A changed program would be
    loaded next to the keys at the next start.

    This is refused where answers of scripts do not count as consent, because such code could give
    them. Elsewhere it is logged.
    """
    tools = [name for name in world.agent(agent).tools if name in WRITING_TOOLS]
    folders = world.code_folders(workspace) if tools else ()
    if not folders:
        return None
    text = (
        f"the program that this process runs next to the keys was loaded from {folders[0]}, which "
        f"{' and '.join(tools)} may write: "
        f"it is inside the workspace {workspace}; keep the two apart with --workspace FOLDER or "
        "--app FOLDER/FILE.py:AGENT"
    )
    if "script" not in world.policy().consent:
        return text
    if text not in world.warned:
        world.warned.add(text)
        _log.warning("%s", text)
    return None


def _missing_delegate(world: World, agent: str) -> MissingPart | None:
    """Return the missing part for a delegate that was started and may not exist yet."""
    try:
        return missing_part(world, agent, world.agent(agent).model)
    except Unusable as exc:
        return MissingPart(exc.message, _BRING_THE_PROGRAM)
