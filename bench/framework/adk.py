"""Google's Agent Development Kit."""

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner, Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

import holdfast
from bench.framework.__main__ import Line
from holdfast.integrations.adk import gated, run

USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=9)


class Calls(BaseLlm):
    """Makes calls, one after another."""

    left: int

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT001, FBT002  # the framework's signature
    ) -> AsyncGenerator[LlmResponse, None]:
        del llm_request, stream
        self.left -= 1
        call = types.FunctionCall(id=f"c{self.left}", name="look", args={"number": self.left})
        part = types.Part(text="done") if self.left < 0 else types.Part(function_call=call)
        content = types.Content(role="model", parts=[part])
        yield LlmResponse(content=content, usage_metadata=USAGE)


async def look(number: int) -> str:
    """Look at a number."""
    return f"{number} is there"


def alone() -> Line:
    async def line(calls: int, name: str) -> None:
        runner = InMemoryRunner(_agent(calls, [look]), app_name="bench")
        names: dict[str, Any] = {"user_id": "u", "session_id": name}
        await runner.session_service.create_session(app_name="bench", **names)
        message = types.Content(role="user", parts=[types.Part(text="go")])
        async for _ in runner.run_async(**names, new_message=message):
            pass

    return line


def under(home: holdfast.Home, source: holdfast.MessageSource) -> Line:
    """Both have their sessions in memory: the call is measured, not where ADK keeps events."""
    tools = gated(home, [look], settings={"look": {"mode": "auto", "contract": "pure"}})
    service = InMemorySessionService()

    async def line(calls: int, name: str) -> None:
        runner = Runner(app_name="bench", agent=_agent(calls, tools), session_service=service)
        done = await run(runner, home, f"bench/{name}", "go", source=source)
        assert done.text == "done"

    return line


def _agent(calls: int, tools: list[Any]) -> LlmAgent:
    return LlmAgent(name="ops", model=Calls(model="calls", left=calls), tools=tools)
