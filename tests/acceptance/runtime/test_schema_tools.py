"""Tools that are known by their schema alone, given to an agent before or after the home opened."""

import pytest

import holdfast
from holdfast.session.events import ToolStarted
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice
from tests.acceptance.runtime.test_pause_and_answer import of

RESTART = {
    "type": "object",
    "properties": {
        "service": {"type": "string"},
        "region": {"type": "string", "default": "eu-1"},
    },
    "required": ["service"],
}


@in_loop
async def test_the_prompt_shows_the_defaults_that_will_run(stage: Stage) -> None:
    restart = holdfast.SchemaTool("restart", RESTART)
    async with (
        stage.open(holdfast.Agent("ops", tools=[restart])) as home,
        home.turn("ops/api", "restart", source=alice) as turn,
    ):
        gate = await turn.gate("restart", {"service": "api"})
        assert gate.approval is not None
        assert 'region: "eu-1"' in gate.approval.display
        await home.answer(gate.approval, "approve_once", by=alice, wait=False)
        gate = await turn.start(await turn.wait(gate))
        assert gate.arguments == {"service": "api", "region": "eu-1"}
        await turn.record(gate, "ok", "restarted")
        await turn.finish("done")


@in_loop
async def test_a_tool_that_comes_after_open_is_known_from_then_on_to_that_agent_alone(
    stage: Stage,
) -> None:
    agents = holdfast.Agent("ops"), holdfast.Agent("other")
    async with stage.open(*agents) as home:
        async with home.turn("ops/api", "look", source=alice) as turn:
            assert (await turn.gate("look_up", {})).outcome == "error"
            home.know(holdfast.SchemaTool("look_up", {}, mode="auto"))
            gate = await turn.start(await turn.gate("look_up", {"x": 1}))
            assert gate.may_run
            await turn.record(gate, "ok", "found")
            await turn.finish("done")
        async with home.turn("ops/other", "look", source=alice, agent="other") as turn:
            assert (await turn.gate("look_up", {})).outcome == "error"
            await turn.finish("done")


@in_loop
async def test_a_changed_definition_voids_the_prompt_of_the_one_that_was_shown(
    stage: Stage,
) -> None:
    async with stage.open(holdfast.Agent("ops")) as home:
        home.know(holdfast.SchemaTool("restart", RESTART))
        async with home.turn("ops/api", "restart", source=alice) as turn:
            gate = await turn.gate("restart", {"service": "api"})
            assert gate.approval is not None
            home.know(holdfast.SchemaTool("restart", {**RESTART, "title": "retold"}))
            home.know(holdfast.SchemaTool("restart", RESTART, code="2"))
            await home.answer(gate.approval, "approve_once", by=alice, wait=False)
            gate = await turn.start(await turn.wait(gate))
            assert (gate.state, gate.outcome) == ("closed", "voided")
            await turn.finish("done")


@in_loop
async def test_a_name_that_the_agent_has_is_refused_and_so_is_what_is_not_a_tool(
    stage: Stage,
) -> None:
    async with stage.open(stage.agent([])) as home:
        with pytest.raises(holdfast.Unusable, match="already"):
            home.know(holdfast.SchemaTool("act", {}))
        with pytest.raises(holdfast.Unusable, match="not a tool"):
            home.know("act")  # type: ignore[arg-type]  # the mistake
        with pytest.raises(holdfast.Unusable, match="no agent"):
            home.know(holdfast.SchemaTool("x", {}), agent="nobody")


@in_loop
async def test_our_own_loop_never_runs_a_tool_that_it_has_no_code_of(stage: Stage) -> None:
    lines = [
        {"call": [{"tool": "restart", "args": {"service": "api"}}]},
        {"say": "told", "expect": {"last_tool_result_contains": "schema alone"}},
    ]
    model = holdfast.testing.ScriptModel(lines)
    agent = holdfast.Agent("ops", model=model, tools=[holdfast.SchemaTool("restart", RESTART)])
    async with stage.open(agent) as home:
        (approval,) = (await home.send("ops/api", "restart", source=alice)).approvals
        assert (await home.answer(approval, "approve_once", by=alice)).reason == "voided"
    assert of(ToolStarted, await stage.events("ops/api")) == []
