"""External loops that replay their steps: one call is one run, whatever is asked again."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import LoopCall
from holdfast.ids import SessionId
from holdfast.session.events import (
    CallFinished,
    CallsProposed,
    Compacted,
    InputAccepted,
    StateKept,
    ToolStarted,
    TurnEnded,
)
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob, seen
from tests.acceptance.runtime.test_pause_and_answer import of

TEXT = {"type": "object", "properties": {"x": {"type": "string"}}}


def loop_agent() -> holdfast.Agent:
    return holdfast.Agent(
        "ops",
        tools=[
            holdfast.SchemaTool("act", TEXT),
            holdfast.SchemaTool("put", TEXT, mode="auto"),
            holdfast.SchemaTool("look", TEXT, mode="auto", contract="pure"),
        ],
    )


@in_loop
async def test_a_call_that_ended_is_answered_from_the_journal_and_never_runs_again(
    stage: Stage,
) -> None:
    """The same id after `ok` is the same call, also in a later batch (T2, T3)."""
    ran: list[Any] = []
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "put it", source=alice) as turn,
    ):
        gate = await turn.gate("put", {"x": "1"}, id="call_1")
        await turn.call(gate, lambda arguments: ran.append(arguments) or "done")
        other = await turn.gate("look", {"x": "1"}, id="call_2")
        await turn.call(other, lambda _: "seen")
        again = await turn.gate("put", {"x": "1"}, id="call_1")
        assert (again.state, again.outcome, again.text) == ("closed", "ok", "done")
        await turn.call(again, lambda arguments: ran.append(arguments) or "twice")
        assert (await turn.finish("done")).outcome == "completed"
    assert ran == [{"x": "1"}]
    events = await stage.events("ops/api")
    assert (len(of(CallsProposed, events)), len(of(ToolStarted, events))) == (2, 2)


@in_loop
async def test_an_id_that_comes_with_another_call_is_refused(stage: Stage) -> None:
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "put it", source=alice) as turn,
    ):
        await turn.gate("put", {"x": "1"}, id="c")
        for tool, x in (("look", "1"), ("put", "2")):
            with pytest.raises(holdfast.Refused) as refused:
                await turn.gate(tool, {"x": x}, id="c")
            assert refused.value.code == "id_conflict"
        assert (await turn.gate("put", '{ "x": "1" }', id="c")).may_start


@in_loop
async def test_a_batch_is_one_record_with_all_its_prompts_and_each_call_starts_by_itself(
    stage: Stage,
) -> None:
    calls = [LoopCall("a", "act", {"x": "1"}), LoopCall("b", "act", {"x": "2"})]
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "both", source=alice) as turn,
    ):
        first, second, third = await turn.said("both", [*calls, LoopCall("c", "look", {"x": "3"})])
        assert [(gate.id, gate.tool, gate.state) for gate in (first, second, third)] == [
            ("a", "act", "waiting"),
            ("b", "act", "waiting"),
            ("c", "look", "ready"),
        ]
        prompts = {each.provider_id: each for each in await home.approvals()}
        assert sorted(prompts) == ["a", "b"]
        await turn.call(third, lambda _: "seen")
        assert (await home.answer(prompts["a"], "approve_once", by=alice, wait=False)).result
        first = await turn.wait(first)
        done = await turn.call(first, lambda arguments: f"did {arguments['x']}")
        assert (done.outcome, done.text) == ("ok", "did 1")
        assert (await turn.look("b")).waiting
        await home.answer(prompts["b"], "deny", by=alice, wait=False)
        assert (await turn.wait(second)).outcome == "denied"
        assert (await turn.finish("done")).outcome == "completed"
    assert len(of(CallsProposed, await stage.events("ops/api"))) == 1


@in_loop
async def test_the_same_message_takes_up_the_same_turn_wherever_it_stands(stage: Stage) -> None:
    async def line(home: holdfast.Home) -> Any:
        return home.turn("ops/api", "restart", source=alice, dedup="m1")

    async with stage.open(loop_agent()) as home:
        async with await line(home) as turn:
            (gate,) = await turn.said(
                "", [LoopCall("a", "act", {"x": "1"})], blob=b"\xff", adapter="t/1"
            )
            await turn.keep("state", adapter="t/1")
            assert gate.waiting
        async with await line(home) as turn:  # parked
            assert turn.turn == "t1"
            assert (await turn.answers())[0].blob == b"\xff"
            assert await turn.kept("t/1") == b"state"
            (gate,) = await turn.gates()
            await home.answer(turn.approvals[0], "approve_once", by=alice, wait=False)
            gate = await turn.look(gate)
            assert gate.may_start
        async with await line(home) as turn:  # answered, and left before its start
            (gate,) = await turn.gates()
            assert (await turn.call(gate, lambda _: "did")).outcome == "ok"
            await turn.finish("done")
        async with await line(home) as turn:  # over
            assert turn.is_over
            assert (await turn.report()).reply == "done"
    events = await stage.events("ops/api")
    assert (len(of(ToolStarted, events)), len(of(StateKept, events))) == (1, 1)
    assert [each.outcome for each in of(TurnEnded, events)] == ["completed"]


DIES = """
import asyncio, os, signal, sys
import holdfast
from holdfast import LoopCall
from tests.acceptance.runtime.test_loop_replays import alice, loop_agent

async def main():
    async with holdfast.open(sys.argv[1], agents=[loop_agent()]) as home:
        async with home.turn("ops/api", "go", source=alice, dedup="m1") as turn:
            done, begun, pure, asks = await turn.said("", [
                LoopCall("done", "put", {"x": "1"}),
                LoopCall("begun", "put", {"x": "2"}),
                LoopCall("pure", "look", {"x": "3"}),
                LoopCall("asks", "act", {"x": "4"}),
            ])
            await turn.call(done, lambda _: holdfast.LoopResult("did 1", b"{}", "t/1"))
            await turn.start(begun)
            await turn.start(pure)
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def die(folder: Path) -> None:
    root = Path(__file__).parents[3]
    died = subprocess.run([sys.executable, "-c", DIES, str(folder)], cwd=root, check=False)
    assert died.returncode == -signal.SIGKILL


@in_loop
async def test_after_a_crash_what_had_started_is_in_doubt_and_everything_else_stands(
    tmp_path: Path,
) -> None:
    die(tmp_path)
    async with (
        holdfast.open(tmp_path, agents=[loop_agent()]) as home,
        home.turn("ops/api", "go", source=alice, dedup="m1") as turn,
    ):
        assert turn.turn == "t1"
        assert [(await turn.look(each)).state for each in ("done", "begun", "pure", "asks")] == [
            "closed",
            "closed",
            "ready",
            "waiting",
        ]
        done = await turn.look("done")
        assert (done.outcome, done.text, done.result) == ("ok", "did 1", b"{}")
        assert (await turn.look("begun")).outcome == "in_doubt"
        assert (await turn.call(await turn.look("pure"), lambda _: "saw")).outcome == "ok"
        (prompt,) = turn.approvals
        await home.answer(prompt, "approve_once", by=alice, wait=False)
        asks = await turn.wait(await turn.look("asks"))
        assert (await turn.call(asks, lambda _: "did 4")).outcome == "ok"
        assert (await turn.finish("done")).outcome == "completed"


@in_loop
async def test_a_turn_is_lost_only_when_no_loop_comes_within_a_day(stage: Stage) -> None:
    async with stage.open(loop_agent()) as home:
        async with home.turn("ops/api", "go", source=alice, dedup="m1") as turn:
            await turn.start(await turn.gate("put", {"x": "1"}, id="c1"))
        stage.clock.advance(23 * 3600)
        await home.resume("ops/api")
        async with home.turn("ops/api", "go", source=alice, dedup="m1") as turn:
            assert (await turn.look("c1")).outcome == "in_doubt"
        stage.clock.advance(25 * 3600)
        await home.resume("ops/api")
        async with home.turn("ops/api", "go", source=alice, dedup="m1") as turn:
            assert turn.is_over
            report = await turn.report()
            assert report.error is not None
            assert (report.outcome, report.error.code) == ("failed", "loop_lost")


@in_loop
async def test_a_turn_that_its_loop_left_blocks_nobody_and_the_next_message_replaces_it(
    stage: Stage,
) -> None:
    async with stage.open(loop_agent()) as home:
        async with home.turn("ops/api", "go", source=alice):
            pass
        async with home.turn("ops/api", "and this", source=bob) as other:
            await other.finish("done")
        async with home.turn("ops/api", "instead", source=alice) as later:
            await later.finish("done")
    ended = of(TurnEnded, await stage.events("ops/api"))
    assert [(each.turn, each.outcome) for each in ended] == [
        ("t2", "completed"),
        ("t1", "superseded"),
        ("t3", "completed"),
    ]


@in_loop
async def test_a_message_while_a_loop_drives_is_queued_and_comes_next(stage: Stage) -> None:
    order: list[str] = []

    async def second(home: holdfast.Home) -> None:
        async with home.turn("ops/api", "second", source=bob) as turn:
            order.append("second")
            await turn.finish("done")

    async with stage.open(loop_agent()) as here, stage.open(loop_agent()) as there:
        async with here.turn("ops/api", "first", source=alice) as turn:
            waiting = asyncio.ensure_future(second(there))
            await seen(there, "ops/api", InputAccepted, turn="t2")
            with pytest.raises(holdfast.Busy):
                async with here.turn("ops/api", "third", source=alice, wait=False):
                    pass
            order.append("first")
            await turn.finish("done")
        async with asyncio.timeout(30):
            await waiting
    assert order == ["first", "second"]


@in_loop
async def test_cancelled_in_mid_call_is_in_doubt_and_out_of_time_is_timed_out(
    stage: Stage,
) -> None:
    begun = asyncio.Event()

    async def forever(_: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    def broken(_: Any) -> str:
        raise ValueError("no such service")

    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "go", source=alice) as turn,
    ):
        one, two, three = await turn.said(
            "", [LoopCall(name, "put", {"x": name}) for name in ("one", "two", "three")]
        )
        running = asyncio.ensure_future(turn.call(one, forever))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
        with pytest.raises(TimeoutError):
            await turn.call(two, forever, timeout_seconds=0.01)
        with pytest.raises(ValueError, match="no such service"):
            await turn.call(three, broken)
        assert [(await turn.look(name)).outcome for name in ("one", "two", "three")] == [
            "in_doubt",
            "timed_out",
            "error",
        ]
        assert (await turn.look("three")).text == "ValueError: no such service"
        assert (await turn.finish("done")).outcome == "completed"


@in_loop
async def test_an_edit_is_validated_and_asked_again_where_the_answer_is_taken(
    stage: Stage,
) -> None:
    """No loop runs meanwhile: the new prompt stands at once, in every inbox."""
    async with stage.open(loop_agent()) as home:
        async with home.turn("ops/api", "go", source=alice, dedup="m") as turn:
            await turn.said("", [LoopCall("c", "act", {"x": "1"})])
            (prompt,) = turn.approvals
        bad = await home.answer(prompt, "edit", by=alice, arguments={"x": 1}, wait=False)
        assert (bad.result, bad.reason) == ("failed", "malformed")
        await home.answer(prompt, "edit", by=alice, arguments={"x": "2"}, wait=False)
        (asked,) = await home.approvals()
        assert (asked.id != prompt.id, asked.arguments) == (True, {"x": "2"})
        await home.answer(asked, "approve_once", by=alice, wait=False)
        async with home.turn("ops/api", "go", source=alice, dedup="m") as turn:
            ran: list[Any] = []
            done = await turn.call(await turn.look("c"), lambda given: ran.append(given) or "did")
            assert (ran, done.outcome) == ([{"x": "2"}], "ok")
            await turn.finish("done")


@in_loop
async def test_a_nested_agent_has_the_turns_authority_and_its_prompt_shows_the_path(
    stage: Stage,
) -> None:
    few = holdfast.Agent("few", tools=[])
    async with (
        stage.open(loop_agent(), few) as home,
        home.turn("ops/api", "go", source=alice, dedup="m") as turn,
    ):
        outer = await turn.start(await turn.gate("look", {"x": "agent"}, id="c1"))
        nested = turn.child(outer, agent="researcher")
        gate = await nested.gate("act", {"x": "1"}, id="c1")
        assert (gate.id, gate.waiting) == ("c1", True)
        assert gate.approval is not None
        assert gate.approval.path == ("ops", "researcher")
        assert gate.approval.display.startswith("ops > researcher asks")
        refused = await turn.child(outer, agent="few").gate("look", {"x": "1"}, id="c2")
        assert (refused.state, refused.code) == ("closed", "no_authority")
        with pytest.raises(holdfast.Unusable):
            turn.child(gate, agent="deeper")
        await home.answer(gate.approval, "approve_once", by=alice, wait=False)
        gate = await nested.wait(gate)
        assert (await nested.call(gate, lambda _: "did")).outcome == "ok"
        await turn.record(outer, "ok", "the agent is done")
        assert (await turn.finish("done")).outcome == "completed"


@in_loop
async def test_a_nested_prompt_survives_the_loop_and_its_agent_runs_again(stage: Stage) -> None:
    async with stage.open(loop_agent()) as home:
        async with home.turn("ops/api", "go", source=alice, dedup="m") as turn:
            outer = await turn.start(await turn.gate("look", {"x": "agent"}, id="c1"))
            await turn.child(outer, agent="researcher").gate("act", {"x": "1"}, id="n1")
        (prompt,) = await home.approvals()
        await home.answer(prompt, "approve_once", by=alice, wait=False)
        async with home.turn("ops/api", "go", source=alice, dedup="m") as turn:
            outer = await turn.start(await turn.look("c1"))
            assert outer.may_run
            nested = turn.child(outer, agent="researcher")
            gate = await nested.gate("act", {"x": "1"}, id="n1")
            assert (await nested.call(gate, lambda _: "did")).outcome == "ok"
            await turn.record(outer, "ok", "the agent is done")
            assert (await turn.finish("done")).outcome == "completed"
    starts = of(ToolStarted, await stage.events("ops/api"))
    assert [(each.tool, each.run) for each in starts] == [("look", 1), ("look", 2), ("act", 1)]


@in_loop
async def test_usage_counts_and_the_bounds_of_a_turn_bind_an_external_loop(stage: Stage) -> None:
    stage.policy = msgspec.structs.replace(stage.policy, turn_model_calls_max=2)
    usage = holdfast.Usage(input_tokens=10, output_tokens=5)
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "go", source=alice) as turn,
    ):
        for n in range(2):
            (gate,) = await turn.said(
                "", [LoopCall(f"c{n}", "look", {"x": str(n)})], usage=usage, model="m"
            )
            await turn.call(gate, lambda _: "seen")
        (gate,) = await turn.said("", [LoopCall("c9", "look", {"x": "9"})], usage=usage)
        assert gate.closed
        report = await turn.report()
        assert report.error is not None
        assert (report.error.code, report.usage.input_tokens) == ("turn_model_calls_max", 30)


@in_loop
async def test_a_pure_call_may_repeat_if_the_loop_says_so(stage: Stage) -> None:
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "poll", source=alice) as turn,
    ):
        for n in range(8):
            gate = await turn.gate("look", {"x": "status"}, id=f"c{n}", may_repeat=True)
            await turn.call(gate, lambda _: "still running")
        for n in range(2):
            gate = await turn.gate("put", {"x": "1"}, id=f"p{n}", may_repeat=True)
            await turn.call(gate, lambda _: "same")
        gate = await turn.gate("put", {"x": "1"}, id="p2", may_repeat=True)
        assert (gate.state, gate.code) == ("closed", "repeated")
        await turn.finish("done")


@in_loop
async def test_blobs_are_kept_as_they_are_or_refused_by_name(stage: Stage) -> None:
    large = bytes(range(256)) * 400
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "go", source=alice, dedup="m") as turn,
    ):
        await turn.keep(large, adapter="t/1")
        assert await turn.kept("t/1") == large
        with pytest.raises(holdfast.Refused) as refused:
            await turn.kept("t/2")
        assert refused.value.code == "adapter_version"
        assert await turn.kept("other/1") is None
        for blob, adapter in ((object(), "t/1"), ("x", "no version"), ("x", None)):
            wrong: Any = blob
            name: Any = adapter
            with pytest.raises(holdfast.Unusable):
                await turn.keep(wrong, adapter=name)
        with pytest.raises(holdfast.Refused) as refused:
            await turn.keep(b"x" * (16 * 1024 * 1024 + 1), adapter="t/1")
        assert refused.value.code == "too_large"
        assert await turn.kept("t/1") == large


@in_loop
async def test_a_home_in_a_second_event_loop_is_refused_at_once_by_name(stage: Stage) -> None:
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "go", source=alice) as turn,
    ):
        gate = await turn.gate("put", {"x": "1"}, id="c")
        items = home.items("ops/api", adapter="t/1")

        async def elsewhere() -> None:
            for use in (
                home.send("ops/other", "hi", source=alice),
                home.calls("ops/api"),
                home.begin("ops/other", "hi", source=alice),
                turn.gate("put", {"x": "1"}),
                turn.call(gate, lambda _: "did"),
                turn.keep("x", adapter="t/1"),
                turn.finish("done"),
                items.add("x"),
            ):
                with pytest.raises(holdfast.Unusable) as refused:
                    await use
                assert refused.value.code == "other_event_loop"

        await asyncio.to_thread(asyncio.run, elsewhere())
        await turn.call(gate, lambda _: "did")
        await turn.finish("done")


@in_loop
async def test_a_framework_keeps_its_history_in_the_journal(stage: Stage) -> None:
    large = "x" * 50_000
    async with stage.open(loop_agent()) as home:
        items = home.items("ops/api", adapter="t/1")
        assert await items.list() == ()
        first = await items.add("one", key="a")
        second = await items.add(b"\xff\xfe", key="b")
        third = await items.add(large, key="a")
        await home.items("ops/api", adapter="other/1").add("not mine")
        assert [(each.seq, each.blob) for each in await items.list()] == [
            (first, b"one"),
            (second, b"\xff\xfe"),
            (third, large.encode()),
        ]
        assert [each.seq for each in await items.list("a")] == [first, third]
        await items.remove([first])
    async with stage.open(loop_agent()) as home:
        items = home.items("ops/api", adapter="t/1")
        assert await items.keys() == ((second, "b"), (third, "a"))
        await items.clear()
        assert await items.list() == ()
        assert len(await home.items("ops/api", adapter="other/1").list()) == 1


@in_loop
async def test_history_of_another_version_of_an_adapter_is_refused_and_stays(stage: Stage) -> None:
    async with stage.open(loop_agent()) as home:
        newer, older = (home.items("ops/api", adapter=each) for each in ("t/2", "t/1"))
        assert await older.list() == ()
        (seq,) = await newer.add_all([("a", "one")])
        for reading in (older.list(), older.keys()):
            with pytest.raises(holdfast.Refused, match="t/2 kept this state") as refused:
                await reading
            assert refused.value.code == "adapter_version"
        assert [each.blob for each in await newer.list()] == [b"one"]
        await newer.remove([seq])
        assert await older.list() == ()


@in_loop
async def test_a_worker_hears_of_turns_that_can_go_on(stage: Stage) -> None:
    async with stage.open(loop_agent()) as home, stage.open(loop_agent()) as worker:
        async with home.turn("ops/api", "go", source=alice, dedup="m") as turn:
            await turn.said("", [LoopCall("c", "act", {"x": "1"})])
            (prompt,) = turn.approvals
        heard = worker.answered()
        waiting = asyncio.ensure_future(anext(heard))
        await home.answer(prompt, "approve_once", by=alice, wait=False)
        async with asyncio.timeout(30):
            found = await waiting
        assert (found.session, found.turn, found.text, found.dedup) == ("ops/api", "t1", "go", "m")
        async with worker.take_up(found.session, found.turn) as turn:
            (gate,) = await turn.gates()
            await turn.call(gate, lambda _: "did")
            await turn.finish("done")
        assert [each.outcome for each in await worker.calls("ops/api")] == ["ok"]
        assert [each.session for each in await worker.sessions()] == ["ops/api"]


@in_loop
async def test_a_turn_that_was_begun_without_a_block_is_left_with_the_home(stage: Stage) -> None:
    async with stage.open(loop_agent()) as home:
        turn = await home.begin("ops/api", "go", source=alice, dedup="m")
        await turn.start(await turn.gate("put", {"x": "1"}, id="c"))
        other = await home.begin("ops/b", "go", source=alice, dedup="m")
        await other.leave()
        await other.leave()
        with pytest.raises(holdfast.Refused, match="was left"):
            await other.gate("put", {"x": "1"})
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "go", source=alice, dedup="m") as turn,
    ):
        assert (await turn.look("c")).outcome == "in_doubt"


@in_loop
async def test_a_gate_of_another_turn_starts_nothing(stage: Stage) -> None:
    async with stage.open(loop_agent()) as home, home.turn("ops/a", "go", source=alice) as one:
        gate = await one.gate("put", {"x": "1"}, id="c")
        async with home.turn("ops/b", "go", source=alice) as other:
            with pytest.raises(holdfast.Refused) as refused:
                await other.call(gate, lambda _: "did")
            assert refused.value.code == "unknown"
            with pytest.raises(holdfast.Refused):
                await other.look("c")
    assert of(CallFinished, await stage.events("ops/b")) == []


@in_loop
async def test_a_call_that_the_loop_will_not_run_is_dropped_with_its_prompt(stage: Stage) -> None:
    async with (
        stage.open(loop_agent()) as home,
        home.turn("ops/api", "go", source=alice) as turn,
    ):
        asks, ready = await turn.said(
            "", [LoopCall("asks", "act", {"x": "1"}), LoopCall("ready", "put", {"x": "1"})]
        )
        assert (await turn.drop(asks, "the framework refused it")).outcome == "cancelled"
        assert await home.approvals() == ()
        running = await turn.start(ready)
        assert (await turn.drop(running, "too late")).state == "started"
        await turn.record(running, "ok", "did")
        assert (await turn.finish("done")).outcome == "completed"


@in_loop
async def test_the_view_of_a_loops_session_stays_bounded_and_its_journal_keeps_all(
    stage: Stage,
) -> None:
    """No model of ours makes room there, so the end of a turn does."""
    big = "y" * 60_000
    async with stage.open(loop_agent()) as home:
        for number in range(20):
            async with home.turn(
                "ops/api", f"put {number}", source=alice, dedup=str(number)
            ) as turn:
                gate = await turn.gate("put", {"x": f"{number}-{big}"}, id="c")
                await turn.call(gate, lambda _: "done")
                await turn.finish(f"reply {number}")
        async with home.service.live.use(SessionId("ops/api")) as ledger:
            view = ledger.state.view
        assert view.chars < 600_000
        assert 4 <= len(view.entries) < 20
        assert "put 0" in (view.summary or "")
        async with home.turn("ops/api", "put 0", source=alice, dedup="0") as again:
            assert again.is_over
            assert (await again.finish("else")).reply == "reply 0"
    events = await stage.events("ops/api")
    assert len(of(CallFinished, events)) == 20
    assert len(of(Compacted, events)) <= 6
