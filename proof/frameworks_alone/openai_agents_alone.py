"""OpenAI Agents' own approvals. Its program stores the run's state, as its documentation shows."""

import json
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner, RunState, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from proof.frameworks_alone.effect import FileEffect

PACKAGES = ("openai-agents",)
STORED_BY = "your program"
_QUIET = RunConfig(tracing_disabled=True)


def _agent(folder: Path, *, has_called: bool) -> Any:
    def restart(service: str) -> str:
        """Restart one service."""
        return FileEffect(folder).restart(service)

    call = function_call("restart", json.dumps({"service": "api"}), call_id="c1")
    steps = [[assistant_message("done")]] if has_called else [[call], [assistant_message("done")]]
    own = function_tool(restart, needs_approval=True)
    return Agent("ops", model=ScriptedModel(steps), tools=[own])


async def ask(folder: Path) -> None:
    agent = _agent(folder, has_called=False)
    result = await Runner.run(agent, "restart the api", run_config=_QUIET)
    (folder / "state.json").write_text(result.to_state().to_string())


async def _state(folder: Path) -> Any:
    text = (folder / "state.json").read_text()
    return await RunState.from_string(_agent(folder, has_called=True), text)


async def pending(folder: Path) -> int:
    return len((await _state(folder)).get_interruptions())


async def approve(folder: Path) -> None:
    state = await _state(folder)
    for each in state.get_interruptions():
        state.approve(each)
    result = await Runner.run(_agent(folder, has_called=True), state, run_config=_QUIET)
    (folder / "state.json").write_text(result.to_state().to_string())
