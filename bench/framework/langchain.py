"""LangChain agents on LangGraph."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

import holdfast
from bench.framework.__main__ import Line
from holdfast.integrations.langchain import gated, run

STEPS_MAX = 200


class Calls(BaseChatModel):
    """Makes calls, one after another."""

    left: int

    @property
    def _llm_type(self) -> str:
        return "calls"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        del tools
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        del messages
        self.left -= 1
        call = {"name": "look", "args": {"number": self.left}, "id": f"c{self.left}"}
        answer = AIMessage("done") if self.left < 0 else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


async def _look(number: int) -> str:
    """Look at a number."""
    return f"{number} is there"


def _tool() -> StructuredTool:
    metadata = {"holdfast": {"mode": "auto", "contract": "pure"}}
    return StructuredTool.from_function(coroutine=_look, name="look", metadata=metadata)


def alone() -> Line:
    async def line(calls: int, name: str) -> None:
        agent = create_agent(Calls(left=calls), [_tool()], checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": name}, "recursion_limit": STEPS_MAX}
        await agent.ainvoke({"messages": [("user", "go")]}, config, durability="sync")

    return line


def under(home: holdfast.Home, source: holdfast.MessageSource) -> Line:
    """Both have their checkpoints in memory: the call is measured, not where they are kept."""
    tools = gated(home, [_tool()])

    async def line(calls: int, name: str) -> None:
        agent = create_agent(Calls(left=calls), tools, checkpointer=InMemorySaver())
        config = {"recursion_limit": STEPS_MAX}
        done = await run(agent, home, f"bench/{name}", "go", source=source, config=config)
        assert done.text == "done"

    return line
