"""Pydantic AI."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from bench.framework.__main__ import Line
from holdfast.integrations.pydantic_ai import Under


def _agent(calls: int) -> Agent[None, str]:
    left = [calls]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del messages, info
        left[0] -= 1
        if left[0] < 0:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("look", {"number": left[0]}, f"c{left[0]}")])

    agent: Agent[None, str] = Agent(FunctionModel(answer))

    @agent.tool_plain(metadata={"holdfast": {"mode": "auto", "contract": "pure"}})
    async def look(number: int) -> str:
        """Look at a number."""
        return f"{number} is there"

    return agent


def alone() -> Line:
    async def line(calls: int, name: str) -> None:
        del name
        await _agent(calls).run("go")

    return line


def under(home: holdfast.Home, source: holdfast.MessageSource) -> Line:
    async def line(calls: int, name: str) -> None:
        capability = Under(home, f"bench/{name}", source=source)
        done = await _agent(calls).run("go", capabilities=[capability])
        assert done.output == "done"

    return line
