"""Microsoft Agent Framework."""

from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
)

import holdfast
from bench.framework.__main__ import Line
from holdfast.integrations.agent_framework import GatedRun, gated


class Model(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Makes calls, one after another, and then reports."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._left = calls

    async def _inner_get_response(self, **_: Any) -> ChatResponse:
        self._left -= 1
        if self._left < 0:
            return ChatResponse(messages=[Message("assistant", ["done"])])
        call = Content.from_function_call(
            f"c{self._left}", "look", arguments={"number": self._left}
        )
        return ChatResponse(messages=[Message("assistant", [call])])


async def look(number: int) -> str:
    """Look at a number."""
    return f"{number} is there"


def _tool() -> FunctionTool:
    modes = {"holdfast": {"mode": "auto", "contract": "pure"}}
    return FunctionTool(name="look", func=look, additional_properties=modes)


def alone() -> Line:
    async def line(calls: int, name: str) -> None:
        del name
        await Agent(Model(calls), tools=[_tool()]).run("go")

    return line


def under(home: holdfast.Home, source: holdfast.MessageSource) -> Line:
    tools = gated(home, [_tool()])

    async def line(calls: int, name: str) -> None:
        run = GatedRun(home, f"bench/{name}", source=source)
        done = await Agent(Model(calls), tools=tools).run("go", middleware=run.middleware)
        assert done.text == "done"

    return line
