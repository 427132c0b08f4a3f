"""LangChain's own approval middleware on LangGraph, with its SQLite checkpointer."""

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from proof.frameworks_alone.effect import FileEffect

PACKAGES = ("langchain", "langgraph", "langgraph-checkpoint-sqlite")
STORED_BY = "the framework"
CONFIG: Any = {"configurable": {"thread_id": "ops"}}


class LangChainModel(BaseChatModel):
    """Calls restart once, then reports."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        del tools
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        done = any(isinstance(each, ToolMessage) for each in messages)
        call = {"name": "restart", "args": {"service": "api"}, "id": "c1"}
        answer = AIMessage("done") if done else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _agent(folder: Path, saver: Any) -> Any:
    def restart(service: str) -> str:
        """Restart one service."""
        return FileEffect(folder).restart(service)

    asking = HumanInTheLoopMiddleware(interrupt_on={"restart": True})
    return create_agent(LangChainModel(), [restart], middleware=[asking], checkpointer=saver)


async def ask(folder: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
        given = {"messages": [("user", "restart the api")]}
        await _agent(folder, saver).ainvoke(given, CONFIG, durability="sync")


async def pending(folder: Path) -> int:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
        return len((await _agent(folder, saver).aget_state(CONFIG)).interrupts)


async def approve(folder: Path) -> None:
    """Approve what is pending; without anything pending, go on where the graph stands."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
        agent = _agent(folder, saver)
        state = await agent.aget_state(CONFIG)
        yes = Command(resume={"decisions": [{"type": "approve"}]})
        await agent.ainvoke(yes if state.interrupts else None, CONFIG, durability="sync")
