"""
A fork at any record: the copy has the history up to there and nothing that is owed. The session
that was copied goes on as if nobody had looked.
"""

from collections import Counter

from holdfast.home import Agent
from holdfast.runtime.lifecycle.fork import fork
from holdfast.session.events import ApprovalClosed, CallFinished, ModelAnswered, TurnEnded
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob
from tests.acceptance.runtime.test_pause_and_answer import act, of


@in_loop
async def test_a_fork_inside_a_turn_ends_the_copys_turn_and_voids_its_prompt(stage: Stage) -> None:
    async with stage.open(stage.agent(act("it"))) as home:
        parked = await home.send("ops/z", "do it", source=alice)
        at = (await home.service.show("ops/z")).seq
        report = await fork(home.service.runtime, "ops/z", "ops/a", at_seq=at, by="alice")
        assert (report.phase, report.owes, report.waiting) == ("idle", (), 0)
        # The prompt's id is in both journals: it is the original's.
        (waiting,) = await home.approvals()
        assert (waiting.id, waiting.session) == (parked.approvals[0].id, "ops/z")
        answer = await home.answer(waiting, "approve_once", by=alice)
        assert (answer.turn.session, answer.turn.outcome) == ("ops/z", "completed")
    events = await stage.events("ops/a")
    assert [each.closed_as for each in of(ApprovalClosed, events)] == ["voided"]
    assert [each.outcome for each in of(CallFinished, events)] == ["voided"]
    assert [each.code for each in of(TurnEnded, events)] == ["carried_over"]
    assert stage.effects.done == ["it"]


@in_loop
async def test_a_copied_prompt_stays_the_originals_when_the_index_is_made_anew(
    stage: Stage,
) -> None:
    """P7: the id of a prompt names the session that asked, also where a copy has its records."""
    ops = stage.agent(act("it"))
    async with stage.open(ops) as home:
        (asked,) = (await home.send("ops/m", "do it", source=alice)).approvals
        at = (await home.service.show("ops/m")).seq
        for copy in ("ops/a", "ops/z"):
            await fork(home.service.runtime, "ops/m", copy, at_seq=at, by="alice")
    for cache in stage.folder.glob("index.db*"):
        cache.unlink()
    async with stage.open(ops) as home:
        assert (await home.approval(asked.id)).session == "ops/m"
        everyone = await home.service.approvals(everything=True)
        assert [(each.id, each.session) for each in everyone] == [(asked.id, "ops/m")]
        answer = await home.answer(asked, "approve_once", by=alice)
        assert (answer.result, answer.turn.session, answer.turn.outcome) == (
            "started",
            "ops/m",
            "completed",
        )


@in_loop
async def test_a_fork_at_every_record_owes_nothing_and_each_call_has_one_result(
    stage: Stage,
) -> None:
    lines = [
        {"call": [{"tool": "look"}, {"tool": "act", "args": {"what": "one"}}]},
        *act("two", "three"),
        *act("four"),
    ]
    async with stage.open(stage.agent(lines)) as home:
        turn = await home.send("ops/a", "go", source=alice)
        turn = (await home.answer(turn.approvals[0], "approve_once", by=alice)).turn
        await home.answer(turn.approvals[0], "deny", by=alice)
        turn = (await home.answer(turn.approvals[1], "approve_once", by=alice)).turn
        assert turn.outcome == "completed"
        assert (await home.send("ops/a", "and more", source=alice)).outcome == "waiting"
        done, head = list(stage.effects.done), (await home.service.show("ops/a")).seq
        for at in range(1, head + 1):
            copy = f"ops/copy{at}"
            report = await fork(home.service.runtime, "ops/a", copy, at_seq=at, by="alice")
            assert (report.phase, report.owes, report.waiting) == ("idle", (), 0), at
            events = await stage.events(copy)
            proposed = [call.call for each in of(ModelAnswered, events) for call in each.calls]
            results = Counter(each.call for each in of(CallFinished, events))
            assert results == Counter(proposed), at
        assert stage.effects.done == done
        assert [each.session for each in await home.approvals()] == ["ops/a"]


@in_loop
async def test_a_conversation_can_be_forked_while_a_prompt_of_another_person_waits(
    stage: Stage,
) -> None:
    async with stage.open(stage.agent([*act("it")[:1], {"say": "hello"}])) as home:
        assert (await home.send("ops/a", "do it", source=bob)).outcome == "waiting"
        assert (await home.send("ops/a", "hello", source=alice)).outcome == "completed"
        at = (await home.service.show("ops/a")).seq
        report = await fork(home.service.runtime, "ops/a", "ops/b", at_seq=at, by="alice")
        assert (report.phase, report.owes, report.waiting, report.turns) == ("idle", (), 0, 2)
        assert [each.session for each in await home.approvals()] == ["ops/a"]


@in_loop
async def test_a_fork_of_a_conversation_whose_delegate_waits_leaves_the_delegate_alone(
    stage: Stage,
) -> None:
    tools = stage.effects.tools()
    helper = Agent("helper", model=ScriptModel(act("deploy")), tools=tools)
    lines = [
        {"call": [{"tool": "delegate_helper", "args": {"task": "deploy it"}}]},
        {"say": "handed on"},
    ]
    ops = Agent("ops", model=ScriptModel(lines), tools=tools, delegates=[helper])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "deploy it", source=alice)).approvals
        at = (await home.service.show("ops/a")).seq
        report = await fork(home.service.runtime, "ops/a", "ops/b", at_seq=at, by="alice")
        assert (report.phase, report.owes, report.delegates) == ("idle", (), ())
        child = approval.session
        at = (await home.service.show(child)).seq
        report = await fork(home.service.runtime, child, "ops/c", at_seq=at, by="alice")
        assert (report.phase, report.owes, report.parent, report.waiting) == ("idle", (), None, 0)
        assert [each.session for each in await home.approvals()] == [child]
        await home.answer(approval, "approve_once", by=alice)
        await home.resume("ops/a")
        assert (await home.service.show("ops/a")).phase == "idle"
    assert [each.outcome for each in of(CallFinished, await stage.events("ops/b"))] == ["in_doubt"]
    assert [each.outcome for each in of(CallFinished, await stage.events("ops/a"))] == ["ok"]
    assert stage.effects.done == ["deploy"]
