"""The line of the contract, run by the OpenAI Agents SDK with a scripted model."""

from dataclasses import dataclass
from typing import Any

from agents import Agent, FunctionTool, Model, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.testing import assistant_message, function_call
from agents.usage import Usage

import holdfast
from holdfast.integrations.openai_agents import gated, run
from holdfast.testing.under import Effects, RunEnd, Say, next_step
from holdfast.testing.under.tools import LAG_SECONDS, MODES

set_tracing_disabled(disabled=True)


@dataclass
class Task:
    """The input of the nested agent."""

    task: str


class Script(Model):
    """Counts how often the model is really asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002  # the framework's name
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        del system_instructions
        self.asked += 1
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        last = max(n for n, each in enumerate(items) if each.get("role") == "user")
        results = [
            (each["call_id"], str(each["output"]))
            for each in items[last:]
            if each.get("type") == "function_call_output"
        ]
        told = " ".join(str(each.get("content") or each.get("output")) for each in items[:last])
        step = next_step(str(items[last]["content"]), results, told)
        if isinstance(step, Say):
            output: list[Any] = [assistant_message(step.text)]
        else:
            output = [function_call(e.tool, e.arguments, call_id=e.id) for e in step]
        return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def tools_of(effects: Effects) -> list[FunctionTool]:
    return [
        function_tool(function, name_override=name, timeout=LAG_SECONDS if name == "lag" else None)
        for name, function in effects.tools().items()
    ]


def agent_of(home: holdfast.Home, effects: Effects, model: Model) -> Agent[Any]:
    tools = tools_of(effects)
    own = gated(home, tools, settings={each.name: MODES[each.name] for each in tools})
    helper = Agent("helper", model=model, tools=list(own))
    asking = helper.as_tool(
        "helper",
        "Let the helper do it.",
        parameters=Task,
        input_builder=lambda given: given["params"]["task"],
    )
    (ask_helper,) = gated(home, [asking], settings={"helper": MODES["helper"]})
    return Agent("ops", model=model, tools=[*own, ask_helper])


async def line(
    home: holdfast.Home,
    session: str,
    text: str,
    *,
    source: holdfast.MessageSource,
    dedup: str,
    effects: Effects,
) -> RunEnd:
    model = Script()
    agent = agent_of(home, effects, model)
    done = await run(agent, home, session, text, source=source, dedup=dedup)
    return RunEnd(waiting=done.waiting, text=done.text, model_calls=model.asked)
