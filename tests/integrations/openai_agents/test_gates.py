"""Gates under the OpenAI Agents SDK, beyond the contract that all adapters share."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import limits

pytest.importorskip("agents", reason="make test-integrations has it")

alice = holdfast.MessageSource.local("alice")
AUTO = {"mode": "auto"}


def answers(*steps: Any) -> Any:
    """A model that gives these answers, each a text or a list of (id, tool, arguments)."""
    from agents import set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message, function_call

    set_tracing_disabled(disabled=True)
    return ScriptedModel(
        [
            [assistant_message(step)]
            if isinstance(step, str)
            else [function_call(tool, given, call_id=n) for n, tool, given in step]
            for step in steps
        ]
    )


def restarts(ran: list[str], **options: Any) -> Any:
    from agents import function_tool

    async def restart(service: str) -> str:
        ran.append(service)
        return f"{service} is up"

    return function_tool(restart, **options)


def test_unknown_tools_and_arguments_that_do_not_fit_are_reported_and_run_nothing(
    tmp_path: Path,
) -> None:
    from agents import Agent

    from holdfast.integrations.openai_agents import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            wrong = [
                ("c1", "nothing", {}),
                ("c2", "restart", {"service": 7}),
                ("c3", "restart", "{not json"),
            ]
            model = answers(wrong, [("c4", "restart", {"service": "api"})], "ended")
            tools = gated(home, [restarts(ran)], settings={"restart": AUTO})
            agent = Agent("ops", model=model, tools=tools)
            done = await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert (done.text, ran) == ("ended", ["api"])
            found = {each.id: (each.outcome, each.code) for each in await home.calls("ops/api")}
            assert found == {
                "c1": ("error", "unknown_tool"),
                "c2": ("error", "invalid_arguments"),
                "c3": ("error", "invalid_arguments"),
                "c4": ("ok", None),
            }

    asyncio.run(story())


def test_an_approval_of_the_sdk_is_never_consent(tmp_path: Path) -> None:
    """The kept state is taken, approved in memory, and run by hand: inside of a turn and outside."""
    from agents import Agent, Runner, RunState

    from holdfast.integrations.gated_tools import driving
    from holdfast.integrations.openai_agents import gated, run
    from holdfast.integrations.openai_agents_model import Steps, stepping

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "api"})], "ended", "ended")
            agent = Agent("ops", model=model, tools=gated(home, [restarts(ran)]))
            done = await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert done.waiting
            async with home.turn("ops/api", "go", source=alice, dedup="m1") as turn:
                kept = await turn.kept("openai-agents/1")
                assert kept is not None

                async def approved() -> Any:
                    state = await RunState.from_string(agent, json.loads(kept)["state"])
                    (asked,) = state.get_interruptions()
                    state.approve(asked, always_approve=True)
                    return await Runner.run(agent, state)

                with pytest.raises(Exception, match="outside of a turn"):
                    await approved()
                inside = stepping(Steps(turn, {"": 1}))
                refused = pytest.raises(Exception, match="waits for an approver")
                with driving(turn), inside, refused:
                    await approved()
            assert ran == []
            assert [each.state for each in await home.approvals()] == ["requested"]

    asyncio.run(story())


def test_a_tool_that_asks_the_sdk_for_an_approval_and_has_no_gate_is_refused(
    tmp_path: Path,
) -> None:
    from agents import Agent

    from holdfast.integrations.openai_agents import run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "api"})], "ended")
            agent = Agent("ops", model=model, tools=[restarts(ran, needs_approval=True)])
            with pytest.raises(holdfast.Unusable, match="restart asks for an approval"):
                await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert ran == []

    asyncio.run(story())


def test_the_same_id_in_another_message_is_another_call(tmp_path: Path) -> None:
    """A model of a test server repeats its ids. The answer of one turn is not that of another."""
    from agents import Agent

    from holdfast.integrations.openai_agents import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            call = [("c1", "restart", {"service": "api"})]
            agent = Agent(
                "ops",
                model=answers(call, "first", call, "second"),
                tools=gated(home, [restarts(ran)]),
            )
            for message in ("m1", "m2"):
                done = await run(agent, home, "ops/api", "go", source=alice, dedup=message)
                assert done.waiting
                (asked,) = await home.approvals()
                await home.answer(asked, "approve_once", by=alice, wait=False)
                again = await run(agent, home, "ops/api", "go", source=alice, dedup=message)
                assert not again.waiting
            assert ran == ["api", "api"]

    asyncio.run(story())


def test_an_answer_over_the_bound_is_refused_by_name_and_the_turn_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents import Agent

    from holdfast.integrations.openai_agents import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "x" * 5000})], "ended")
            tools = gated(home, [restarts(ran)], settings={"restart": AUTO})
            agent = Agent("ops", model=model, tools=tools)
            with monkeypatch.context() as patch:
                patch.setattr(limits, "BLOB_BYTES_MAX", 4000)
                with pytest.raises(holdfast.Refused) as refused:
                    await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert (refused.value.code, ran) == ("too_large", [])
            done = await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert (done.text, ran) == ("ended", [])

    asyncio.run(story())


def test_the_state_and_the_answers_of_another_version_are_refused_by_name(tmp_path: Path) -> None:
    from agents import Agent

    from holdfast.integrations.openai_agents import gated, run

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            agent = Agent("ops", model=answers("never"), tools=gated(home, [restarts([])]))
            async with home.turn("ops/a", "go", source=alice, dedup="m1") as turn:
                await turn.keep("{}", adapter="openai-agents/2")
            async with home.turn("ops/b", "go", source=alice, dedup="m1") as turn:
                await turn.said("hm", blob="{}", adapter="openai-agents/2")
            for session in ("ops/a", "ops/b"):
                with pytest.raises(holdfast.Refused, match="openai-agents/2") as refused:
                    await run(agent, home, session, "go", source=alice, dedup="m1")
                assert refused.value.code == "adapter_version"

    asyncio.run(story())


def test_the_sdks_own_wish_for_an_approval_only_tightens(tmp_path: Path) -> None:
    from agents import Agent

    from holdfast.integrations.openai_agents import gated, run

    ran: list[str] = []

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "api"})], "ended")
            wishes = restarts(ran, needs_approval=True)
            tools = gated(home, [wishes], settings={"restart": AUTO})
            agent = Agent("ops", model=model, tools=tools)
            done = await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert (done.waiting, ran) == (True, [])

    asyncio.run(story())


def test_settings_of_a_tool_that_is_not_here_are_refused_by_name(tmp_path: Path) -> None:
    from holdfast.integrations.openai_agents import gated

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            with pytest.raises(holdfast.Unusable, match="restrat"):
                gated(home, [restarts([])], settings={"restrat": AUTO})

    asyncio.run(story())


def test_a_failing_tool_is_recorded_as_an_error_and_worded_by_the_sdk(tmp_path: Path) -> None:
    from agents import Agent, function_tool

    from holdfast.integrations.openai_agents import gated, run

    @function_tool
    def fails(service: str) -> str:
        raise ValueError(f"{service} is on fire")

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "fails", {"service": "api"})], "ended")
            agent = Agent("ops", model=model, tools=gated(home, [fails], settings={"fails": AUTO}))
            done = await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            assert done.text == "ended"
            (call,) = await home.calls("ops/api")
            assert (call.outcome, "on fire" in call.text) == ("error", True)
            read = [each for each in model.calls[-1].input if each.get("output")]
            assert "An error occurred" in read[0]["output"]

    asyncio.run(story())


def test_a_crash_between_two_pauses_does_not_ask_the_model_again(tmp_path: Path) -> None:
    """No state of the SDK was kept yet: the answer of the model is replayed from the journal."""
    from agents import Agent, function_tool

    from holdfast.integrations.openai_agents import gated, run

    begun = asyncio.Event()

    @function_tool
    async def stall(service: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return service

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "stall", {"service": "api"})], "ended")
            agent = Agent("ops", model=model, tools=gated(home, [stall], settings={"stall": AUTO}))
            line = {"source": alice, "dedup": "m1"}
            running = asyncio.ensure_future(run(agent, home, "ops/api", "go", **line))
            await begun.wait()
            running.cancel()
            await asyncio.wait([running])
            done = await run(agent, home, "ops/api", "go", **line)
            assert (done.text, len(model.calls)) == ("ended", 2)
            read = [each for each in model.calls[-1].input if each.get("output")]
            assert "In doubt" in read[0]["output"]

    asyncio.run(story())


def test_the_conversation_has_each_item_once_after_a_pause(tmp_path: Path) -> None:
    from agents import Agent

    from holdfast.integrations.openai_agents import HoldfastSession, gated, run

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            model = answers([("c1", "restart", {"service": "api"})], "ended", "again")
            agent = Agent("ops", model=model, tools=gated(home, [restarts([])]))
            line = {"source": alice, "dedup": "m1"}
            for _ in range(3):  # it waits, and waits on
                assert (await run(agent, home, "ops/api", "go", **line)).waiting
            (asked,) = await home.approvals()
            await home.answer(asked, "approve_once", by=alice, wait=False)
            await run(agent, home, "ops/api", "go", **line)
            await run(agent, home, "ops/api", "more", source=alice, dedup="m2")
            items = await HoldfastSession(home, "ops/api").get_items()
            kinds = [each.get("type") or each.get("role") for each in items]
            assert kinds == [
                "user",
                "function_call",
                "function_call_output",
                "message",
                "user",
                "message",
            ]

    asyncio.run(story())


def test_items_of_a_run_that_died_are_not_there_twice(tmp_path: Path) -> None:
    """A process wrote the conversation of a turn, and died before it finished the turn."""
    from agents import Agent

    from holdfast.integrations.gated_tools import driving
    from holdfast.integrations.openai_agents import HoldfastSession, gated, run

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            session = HoldfastSession(home, "ops/api")
            await session.add_items([{"role": "user", "content": "earlier"}])
            async with home.turn("ops/api", "go", source=alice, dedup="m1") as turn:
                with driving(turn):
                    await session.add_items([{"role": "user", "content": "go"}])
            agent = Agent("ops", model=answers("ended"), tools=gated(home, [restarts([])]))
            await run(agent, home, "ops/api", "go", source=alice, dedup="m1")
            said = [each["content"] for each in await session.get_items() if "role" in each]
            assert said[:2] == ["earlier", "go"]
            assert len(said) == 3

    asyncio.run(story())
