"""Bad input under Pydantic AI: reported to the model, and nothing runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast import limits
from holdfast.integrations.pydantic_ai import Under

alice = holdfast.MessageSource.local("alice")


def agent_of(effects: list[str], mode: str, *calls: Any) -> Agent[None, Any]:
    """An agent whose model makes these calls, one after another, and then reports."""
    steps = iter(calls)

    def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        step = next(steps, None)
        return ModelResponse([TextPart("ended") if step is None else ToolCallPart(*step)])

    agent: Agent[None, Any] = Agent(
        FunctionModel(answer), output_type=[str, DeferredToolRequests], retries=5
    )

    @agent.tool_plain(metadata={"holdfast": {"mode": mode}})
    def restart(service: str) -> str:
        effects.append(service)
        return "restarted"

    return agent


def test_unknown_tools_and_arguments_that_do_not_fit_are_reported_and_run_nothing(
    tmp_path: Path,
) -> None:
    effects: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            calls = [
                ("nothing", {}, "c1"),
                ("restart", {"service": 7}, "c2"),
                ("restart", {"service": "api"}, "c3"),
            ]
            under = Under(home, "ops/api", source=alice, dedup="m1")
            result = await agent_of(effects, "auto", *calls).run("go", capabilities=[under])
            assert (result.output, effects) == ("ended", ["api"])
            found = {each.id: (each.outcome, each.code) for each in await home.calls("ops/api")}
            assert found == {"c2": ("error", "invalid_arguments"), "c3": ("ok", None)}

    asyncio.run(story())


def test_a_deferred_result_is_never_consent(tmp_path: Path) -> None:
    effects: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            agent = agent_of(effects, "ask", ("restart", {"service": "api"}, "c1"))
            under = Under(home, "ops/api", source=alice, dedup="m1")
            paused = await agent.run("go", capabilities=[under])
            assert under.waiting
            again = Under(home, "ops/api", source=alice, dedup="m1")
            yes = DeferredToolResults(approvals={"c1": True})
            history = paused.all_messages()
            await agent.run(
                "go", message_history=history, deferred_tool_results=yes, capabilities=[again]
            )
            assert (again.waiting, effects) == (True, [])
            with pytest.raises(holdfast.Refused) as refused:  # without the message, of no turn
                await agent.run(
                    message_history=history, deferred_tool_results=yes, capabilities=[again]
                )
            assert (refused.value.code, effects) == ("dedup_conflict", [])
            assert len(await home.approvals()) == 1

    asyncio.run(story())


def test_answers_over_the_bound_and_of_another_version_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            agent = agent_of(effects, "auto", ("restart", {"service": "x" * 5000}, "c1"))
            under = Under(home, "ops/api", source=alice, dedup="m1")
            with monkeypatch.context() as patch:
                patch.setattr(limits, "BLOB_BYTES_MAX", 4000)
                with pytest.raises(holdfast.Refused, match=r"5.* bytes; 4000 are the most"):
                    await agent.run("go", capabilities=[under])
            assert effects == []
            assert (await agent.run("go", capabilities=[under])).output == "ended"
            async with home.turn("ops/web", "go", source=alice, dedup="m1") as turn:
                await turn.said("hm", blob="{}", adapter="pydantic-ai/2")
            other = Under(home, "ops/web", source=alice, dedup="m1")
            with pytest.raises(holdfast.Refused, match="pydantic-ai/2 kept this state"):
                await agent.run("go", capabilities=[other])

    asyncio.run(story())
