"""Turns driven by somebody else's loop: the gates, the consents and the history are ours."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.ids import SessionId
from holdfast.session.events import (
    ApprovalRequested,
    CallFinished,
    CallsProposed,
    InputAccepted,
    ModelCallStarted,
    ToolStarted,
    TurnEnded,
)
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob, seen
from tests.acceptance.runtime.test_pause_and_answer import heard, of


def loop_agent(stage: Stage) -> holdfast.Agent:
    return holdfast.Agent("ops", model="demo", tools=stage.effects.tools())


@in_loop
async def test_a_foreign_loop_is_gated_recorded_and_makes_no_model_call_of_ours(
    stage: Stage,
) -> None:
    async with (
        stage.open(loop_agent(stage)) as home,
        home.turn("ops/api", "look around", source=alice) as turn,
    ):
        gate = await turn.start(await turn.gate("look", {"at": "api"}))
        assert (gate.may_run, gate.arguments) == (True, {"at": "api"})
        await turn.record(gate, "ok", "all is well")
        report = await turn.finish("looked")
        assert (report.outcome, report.reply) == ("completed", "looked")
    events = await stage.events("ops/api")
    assert (
        len(of(CallsProposed, events)),
        len(of(ToolStarted, events)),
        of(ModelCallStarted, events),
    ) == (1, 1, [])


@in_loop
async def test_a_gated_call_waits_for_the_right_person(stage: Stage) -> None:
    async with (
        stage.open(loop_agent(stage)) as home,
        home.turn("ops/api", "deploy", source=alice) as turn,
    ):
        gate = await turn.gate("act", {"what": "deploy"})
        assert gate.waiting
        assert gate.approval is not None
        waiting = asyncio.ensure_future(turn.wait(gate))
        assert (
            await home.answer(gate.approval, "approve_once", by=bob, wait=False)
        ).reason == "wrong_approver"
        await home.answer(gate.approval, "approve_once", by=alice, wait=False)
        passed = await turn.start(await waiting)
        assert passed.may_run
        await turn.record(passed, "ok", "deployed")
        assert (await turn.finish("done")).outcome == "completed"


@in_loop
async def test_a_prompt_of_an_external_loop_is_announced_while_the_loop_goes_on(
    stage: Stage,
) -> None:
    session, marker = SessionId("ops/api"), SessionId("ops/marker")
    async with (
        stage.open(loop_agent(stage)) as home,
        home.service.runtime.world.notifier.listen() as notices,
        home.turn(session, "deploy", source=alice) as turn,
    ):
        home.service.runtime.world.notifier.notify(marker)
        await heard(notices, marker)
        gate = await turn.gate("act", {"what": "deploy"})
        await heard(notices, session)
        assert gate.approval is not None
        assert [each.id for each in await home.approvals(for_="alice")] == [gate.approval.id]


@in_loop
async def test_a_denied_call_may_not_run_and_says_why(stage: Stage) -> None:
    async with (
        stage.open(loop_agent(stage)) as home,
        home.turn("ops/api", "deploy", source=None) as turn,
    ):
        gate = await turn.gate("act", {"what": "deploy"})
        assert (gate.state, gate.outcome) == ("closed", "unattended")
        await turn.finish("could not")
    assert of(ApprovalRequested, await stage.events("ops/api")) == []


@in_loop
async def test_a_loop_that_leaves_its_turn_leaves_its_started_call_in_doubt(
    stage: Stage,
) -> None:
    async with stage.open(loop_agent(stage)) as home:
        async with home.turn("ops/api", "deploy", source=alice) as turn:
            await turn.start(await turn.gate("slow", {"what": "x"}))
        assert (await home.send("ops/api", "help", source=alice)).outcome == "completed"
    events = await stage.events("ops/api")
    assert [each.outcome for each in of(TurnEnded, events)] == ["superseded", "completed"]
    assert of(CallFinished, events)[0].outcome == "in_doubt"


@in_loop
async def test_a_second_loop_on_a_driven_session_is_refused_as_busy(stage: Stage) -> None:
    async with (
        stage.open(loop_agent(stage)) as here,
        stage.open(loop_agent(stage)) as there,
        here.turn("ops/api", "first", source=alice) as turn,
    ):
        with pytest.raises(holdfast.Busy):
            async with there.turn("ops/api", "second", source=alice, wait=False):
                pass
        await turn.finish("done")


@in_loop
async def test_our_driver_never_runs_a_call_approved_for_a_foreign_loop(stage: Stage) -> None:
    """
    The process that drives the session meanwhile has the tool, too; the call is still the other loop's to
    run.
    """
    async with stage.open(loop_agent(stage)) as home:
        async with home.turn("ops/api", "deploy", source=alice) as turn:
            gate = await turn.gate("act", {"what": "deploy"})
        assert gate.approval is not None
        await home.answer(gate.approval, "approve_once", by=alice, wait=False)
        await home.resume("ops/api")
    assert stage.effects.done == []
    assert of(ToolStarted, await stage.events("ops/api")) == []


@in_loop
async def test_a_bare_answer_word_gives_a_loop_no_turn_and_least_of_all_the_one_that_waits(
    stage: Stage,
) -> None:
    """
    The holder of a turn may fail it: the request that waits for an answer is nobody's to be handed.
    """
    async with stage.open(loop_agent(stage)) as home:
        (approval,) = (await home.send("ops/api", "act what=deploy", source=alice)).approvals
        with pytest.raises(holdfast.Refused) as refused:
            async with home.turn("ops/api", "yes", source=alice) as turn:
                await turn.fail("given_up", "the loop has nothing to do")
        assert refused.value.code == "answer_word"
        assert (await home.answer(approval, "approve_once", by=alice)).turn.outcome == "completed"


@in_loop
async def test_a_loop_that_gives_up_waiting_leaves_no_message_in_the_queue(stage: Stage) -> None:
    """Without a key nobody could name the message again, and it would begin with no loop."""
    async with stage.open(loop_agent(stage)) as home:
        async with home.turn("ops/api", "first", source=alice) as turn:

            async def second() -> None:
                async with home.turn("ops/api", "second", source=bob):
                    pass

            waiting = asyncio.ensure_future(second())
            await seen(home, "ops/api", InputAccepted, turn="t2")
            waiting.cancel()
            await asyncio.wait([waiting])
            await turn.finish("done")
        assert (await home.session("ops/api")).phase == "idle"
    ended = of(TurnEnded, await stage.events("ops/api"))
    assert [(each.turn, each.outcome) for each in ended] == [("t1", "completed")]


@in_loop
async def test_a_loop_that_raises_leaves_its_turn_for_another_loop(stage: Stage) -> None:
    async def broken(home: holdfast.Home) -> None:
        async with home.turn("ops/api", "look", source=alice) as turn:
            await turn.start(await turn.gate("slow", {"what": "x"}))
            raise ZeroDivisionError

    async with stage.open(loop_agent(stage)) as home:
        with pytest.raises(ZeroDivisionError):
            await broken(home)
        assert (await home.session("ops/api")).phase == "parked"
    events = await stage.events("ops/api")
    assert of(TurnEnded, events) == []
    assert of(CallFinished, events)[0].outcome == "in_doubt"


@in_loop
async def test_one_answer_with_one_id_for_two_calls_is_refused(stage: Stage) -> None:
    """Equal calls of one id are one call; equal calls without an id are two."""
    calls = [holdfast.LoopCall("c1", "look", each) for each in ({}, {"at": "b"})]
    same = [holdfast.LoopCall("c2", "look", each) for each in ("{}", "{ }")]
    nameless = [holdfast.LoopCall(None, "look", {})] * 2
    async with (
        stage.open(loop_agent(stage)) as home,
        home.turn("ops/api", "look around", source=alice) as turn,
    ):
        with pytest.raises(holdfast.Refused) as refused:
            await turn.said("", calls)
        assert refused.value.code == "id_conflict"
        first, again, third, fourth = await turn.said("", [*same, *nameless])
        assert first.call == again.call
        assert len({first.call, third.call, fourth.call}) == 3


@in_loop
async def test_a_loops_mistake_is_said_before_anything_is_written_and_its_turn_goes_on(
    stage: Stage,
) -> None:
    """
    A framework's own word for success, a number as an id, an object as a result: each would have
    been kept, and never read again.
    """
    odd: Any = object()
    async with (
        stage.open(loop_agent(stage)) as home,
        home.turn("ops/api", "look around", source=alice) as turn,
    ):
        for mistake in (
            turn.gate(odd, {}),
            turn.gate("look", {"at": odd}),
            turn.gate("look", {"at": "\ud800"}),
            turn.gate("look", {}, id=odd),
            turn.said("", [odd]),
            turn.said(odd),
        ):
            with pytest.raises(holdfast.Unusable) as refused:
                await mistake
            assert refused.value.code == "malformed"
        gate = await turn.start(await turn.gate("look", {"at": "api"}))
        for outcome, text in (
            ("success", "well"),
            (None, "well"),
            ("denied", "well"),
            ("ok", None),
            ("ok", {"well": True}),
        ):
            wrong: tuple[Any, Any] = (outcome, text)
            with pytest.raises(holdfast.Unusable):
                await turn.record(gate, *wrong)
        await turn.record(gate, "ok", "\ud800 " + "x" * 3_000_000)
        with pytest.raises(holdfast.Unusable):
            await turn.finish(odd)
        assert (await turn.finish("looked")).outcome == "completed"
    (finished,) = of(CallFinished, await stage.events("ops/api"))
    assert (finished.outcome, finished.output is not None) == ("ok", True)
    assert finished.text.startswith("? xx")
    assert finished.text.endswith("x\n[of 3000002 bytes only the beginning is shown]")


async def parked_by_a_loop_that_is_gone(stage: Stage) -> holdfast.Approval:
    """In a process of its own, which has ended by now."""
    async with (
        stage.open(loop_agent(stage)) as home,
        home.turn("ops/api", "deploy", source=alice) as turn,
    ):
        gate = await turn.gate("act", {"what": "deploy"})
        assert gate.approval is not None
        return gate.approval


@in_loop
async def test_an_answer_to_a_loop_that_is_gone_is_handed_on_and_another_loop_takes_it_up(
    stage: Stage,
) -> None:
    """
    The durable pause of somebody else's loop: it was answered, waited for for ever, and nobody
    could go on with it (T7).
    """
    prompt = await parked_by_a_loop_that_is_gone(stage)
    async with stage.open(loop_agent(stage)) as home:
        answer = await home.answer(prompt, "approve_once", by=alice)
        assert (answer.result, answer.turn.outcome) == ("handed_on", "running")
    async with (
        stage.open(loop_agent(stage)) as home,
        home.take_up(prompt.session, prompt.turn) as turn,
    ):
        gate = await turn.start(await turn.wait())
        assert (gate.may_run, gate.arguments) == (True, {"what": "deploy"})
        await turn.record(gate, "ok", "deployed")
        assert await turn.gates() == ()
        with pytest.raises(holdfast.Unusable, match="waits for no answer"):
            await turn.wait()
        assert (await turn.finish("done")).outcome == "completed"
    events = await stage.events("ops/api")
    assert [each.allowed_by for each in of(ToolStarted, events)] == [prompt.id]
    assert [(each.outcome, each.reply) for each in of(TurnEnded, events)] == [("completed", "done")]


@in_loop
async def test_a_turn_that_was_taken_up_waits_for_its_answer_as_before(stage: Stage) -> None:
    prompt = await parked_by_a_loop_that_is_gone(stage)
    async with stage.open(loop_agent(stage)) as home:
        async with home.take_up("ops/api", prompt.turn) as turn:
            assert len(await turn.gates()) == 1  # and left again: it stands
        async with home.take_up("ops/api", prompt.turn) as turn:
            (standing,) = await turn.gates()
            assert standing.approval == prompt
            waiting = asyncio.ensure_future(turn.wait(standing))
            assert (await home.answer(prompt, "approve_once", by=bob)).reason == "wrong_approver"
            assert (
                await home.answer(prompt, "deny", by=alice, reason="Not today!")
            ).result == "handed_on"
            gate = await waiting
            assert (gate.state, gate.outcome, gate.text) == (
                "closed",
                "denied",
                "Not run: alice denied it: Not today!",
            )
            await turn.finish("could not")
    assert of(ToolStarted, await stage.events("ops/api")) == []


@in_loop
async def test_an_expired_prompt_is_closed_for_the_loop_that_takes_the_turn_up(
    stage: Stage,
) -> None:
    prompt = await parked_by_a_loop_that_is_gone(stage)
    stage.clock.advance(8 * 24 * 3600)
    async with stage.open(loop_agent(stage)) as home:
        late = await home.answer(prompt, "approve_once", by=alice)
        assert (late.result, late.reason) == ("failed", "expired")
        async with home.take_up("ops/api", prompt.turn) as turn:
            (call,) = await home.calls("ops/api")
            assert (call.state, call.outcome) == ("finished", "denied")
            await turn.finish("too late")


@in_loop
async def test_only_an_open_turn_of_a_loop_is_taken_up(stage: Stage) -> None:
    async with stage.open(loop_agent(stage)) as home:
        ours = await home.send("ops/ours", "act what=deploy", source=alice)
        assert ours.outcome == "waiting"
        async with home.turn("ops/api", "look", source=alice) as turn:
            await turn.finish("looked")
        for session, name in (
            ("ops/ours", ours.turn or ""),
            ("ops/api", turn.turn),
            ("ops/api", "t9"),
            ("ops/none", "t1"),
        ):
            with pytest.raises(holdfast.Refused) as refused:
                async with home.take_up(session, name):
                    pass
            assert refused.value.code == "unknown"
        assert [each.session for each in await home.approvals()] == ["ops/ours"]


@in_loop
async def test_a_foreign_turn_refuses_outcomes_that_do_not_fit_the_state_of_a_call(
    stage: Stage,
) -> None:
    """
    A call that was never allowed has no outcome, and one that has ended keeps the one it has; a
    turn with open calls is not finished (T1, T4).
    """
    async with (
        stage.open(loop_agent(stage)) as home,
        home.turn("ops/api", "deploy", source=alice) as turn,
    ):
        look = await turn.gate("look", {"at": "api"})
        assert await turn.wait(look) is look
        with pytest.raises(holdfast.Unusable, match="was not started"):
            await turn.record(look, "ok", "it was not even started")
        look = await turn.start(look)
        with pytest.raises(holdfast.Unusable, match="was started already"):
            await turn.start(look)
        with pytest.raises(holdfast.Refused, match="no outcome yet"):
            await turn.finish("done")
        await turn.record(look, "ok", "all is well")
        await turn.record(look, "ok", "all is well")  # the same again, as after an error in between
        with pytest.raises(holdfast.Refused, match="has ended as ok already"):
            await turn.record(look, "error", "it was not")
        act = await turn.gate("act", {"what": "deploy"})
        with pytest.raises(holdfast.Unusable, match="was not started"):
            await turn.record(act, "ok", "did it anyway")
        with pytest.raises(holdfast.Refused, match="no outcome yet"):
            await turn.finish("done")
        assert (await home.cancel("ops/api", by=alice))[0].outcome == "cancelled"
        assert (await turn.wait(act)).state == "closed"
        with pytest.raises(holdfast.Refused, match="is over"):
            await turn.gate("look", {"at": "api"})
        with pytest.raises(holdfast.Refused, match="is over"):
            await turn.record(look, "ok", "all is well")
    assert [each.outcome for each in of(CallFinished, await stage.events("ops/api"))] == [
        "ok",
        "cancelled",
    ]
