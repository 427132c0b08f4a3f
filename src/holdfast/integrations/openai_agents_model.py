"""
The model of a run under the OpenAI Agents SDK: each answer is in the journal before its calls run,
and an answer that is there is returned without asking the model again.

It stands in for the model of every agent of the run, also of those that a handoff or a tool
reaches, and asks the model that the agent itself has.
"""

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Never

from agents import Agent, FunctionTool, Model, ModelSettings, RunConfig
from agents.items import ItemHelpers, ModelResponse
from agents.models import get_default_model_settings
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage
from pydantic import TypeAdapter

import holdfast
from holdfast.integrations.gated_tools import drop_unrun
from holdfast.integrations.openai_agents_session import ADAPTER

_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_asking: ContextVar[Agent[Any]] = ContextVar("holdfast_asking_agent")
_steps: ContextVar["Steps"] = ContextVar("holdfast_steps")


class Steps:
    """
    The answers of one agent run. `taken` is shared by a run and the runs inside of its tools: it
    counts, for the path of calls that leads to a run, the answers that its framework has.
    """

    def __init__(
        self,
        turn: holdfast.ExternalTurn,
        taken: dict[str, int],
        *,
        path: str = "",
        note: str = "",
    ) -> None:
        self.turn, self.taken, self.path, self.note = turn, taken, path, note
        self._answers: tuple[holdfast.LoopAnswer, ...] | None = None
        # The gates of answers that were recorded just now, as they stood then.
        self.gates: dict[str, holdfast.Gate] = {}

    def inside(self, call_id: str, turn: holdfast.ExternalTurn) -> "Steps":
        """The steps of an agent that a call runs."""
        return Steps(turn, self.taken, path=f"{self.path}{call_id}/")

    async def recorded(self) -> holdfast.LoopAnswer | None:
        """The next answer, if it is in the journal."""
        if self._answers is None:
            self._answers = await self.turn.answers(adapter=ADAPTER)
        number = self.taken.get(self.path, 0)
        return self._answers[number] if number < len(self._answers) else None

    def took(self) -> None:
        self.taken[self.path] = self.taken.get(self.path, 0) + 1


@contextmanager
def stepping(steps: Steps) -> Generator[None, None, None]:
    token = _steps.set(steps)
    try:
        yield
    finally:
        _steps.reset(token)


def current_steps() -> Steps:
    steps = _steps.get(None)
    if steps is None:
        raise holdfast.Unusable(
            "a model was asked outside of a turn",
            code="no_turn",
            hint="run the agent with holdfast.integrations.openai_agents.run",
        )
    return steps


def under(config: RunConfig) -> RunConfig:
    """The same settings of a run, with every model recorded."""

    async def watched(data: Any) -> Any:
        _asking.set(data.agent)  # in the task that asks the model next
        chosen = config.call_model_input_filter
        found = data.model_data if chosen is None else chosen(data)
        return await found if inspect.isawaitable(found) else found

    return replace(config, model=RecordedModel(config), call_model_input_filter=watched)


class RecordedModel(Model):
    """Asks the model of the agent whose turn it is, and records its answer."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def _own(self) -> Model:
        """The model that the agent would have without this one."""
        agent, given = _asking.get(), self._config.model
        chosen = agent.model if given is None else given
        return (
            chosen if isinstance(chosen, Model) else self._config.model_provider.get_model(chosen)
        )

    def _own_settings(self, settings: ModelSettings) -> ModelSettings:
        """
        The SDK drops the settings that a model's name implies when the run has a model of its own.
        """
        agent, given = _asking.get(), self._config.model
        name = agent.model if given is None else given
        if isinstance(name, Model):
            return settings
        implied = get_default_model_settings(name) if name else get_default_model_settings()
        usual = _implied_by(agent)
        return implied.resolve(settings) if agent.model_settings == usual else settings

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002  # the framework's name
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any,
        handoffs: list[Any],
        tracing: Any,
        **more: Any,
    ) -> ModelResponse:
        steps = current_steps()
        known = await steps.recorded()
        if known is not None:
            steps.took()
            return _RESPONSE.validate_json(known.blob or b"{}")
        await drop_unrun(steps.turn)
        response = await self._own().get_response(
            system_instructions,
            _with_note(steps.note, input),
            self._own_settings(model_settings),
            tools,
            output_schema,
            handoffs,
            tracing,
            **more,
        )
        without_gate = {each.name for each in tools if not is_gated(each)}
        without_gate |= {each.tool_name for each in handoffs}
        gates = await _record(steps.turn, response, without_gate)
        steps.gates = {each.id: each for each in gates if each.id is not None}
        steps.took()
        return response

    def stream_response(self, *_: Any, **__: Any) -> Never:
        raise holdfast.Unusable(
            "a streamed answer can't be recorded before its calls run",
            code="malformed",
            hint="run the agent without streaming, also inside of tools: as_tool(on_stream=None)",
        )

    def get_retry_advice(self, request: Any) -> Any:
        return self._own().get_retry_advice(request)


def _implied_by(agent: Agent[Any]) -> ModelSettings:
    if isinstance(agent.model, Model):
        return ModelSettings()
    return get_default_model_settings(agent.model) if agent.model else get_default_model_settings()


def _with_note(note: str, given: str | list[Any]) -> str | list[Any]:
    if not note:
        return given
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [{"role": "system", "content": note}, *items]


async def _record(
    turn: holdfast.ExternalTurn, response: ModelResponse, without_gate: set[str]
) -> tuple[holdfast.Gate, ...]:
    """A call of an unknown tool is recorded too: its gate is closed."""
    calls = [
        holdfast.LoopCall(each.call_id, each.name, each.arguments)
        for each in response.output
        if isinstance(each, ResponseFunctionToolCall) and each.name not in without_gate
    ]
    texts = [
        ItemHelpers.extract_text(each) or ""
        for each in response.output
        if isinstance(each, ResponseOutputMessage)
    ]
    usage = response.usage
    return await turn.said(
        "".join(texts),
        calls,
        usage=holdfast.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.input_tokens_details.cached_tokens or 0,
        ),
        blob=_RESPONSE.dump_json(response, exclude_unset=True),
        adapter=ADAPTER,
    )


def is_gated(tool: Any) -> bool:
    return isinstance(tool, FunctionTool) and getattr(tool.on_invoke_tool, "holdfast", False)
