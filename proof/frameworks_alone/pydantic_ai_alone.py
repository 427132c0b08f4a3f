"""Pydantic AI's deferred tools. Its program stores the messages, as its documentation shows."""

from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from proof.frameworks_alone.effect import FileEffect

PACKAGES = ("pydantic-ai-slim",)
STORED_BY = "your program"


def _answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    done = any(isinstance(part, ToolReturnPart) for each in messages for part in each.parts)
    call = ToolCallPart("restart", {"service": "api"}, "c1")
    return ModelResponse([TextPart("done") if done else call])


def _agent(folder: Path) -> Agent[None, str | DeferredToolRequests]:
    agent: Agent[None, str | DeferredToolRequests] = Agent(
        FunctionModel(_answer), output_type=[str, DeferredToolRequests]
    )

    @agent.tool_plain(requires_approval=True)
    def restart(service: str) -> str:
        """Restart one service."""
        return FileEffect(folder).restart(service)

    return agent


async def ask(folder: Path) -> None:
    result = await _agent(folder).run("restart the api")
    (folder / "messages.json").write_bytes(result.all_messages_json())


async def pending(folder: Path) -> int:
    messages = ModelMessagesTypeAdapter.validate_json((folder / "messages.json").read_bytes())
    return sum(isinstance(part, ToolCallPart) for part in messages[-1].parts)


async def approve(folder: Path) -> None:
    messages = ModelMessagesTypeAdapter.validate_json((folder / "messages.json").read_bytes())
    result = await _agent(folder).run(
        message_history=messages, deferred_tool_results=DeferredToolResults(approvals={"c1": True})
    )
    (folder / "messages.json").write_bytes(result.all_messages_json())
