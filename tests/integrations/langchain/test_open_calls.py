"""Open calls are closed with the journal's outcome, also under the real deepagents."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast

pytest.importorskip("deepagents", reason="make test-integrations has it")

alice = holdfast.MessageSource.local("alice")


async def leave_a_call_in_doubt(home: holdfast.Home, call_id: str) -> str:
    """A call of `ops/api` that was cancelled while it ran."""
    home.know(holdfast.SchemaTool("restart", {"type": "object"}, mode="auto"))
    async with home.turn("ops/api", "restart", source=alice, dedup="m0") as turn:
        gate = await turn.gate("restart", {}, id=call_id)
        await turn.start(gate)
    async with home.turn("ops/api", "restart", source=alice, dedup="m0") as turn:
        await turn.finish("it is in doubt")
    (call,) = await home.calls("ops/api")
    assert call.outcome == "in_doubt"
    return call.text


def test_open_calls_get_their_outcome_in_a_row_and_made_up_results_are_corrected(
    tmp_path: Path,
) -> None:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from holdfast.integrations.langchain_calls import closing_messages

    def call(call_id: str) -> Any:
        return {"name": "restart", "args": {}, "id": call_id}

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            doubt = await leave_a_call_in_doubt(home, "c1")
            asked = HumanMessage("restart", id="h1")
            made = AIMessage("", tool_calls=[call("c1"), call("c2")], id="a1")
            done = ToolMessage("done", tool_call_id="c2", id="t2")
            later = HumanMessage("and now?", id="h2")

            async def closed(*messages: Any) -> list[tuple[str, str]]:
                found = await closing_messages(home, "ops/api", list(messages))
                return [(each.type, str(each.content)) for each in found]

            assert await closed(asked, made, done) == [("tool", doubt)]
            assert await closed(asked, made, done, later) == [
                ("remove", ""),
                ("human", "restart"),
                ("ai", ""),
                ("tool", "done"),
                ("tool", doubt),
                ("human", "and now?"),
            ]
            wrong = ToolMessage("did not complete", tool_call_id="c1", id="t1")
            assert ("tool", doubt) in await closed(asked, made, wrong, done, later)
            right = ToolMessage(doubt, tool_call_id="c1", id="t1")
            assert await closed(asked, made, right, done, later) == []

    asyncio.run(story())


def deep_agent(home: holdfast.Home, effects: list[str], **more: Any) -> Any:
    """A deep agent that hands the work to its built-in sub-agent, whose tool is gated."""
    from deepagents import create_deep_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import StructuredTool

    from holdfast.integrations.langchain import CloseOpenCalls, HoldfastSaver, gated

    class Deep(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            del tools
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            last = max(n for n, each in enumerate(messages) if isinstance(each, HumanMessage))
            text, results = str(messages[last].content), messages[last + 1 :]
            answer = AIMessage(
                "; ".join(str(each.content) for each in messages if each.type == "tool")
            )
            if not any(isinstance(each, ToolMessage) for each in results):
                if text.startswith("sub"):
                    args: dict[str, Any] = {"service": "api"}
                    answer = AIMessage(
                        "", tool_calls=[{"name": "restart", "args": args, "id": "r1"}]
                    )
                elif text == "restart it":
                    args = {"description": "sub: restart it", "subagent_type": "general-purpose"}
                    answer = AIMessage("", tool_calls=[{"name": "task", "args": args, "id": "k1"}])
            return ChatResult(generations=[ChatGeneration(message=answer)])

    async def restart(service: str) -> str:
        """Restart one service."""
        effects.append(service)
        return f"{service} restarted"

    own = gated(home, [StructuredTool.from_function(coroutine=restart)])
    closing = CloseOpenCalls(home)
    return create_deep_agent(
        Deep(), own, middleware=[closing], checkpointer=HoldfastSaver(home), **more
    )


def test_a_sub_agent_of_deepagents_pauses_its_parent_and_its_call_runs_once(tmp_path: Path) -> None:
    from holdfast.integrations.langchain import run

    effects: list[str] = []

    async def line(home: holdfast.Home) -> Any:
        agent = deep_agent(home, effects)
        return await run(agent, home, "ops/api", "restart it", source=alice, dedup="m1")

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            assert (await line(home)).waiting
            assert effects == []
            (asked,) = await home.approvals()
            await home.answer(asked, "approve_once", by=alice, wait=False)
        async with holdfast.open(tmp_path) as home:
            done = await line(home)
            assert (done.waiting, effects, "api restarted" in done.text) == (False, ["api"], True)

    asyncio.run(story())


def test_deepagents_tells_its_model_of_a_doubt_and_not_that_a_call_did_not_complete(
    tmp_path: Path,
) -> None:
    """The graph is driven without `run`, so that only the middleware can close the call."""
    from langchain_core.messages import AIMessage, HumanMessage

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            doubt = await leave_a_call_in_doubt(home, "c1")
            agent = deep_agent(home, [])
            config: Any = {"configurable": {"thread_id": "ops/api"}}
            made = AIMessage("", tool_calls=[{"name": "restart", "args": {}, "id": "c1"}])
            given = [HumanMessage("restart"), made, HumanMessage("how is it?")]
            done = await agent.ainvoke({"messages": given}, config)
            assert done["messages"][-1].content == doubt

    asyncio.run(story())
