"""Bad input under LangChain: reported to the model, and nothing runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast

pytest.importorskip("langgraph", reason="make test-integrations has it")

alice = holdfast.MessageSource.local("alice")


def agent_of(home: holdfast.Home, effects: list[str], *calls: Any) -> Any:
    """An agent whose model makes these calls, one after another, and then reports."""
    from langchain.agents import create_agent
    from langchain_core.language_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import StructuredTool

    from holdfast.integrations.langchain import HoldfastSaver, gated

    class Scripted(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            del tools
            return self

    async def restart(service: str) -> str:
        """Restart one service."""
        effects.append(service)
        return "restarted"

    own = StructuredTool.from_function(coroutine=restart, metadata={"holdfast": {"mode": "auto"}})
    made = [{"name": name, "args": args, "id": f"c{n}"} for n, (name, args) in enumerate(calls)]
    script = [*(AIMessage("", tool_calls=[each]) for each in made), AIMessage("ended")]
    return create_agent(
        Scripted(responses=script), gated(home, [own]), checkpointer=HoldfastSaver(home)
    )


def test_unknown_tools_and_arguments_that_do_not_fit_are_reported_and_run_nothing(
    tmp_path: Path,
) -> None:
    from holdfast.integrations.langchain import run

    effects: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            calls = [("nothing", {}), ("restart", {}), ("restart", {"service": "api"})]
            agent = agent_of(home, effects, *calls)
            done = await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert (done.text, effects) == ("ended", ["api"])
            texts = [str(each.content) for each in done.result["messages"] if each.type == "tool"]
            assert "nothing is not a valid tool" in texts[0]
            assert "service" in texts[1]
            assert texts[2] == "restarted"

    asyncio.run(story())


def test_checkpoints_of_another_version_are_refused_and_stay(tmp_path: Path) -> None:
    from holdfast.integrations.langchain import run

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            newer = home.items("ops/api", adapter="langgraph/2")
            await newer.add("of another version", key="c")
            agent = agent_of(home, [], ("restart", {"service": "api"}))
            with pytest.raises(holdfast.Refused, match="langgraph/2") as refused:
                await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert refused.value.code == "adapter_version"
            assert len(await newer.list()) == 1
            assert await home.calls("ops/api") == ()

    asyncio.run(story())


def test_a_resume_value_is_never_consent(tmp_path: Path) -> None:
    """A caller who resumes the graph by its own means reaches a tool without a turn."""
    from langgraph.types import Command

    from holdfast.integrations.langchain import run

    effects: list[str] = []

    async def story() -> None:
        (tmp_path / "holdfast.toml").write_text('[policy.personal]\nrestart = "ask"\n')
        async with holdfast.open(tmp_path) as home:
            agent = agent_of(home, effects, ("restart", {"service": "api"}))
            done = await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert done.waiting
            config: Any = {"configurable": {"thread_id": "ops/api"}}
            with pytest.raises(holdfast.Unusable, match="outside of a turn"):
                await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
            assert effects == []
            (asked,) = await home.approvals()
            assert asked.tool == "restart"

    asyncio.run(story())
