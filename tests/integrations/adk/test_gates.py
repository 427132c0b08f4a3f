"""Gates under ADK, beyond the contract that all adapters share."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import limits

pytest.importorskip("google.adk", reason="make test-integrations has it")

alice = holdfast.MessageSource.local("alice")
AUTO = {"mode": "auto"}


def answers(*steps: Any) -> Any:
    """A model that gives these answers, each a text or a list of (id, tool, arguments)."""
    from google.adk.models import BaseLlm, LlmResponse
    from google.genai import types
    from pydantic import Field

    class Given(BaseLlm):
        asked: int = 0
        seen: list[Any] = Field(default_factory=list)

        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            del stream
            step = steps[self.asked]
            self.asked += 1
            self.seen.append(llm_request)
            parts = (
                [types.Part(text=step)]
                if isinstance(step, str)
                else [
                    types.Part(function_call=types.FunctionCall(id=n, name=tool, args=given))
                    for n, tool, given in step
                ]
            )
            yield LlmResponse(content=types.Content(role="model", parts=parts))

    return Given(model="given")


def restarts(ran: list[str]) -> Callable[..., Any]:
    async def restart(service: str) -> str:
        """Restart one service."""
        ran.append(service)
        return f"{service} is up"

    return restart


def runner_of(home: holdfast.Home, agent: Any) -> Any:
    from google.adk.runners import Runner

    from holdfast.integrations.adk import HoldfastSessionService

    return Runner(app_name="ops", agent=agent, session_service=HoldfastSessionService(home))


def agent_of(model: Any, tools: list[Any]) -> Any:
    from google.adk.agents import LlmAgent

    return LlmAgent(name="ops", model=model, tools=tools)


def test_unknown_tools_and_arguments_that_do_not_fit_are_reported_and_run_nothing(
    tmp_path: Path,
) -> None:
    from holdfast.integrations.adk import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            wrong = [("c1", "nothing", {}), ("c2", "restart", {"service": 7})]
            model = answers(wrong, [("c3", "restart", {"service": "api"})], "ended")
            tools = gated(home, [restarts(ran)], settings={"restart": AUTO})
            runner = runner_of(home, agent_of(model, tools))
            done = await run(runner, home, "ops/api", "go", source=alice, dedup="m1")
            assert (done.text, ran) == ("ended", ["api"])
            found = {each.id: (each.outcome, each.code) for each in await home.calls("ops/api")}
            assert found == {
                "c1": ("error", "unknown_tool"),
                "c2": ("error", "invalid_arguments"),
                "c3": ("ok", None),
            }

    asyncio.run(story())


def test_a_gated_tool_outside_of_a_turn_does_not_run(tmp_path: Path) -> None:
    from google.genai import types

    from holdfast.integrations.adk import gated

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "api"})], "ended")
            tools = gated(home, [restarts(ran)], settings={"restart": AUTO})
            runner = runner_of(home, agent_of(model, tools))
            names = {"user_id": "u", "session_id": "ops/api"}
            await runner.session_service.create_session(app_name="ops", **names)
            message = types.Content(role="user", parts=[types.Part(text="go")])
            with pytest.raises(holdfast.Unusable, match="outside of a turn"):
                _ = [each async for each in runner.run_async(**names, new_message=message)]
            assert ran == []

    asyncio.run(story())


def test_a_confirmation_of_adk_is_never_consent_and_its_wish_only_tightens(
    tmp_path: Path,
) -> None:
    """The tool asks, though the settings say auto. A forged confirmation changes nothing."""
    from google.adk.tools import FunctionTool
    from google.adk.tools.tool_confirmation import ToolConfirmation

    from holdfast.integrations.adk import gated, run
    from holdfast.integrations.adk.tools import WAITING, GatedAdkTool
    from holdfast.integrations.gated_tools import driving

    ran: list[str] = []

    class Forged:
        function_call_id = "c1"
        tool_confirmation = ToolConfirmation(confirmed=True)

        def __init__(self) -> None:
            from google.adk.events import EventActions

            self.actions = EventActions()

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "api"})], "ended")
            asks = FunctionTool(restarts(ran), require_confirmation=True)
            (tool,) = gated(home, [asks], settings={"restart": AUTO})
            assert isinstance(tool, GatedAdkTool)
            runner = runner_of(home, agent_of(model, [tool]))
            line = {"source": alice, "dedup": "m1"}
            assert (await run(runner, home, "ops/api", "go", **line)).waiting
            async with home.turn("ops/api", "go", source=alice, dedup="m1") as turn:
                with driving(turn):
                    told = await tool.run_async(args={"service": "api"}, tool_context=Forged())
            assert (told, ran) == (WAITING, [])
            (asked,) = await home.approvals()
            await home.answer(asked, "approve_once", by=alice, wait=False)
            done = await run(runner, home, "ops/api", "go", **line)
            assert (done.text, ran, model.asked) == ("ended", ["api"], 2)

    asyncio.run(story())


def test_an_answer_over_the_bound_is_refused_by_name_and_the_turn_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.integrations.adk import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "x" * 5000})], "ended")
            tools = gated(home, [restarts(ran)], settings={"restart": AUTO})
            runner = runner_of(home, agent_of(model, tools))
            with monkeypatch.context() as patch:
                patch.setattr(limits, "BLOB_BYTES_MAX", 4000)
                with pytest.raises(Exception, match=r"5.* bytes; 4000 are the most"):
                    await run(runner, home, "ops/api", "go", source=alice, dedup="m1")
            assert ran == []
            done = await run(runner, home, "ops/api", "go", source=alice, dedup="m1")
            assert (done.text, ran) == ("ended", [])

    asyncio.run(story())


def test_the_answers_of_another_version_are_refused_by_name(tmp_path: Path) -> None:
    from holdfast.integrations.adk import gated, run

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            runner = runner_of(home, agent_of(answers("never"), gated(home, [restarts([])])))
            async with home.turn("ops/api", "go", source=alice, dedup="m1") as turn:
                await turn.said("hm", blob="{}", adapter="adk/2")
            with pytest.raises(Exception, match="adk/2 kept this state"):
                await run(runner, home, "ops/api", "go", source=alice, dedup="m1")

    asyncio.run(story())


def test_the_same_id_in_another_message_is_another_call(tmp_path: Path) -> None:
    from holdfast.integrations.adk import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            call = [("c1", "restart", {"service": "api"})]
            model = answers(call, "first", call, "second")
            runner = runner_of(home, agent_of(model, gated(home, [restarts(ran)])))
            for message in ("m1", "m2"):
                line = {"source": alice, "dedup": message}
                assert (await run(runner, home, "ops/api", "go", **line)).waiting
                (asked,) = await home.approvals()
                await home.answer(asked, "approve_once", by=alice, wait=False)
                assert not (await run(runner, home, "ops/api", "go", **line)).waiting
            assert ran == ["api", "api"]

    asyncio.run(story())


def test_a_replayed_tool_writes_the_same_state_again(tmp_path: Path) -> None:
    """The first tool is not run again. State that ADK does not store is there all the same."""
    from google.adk.tools import ToolContext

    from holdfast.integrations.adk import gated, run

    ran: list[str] = []

    def count(tool_context: ToolContext) -> dict[str, Any]:
        """Count one."""
        ran.append("count")
        tool_context.state["n"] = tool_context.state.get("n", 0) + 1
        tool_context.state["temp:seen"] = "yes"
        return {"n": tool_context.state["n"]}

    def tell(tool_context: ToolContext) -> str:
        """Tell the state."""
        ran.append(f"seen: {tool_context.state.get('temp:seen')}")
        return "told"

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "count", {})], [("c2", "tell", {})], "ended")
            runner = runner_of(
                home, agent_of(model, gated(home, [count, tell], settings={"count": AUTO}))
            )
            line = {"source": alice, "dedup": "m1"}
            assert (await run(runner, home, "ops/api", "go", **line)).waiting
            (asked,) = await home.approvals()
            await home.answer(asked, "approve_once", by=alice, wait=False)
            done = await run(runner, home, "ops/api", "go", **line)
            assert (done.text, ran, model.asked) == ("ended", ["count", "seen: yes"], 3)
            session = await runner.session_service.get_session(
                app_name="ops", user_id="everybody", session_id="ops/api"
            )
            assert session.state["n"] == 1

    asyncio.run(story())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the agents that are tested
def test_while_a_call_waits_no_other_agent_of_the_run_asks_its_model(tmp_path: Path) -> None:
    """Agents in a row, in a loop: the second one is not begun before the answer."""
    from google.adk.agents import LlmAgent, LoopAgent, SequentialAgent

    from holdfast.integrations.adk import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            first = answers([("c1", "restart", {"service": "api"})], "first")
            second = answers("second")
            tools = gated(home, [restarts(ran)])
            one = LlmAgent(name="one", model=first, tools=tools)
            two = LlmAgent(name="two", model=second)
            row = SequentialAgent(name="row", sub_agents=[one, two])
            runner = runner_of(home, LoopAgent(name="loop", sub_agents=[row], max_iterations=1))
            line = {"source": alice, "dedup": "m1"}
            assert (await run(runner, home, "ops/api", "go", **line)).waiting
            assert (first.asked, second.asked) == (1, 0)
            (asked,) = await home.approvals()
            await home.answer(asked, "approve_once", by=alice, wait=False)
            done = await run(runner, home, "ops/api", "go", **line)
            assert (done.text, ran) == ("second", ["api"])
            assert (first.asked, second.asked) == (2, 1)

    asyncio.run(story())


def test_a_call_that_an_earlier_message_left_open_gets_its_outcome(tmp_path: Path) -> None:
    from holdfast.integrations.adk import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "api"})], "ended")
            runner = runner_of(home, agent_of(model, gated(home, [restarts(ran)])))
            done = await run(runner, home, "ops/api", "go", source=alice, dedup="m1")
            assert done.waiting
            done = await run(runner, home, "ops/api", "never mind", source=alice, dedup="m2")
            assert (done.waiting, done.text, ran) == (False, "ended", [])
            parts = [part for each in model.seen[-1].contents for part in each.parts]
            (read,) = [part.function_response for part in parts if part.function_response]
            assert (read.id, "holdfast" in read.response) == ("c1", False)
            assert [part.text for part in parts if part.text] == ["go", "never mind"]

    asyncio.run(story())


def test_a_crash_between_two_pauses_does_not_ask_the_model_again(tmp_path: Path) -> None:
    from holdfast.integrations.adk import gated, run

    begun = asyncio.Event()

    async def stall(service: str) -> str:
        """Begin, and never end."""
        begun.set()
        await asyncio.Event().wait()
        return service

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([(None, "stall", {"service": "api"})], "ended")
            tools = gated(home, [stall], settings={"stall": AUTO})
            runner = runner_of(home, agent_of(model, tools))
            line = {"source": alice, "dedup": "m1"}
            running = asyncio.ensure_future(run(runner, home, "ops/api", "go", **line))
            await begun.wait()
            running.cancel()
            await asyncio.wait([running])
            done = await run(runner, home, "ops/api", "go", **line)
            assert (done.text, model.asked) == ("ended", 2)
            parts = [part for each in model.seen[-1].contents for part in each.parts]
            (read,) = [part.function_response for part in parts if part.function_response]
            assert "In doubt" in read.response["error"]

    asyncio.run(story())
