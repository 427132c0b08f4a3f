"""The OpenAI Agents SDK."""

from typing import Any

from agents import Agent, Model, RunConfig, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.testing import assistant_message, function_call
from agents.usage import Usage

import holdfast
from bench.framework.__main__ import Line
from holdfast.integrations.openai_agents import gated, run

set_tracing_disabled(disabled=True)
TURNS_MAX = 100


class Calls(Model):
    """Makes calls, one after another."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        self._left -= 1
        done = self._left < 0
        item = assistant_message("done") if done else _call(self._left)
        return ModelResponse(output=[item], usage=Usage(requests=1), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def _call(number: int) -> Any:
    return function_call("look", {"number": number}, call_id=f"c{number}")


@function_tool
async def look(number: int) -> str:
    """Look at a number."""
    return f"{number} is there"


def alone() -> Line:
    async def line(calls: int, name: str) -> None:
        del name
        agent = Agent("ops", model=Calls(calls), tools=[look])
        await Runner.run(agent, "go", max_turns=TURNS_MAX, run_config=RunConfig())

    return line


def under(home: holdfast.Home, source: holdfast.MessageSource) -> Line:
    tools = gated(home, [look], settings={"look": {"mode": "auto", "contract": "pure"}})

    async def line(calls: int, name: str) -> None:
        agent = Agent("ops", model=Calls(calls), tools=list(tools))
        done = await run(agent, home, f"bench/{name}", "go", source=source, max_turns=TURNS_MAX)
        assert done.text == "done"

    return line
