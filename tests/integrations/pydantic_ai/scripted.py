"""The line of the contract, run by Pydantic AI with a scripted model."""

from typing import Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.integrations.pydantic_ai import Nested, Under
from holdfast.testing.under import Effects, RunEnd, Say, next_step
from holdfast.testing.under.tools import LAG_SECONDS, MODES


class Script:
    """Counts how often the model is really asked."""

    def __init__(self) -> None:
        self.asked = 0

    def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.asked += 1
        parts = [part for message in messages for part in message.parts]
        said = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
        results = [
            (part.tool_call_id, str(part.content))
            for part in parts
            if isinstance(part, ToolReturnPart | RetryPromptPart)
        ]
        step = next_step(said[-1], results, " ".join(said[:-1]))
        if isinstance(step, Say):
            return ModelResponse([TextPart(step.text)])
        return ModelResponse([ToolCallPart(each.tool, each.arguments, each.id) for each in step])


def agents(effects: Effects, script: Script) -> Agent[None, Any]:
    model = FunctionModel(script.answer)
    helper: Agent[None, str] = Agent(model, name="helper")
    ops: Agent[None, Any] = Agent(model, output_type=[str, DeferredToolRequests])
    for agent in (helper, ops):
        for name, function in effects.tools().items():
            timeout = LAG_SECONDS if name == "lag" else None
            agent.tool_plain(metadata={"holdfast": MODES[name]}, timeout=timeout)(function)

    @ops.tool_plain(name="helper", metadata={"holdfast": MODES["helper"]})
    async def ask_helper(task: str) -> str:
        """Let the helper do it."""
        return (await helper.run(task, capabilities=[Nested()])).output

    return ops


async def line(
    home: holdfast.Home,
    session: str,
    text: str,
    *,
    source: holdfast.MessageSource,
    dedup: str,
    effects: Effects,
) -> RunEnd:
    script = Script()
    under = Under(home, session, source=source, dedup=dedup)
    result = await agents(effects, script).run(text, capabilities=[under])
    return RunEnd(waiting=under.waiting, text=str(result.output), model_calls=script.asked)
