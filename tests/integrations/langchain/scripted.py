"""The line of the contract, run by a LangChain agent on LangGraph with a scripted model."""

from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

import holdfast
from holdfast.integrations.langchain import HoldfastSaver, gated, run
from holdfast.testing.under import Effects, RunEnd, Say, next_step
from holdfast.testing.under.tools import MODES


class Script(BaseChatModel):
    """Counts how often the model is really asked."""

    asked: list[int]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        del tools
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(1)
        last = max(n for n, each in enumerate(messages) if isinstance(each, HumanMessage))
        results = [
            (each.tool_call_id, str(each.content))
            for each in messages[last:]
            if isinstance(each, ToolMessage)
        ]
        told = " ".join(str(each.content) for each in messages[:last])
        step = next_step(str(messages[last].content), results, told)
        if isinstance(step, Say):
            answer = AIMessage(step.text)
        else:
            calls = [{"name": e.tool, "args": e.arguments, "id": e.id} for e in step]
            answer = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def tools_of(effects: Effects) -> list[StructuredTool]:
    return [
        StructuredTool.from_function(
            coroutine=function, name=name, metadata={"holdfast": MODES[name]}
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
    model = Script(asked=[])
    own = gated(home, tools_of(effects))
    helper = create_agent(model, own)

    async def ask_helper(task: str, runtime: ToolRuntime) -> str:
        """Let the helper do it."""
        told = await helper.ainvoke({"messages": [("user", task)]}, runtime.config)
        return str(told["messages"][-1].content)

    asking = StructuredTool.from_function(
        coroutine=ask_helper, name="helper", metadata={"holdfast": MODES["helper"]}
    )
    agent = create_agent(model, [*own, *gated(home, [asking])], checkpointer=HoldfastSaver(home))
    done = await run(agent, home, session, text, source=source, dedup=dedup)
    return RunEnd(waiting=done.waiting, text=done.text, model_calls=len(model.asked))
