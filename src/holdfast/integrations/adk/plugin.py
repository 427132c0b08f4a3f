"""
The plugin: each answer of a model is in the journal before its calls run, and an answer that is
there is returned without asking the model again.

It holds no gate. A plugin can be left out or skipped; a gated tool can't.
"""

import uuid
from typing import Any

from google.adk.models import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

import holdfast
from holdfast.integrations.adk.steps import ADAPTER, AgentSteps, steps_or_none
from holdfast.integrations.adk.tools import GatedAdkTool
from holdfast.integrations.gated_tools import drop_unrun, text_of


class HoldfastPlugin(BasePlugin):
    """One for any number of runners. `run` adds it to a runner that has none."""

    def __init__(self) -> None:
        super().__init__(name="holdfast")

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
        """Replay a recorded answer. While a call waits, no model is asked."""
        steps = steps_or_none()
        if steps is None:
            return None  # not a turn of Holdfast; a gated tool refuses to run
        place = (callback_context.agent_name, callback_context.branch or "")
        known = await steps.recorded(*place)
        if known is not None:
            return LlmResponse.model_validate(known["response"])
        if steps.turn.approvals:
            callback_context.actions.escalate = True  # leaves a loop of agents
            return _says("A call waits for an approver.")
        await drop_unrun(steps.turn)
        if steps.note:
            llm_request.append_instructions([steps.note])
        tools = llm_request.tools_dict.items()
        steps.without_gate[place] = frozenset(
            name for name, each in tools if not isinstance(each, GatedAdkTool)
        )
        return None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Record an answer. Part of a streamed one is not recorded."""
        steps = steps_or_none()
        if steps is None or llm_response.partial:
            return
        parts = llm_response.content.parts or [] if llm_response.content else []
        for part in parts:
            if part.function_call is not None and not part.function_call.id:
                part.function_call.id = f"adk-{uuid.uuid4()}"  # a replay must have the same
        place = (callback_context.agent_name, callback_context.branch or "")
        await _record(steps, place, llm_response, parts)


async def _record(
    steps: AgentSteps, place: tuple[str, str], response: Any, parts: list[types.Part]
) -> None:
    """A call of an unknown tool is recorded too: its gate is closed."""
    without_gate = steps.without_gate.get(place, frozenset())
    calls = [part.function_call for part in parts if part.function_call is not None]
    usage = response.usage_metadata
    written = response.model_dump(mode="json", exclude_none=True)
    gates = await steps.turn.said(
        "".join(part.text or "" for part in parts if not part.thought),
        [
            holdfast.LoopCall(each.id, each.name, each.args or {})
            for each in calls
            if each.name not in without_gate
        ],
        usage=holdfast.Usage(
            input_tokens=(usage and usage.prompt_token_count) or 0,
            output_tokens=(usage and usage.candidates_token_count) or 0,
            cached_tokens=(usage and usage.cached_content_token_count) or 0,
        ),
        model=response.model_version,
        blob=text_of({"agent": place[0], "branch": place[1], "response": written}),
        adapter=ADAPTER,
    )
    steps.gates.update({each.id: each for each in gates if each.id is not None})


def _says(text: str) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))
