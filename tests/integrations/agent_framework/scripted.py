"""The line of the contract, run by Microsoft Agent Framework with a scripted model."""

import json
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    ResponseStream,
)

import holdfast
from holdfast.integrations.agent_framework import GatedRun, gated, nested
from holdfast.testing.under import Effects, RunEnd, Say, next_step
from holdfast.testing.under.tools import MODES


class Script(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Counts how often the model is really asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,
    ) -> Any:
        del options, kwargs
        if stream:

            async def updates() -> AsyncIterable[ChatResponseUpdate]:
                for each in self._answer(messages).to_updates():
                    yield each

            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

        async def answer() -> ChatResponse:
            return self._answer(messages)

        return answer()

    def _answer(self, messages: Sequence[Message]) -> ChatResponse:
        self.asked += 1
        said = [each.text for each in messages if each.role == "user"]
        results = [
            (str(part.call_id), str(part.result))
            for each in messages
            for part in each.contents
            if part.type == "function_result"
        ]
        step = next_step(said[-1], results, " ".join(said[:-1]))
        if isinstance(step, Say):
            return ChatResponse(messages=[Message("assistant", [step.text])])
        calls = [
            Content.from_function_call(each.id, each.tool, arguments=json.dumps(each.arguments))
            for each in step
        ]
        return ChatResponse(messages=[Message("assistant", calls)])


def tools_of(effects: Effects) -> list[FunctionTool]:
    return [
        FunctionTool(
            name=name,
            description=str(function.__doc__),
            func=function,
            additional_properties={"holdfast": MODES[name]},
        )
        for name, function in effects.tools_that_keep_time().items()
    ]


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
    own = gated(home, tools_of(effects))
    helper = Agent(model, name="helper", tools=own, middleware=nested())
    asking = helper.as_tool(arg_name="task")
    asking.additional_properties = {"holdfast": MODES["helper"]}
    agent = Agent(model, tools=[*own, *gated(home, [asking])])
    run = GatedRun(home, session, source=source, dedup=dedup)
    result = await agent.run(text, middleware=run.middleware)
    return RunEnd(waiting=run.waiting, text=result.text, model_calls=model.asked)
