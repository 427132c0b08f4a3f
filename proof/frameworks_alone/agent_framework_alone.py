"""Agent Framework's own approvals. Its program stores the session, as its documentation shows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
)

from proof.frameworks_alone.effect import FileEffect

PACKAGES = ("agent-framework-core",)
STORED_BY = "your program"


class AgentFrameworkModel(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Calls restart once, then reports."""

    async def _inner_get_response(self, *, messages: Sequence[Message], **_: Any) -> ChatResponse:
        done = any(part.type == "function_result" for each in messages for part in each.contents)
        call = Content.from_function_call("c1", "restart", arguments={"service": "api"})
        return ChatResponse(messages=[Message("assistant", ["done" if done else call])])


def _agent(folder: Path) -> Any:
    def restart(service: str) -> str:
        """Restart one service."""
        return FileEffect(folder).restart(service)

    own = FunctionTool(name="restart", func=restart, approval_mode="always_require")
    return Agent(AgentFrameworkModel(), tools=[own])


def _stored(folder: Path) -> tuple[Any, list[Any]]:
    kept = json.loads((folder / "session.json").read_text())
    requests = [Content.from_dict(each) for each in kept["requests"]]
    return AgentSession.from_dict(kept["session"]), requests


async def _run(folder: Path, given: Any, session: Any) -> None:
    result = await _agent(folder).run(given, session=session)
    requests = [each.to_dict() for each in result.user_input_requests]
    kept = {"session": session.to_dict(), "requests": requests}
    (folder / "session.json").write_text(json.dumps(kept))


async def ask(folder: Path) -> None:
    await _run(folder, "restart the api", AgentSession())


async def pending(folder: Path) -> int:
    return len(_stored(folder)[1])


async def approve(folder: Path) -> None:
    session, requests = _stored(folder)
    yes = [each.to_function_approval_response(approved=True) for each in requests]
    await _run(folder, Message("user", yes), session)
