"""ADK's own tool confirmation, with its SQLite session service."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool
from google.genai import types

from proof.frameworks_alone.effect import FileEffect

PACKAGES = ("google-adk",)
STORED_BY = "the framework"
_WHERE: Any = {"user_id": "alice", "session_id": "ops"}
_CONFIRMATION = "adk_request_confirmation"


class AdkModel(BaseLlm):
    """Calls restart once, then reports."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: Any = None
    ) -> AsyncGenerator[LlmResponse, None]:
        del stream
        parts = [part for each in llm_request.contents for part in each.parts or ()]
        done = any(part.function_response is not None for part in parts)
        call = types.FunctionCall(id="c1", name="restart", args={"service": "api"})
        part = types.Part(text="done") if done else types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def _runner(folder: Path) -> Any:
    def restart(service: str) -> str:
        """Restart one service."""
        return FileEffect(folder).restart(service)

    own = FunctionTool(restart, require_confirmation=True)
    agent = LlmAgent(name="ops", model=AdkModel(model="scripted"), tools=[own])
    store = SqliteSessionService(str(folder / "sessions.db"))
    return Runner(app_name="ops", agent=agent, session_service=store)


async def _run(folder: Path, part: Any) -> None:
    message = types.Content(role="user", parts=[part])
    async for _ in _runner(folder).run_async(**_WHERE, new_message=message):
        pass


async def _requests(folder: Path) -> list[Any]:
    session = await _runner(folder).session_service.get_session(app_name="ops", **_WHERE)
    calls = [call for event in session.events for call in event.get_function_calls()]
    return [each for each in calls if each.name == _CONFIRMATION]


async def ask(folder: Path) -> None:
    await _runner(folder).session_service.create_session(app_name="ops", **_WHERE)
    await _run(folder, types.Part(text="restart the api"))


async def pending(folder: Path) -> int:
    return len(await _requests(folder))


async def approve(folder: Path) -> None:
    for each in await _requests(folder):
        yes = types.FunctionResponse(id=each.id, name=_CONFIRMATION, response={"confirmed": True})
        await _run(folder, types.Part(function_response=yes))
