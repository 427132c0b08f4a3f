"""The line of the contract, run by ADK with a scripted model."""

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import FunctionTool
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from pydantic import BaseModel

import holdfast
from holdfast.integrations.adk import HoldfastSessionService, gated, run
from holdfast.testing.under import Effects, RunEnd, Say, next_step
from holdfast.testing.under.tools import MODES


class Task(BaseModel):
    """The input of the nested agent."""

    task: str


class Script(BaseLlm):
    """Counts how often the model is really asked."""

    asked: int = 0

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncGenerator[LlmResponse, None]:
        del stream
        self.asked += 1
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        said = [n for n, part in enumerate(parts) if part.text and _is_message(part.text)]
        last = said[-1]
        results = [
            (str(part.function_response.id), str(part.function_response.response))
            for part in parts[last:]
            if part.function_response is not None
        ]
        before = [str(part.text or part.function_response) for part in parts[:last]]
        note = str(llm_request.config.system_instruction)
        message = _message(str(parts[last].text))
        step = next_step(message, results, " ".join([*before, note]))
        if isinstance(step, Say):
            answer = [types.Part(text=step.text)]
        else:
            answer = [
                types.Part(
                    function_call=types.FunctionCall(
                        id=each.id, name=each.tool, args=each.arguments
                    )
                )
                for each in step
            ]
        yield LlmResponse(content=types.Content(role="model", parts=answer))


def _is_message(text: str) -> bool:
    return not text.startswith("For context")


def _message(text: str) -> str:
    """The task of a nested agent comes as JSON."""
    return Task.model_validate_json(text).task if text.startswith("{") else text


def tools_of(effects: Effects) -> list[Any]:
    found = []
    for name, function in effects.tools_that_keep_time().items():
        tool = FunctionTool(function)
        tool.custom_metadata = {"holdfast": MODES[name]}
        found.append(tool)
    return found


async def line(
    home: holdfast.Home,
    session: str,
    text: str,
    *,
    source: holdfast.MessageSource,
    dedup: str,
    effects: Effects,
) -> RunEnd:
    model = Script(model="scripted")
    own = gated(home, tools_of(effects))
    helper = LlmAgent(name="helper", model=model, tools=own, input_schema=Task)
    asking = gated(home, [AgentTool(helper)], settings={"helper": MODES["helper"]})
    agent = LlmAgent(name="ops", model=model, tools=[*own, *asking])
    runner = Runner(app_name="ops", agent=agent, session_service=HoldfastSessionService(home))
    done = await run(runner, home, session, text, source=source, dedup=dedup)
    return RunEnd(waiting=done.waiting, text=done.text, model_calls=model.asked)
