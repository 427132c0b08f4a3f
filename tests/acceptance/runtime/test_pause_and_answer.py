"""
Pause, restart, answer: cases 9 to 30 of the acceptance cases, through the library, over every
store.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import holdfast
from holdfast import Agent
from holdfast.ids import SessionId
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.events import (
    AnswerRefused,
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallFinished,
    ToolStarted,
    TurnEnded,
)
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob, carol


def act(*whats: str, say: str = "done") -> list[dict[str, Any]]:
    """A model that wants these acts at once, then says something."""
    return [{"call": [{"tool": "act", "args": {"what": what}} for what in whats]}, {"say": say}]


def of(kind: type, events: list[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@in_loop
async def test_an_approval_survives_a_restart_and_runs_once(stage: Stage) -> None:
    """
    Case 9: park, restart, approve once: the tool runs once, the reply comes, no second prompt.
    """
    ops = stage.agent(act("deploy", say="deployed"))
    async with stage.open(ops) as home:
        turn = await home.send("ops/api", "deploy it", source=alice)
        assert (turn.outcome, stage.effects.done) == ("waiting", [])
    async with stage.open(ops) as home:
        (approval,) = await home.approvals(for_="alice")
        answer = await home.answer(approval, "approve_once", by=alice)
    assert (answer.result, answer.turn.outcome, answer.turn.reply) == (
        "started",
        "completed",
        "deployed",
    )
    assert stage.effects.done == ["deploy"]
    assert len(of(ApprovalRequested, await stage.events("ops/api"))) == 1


@in_loop
async def test_an_option_that_was_not_offered_is_refused_and_the_prompt_stands(
    stage: Stage,
) -> None:
    """Case 11."""
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "deploy it", source=alice)).approvals
        refused = await home.answer(approval, "approve_folder", by=alice)
        assert (refused.result, refused.reason, refused.turn.outcome) == (
            "failed",
            "option_unavailable",
            "waiting",
        )
        assert (await home.answer(approval, "approve_once", by=alice)).turn.outcome == "completed"
    assert stage.effects.done == ["deploy"]


@in_loop
async def test_a_free_call_of_a_batch_runs_once_whatever_happens_to_its_gated_sibling(
    stage: Stage,
) -> None:
    """Case 12."""
    ops = stage.agent(
        [
            {
                "call": [
                    {"tool": "look", "args": {"at": "api"}},
                    {"tool": "act", "args": {"what": "deploy"}},
                ]
            },
            {"say": "done"},
        ]
    )
    async with stage.open(ops) as home:
        assert (await home.send("ops/api", "go", source=alice)).outcome == "waiting"
        assert stage.effects.done == ["look api"]
    async with stage.open(ops) as home:
        (approval,) = await home.approvals()
        assert (await home.answer(approval, "approve_once", by=alice)).turn.outcome == "completed"
    assert stage.effects.done == ["look api", "deploy"]


@in_loop
async def test_the_first_of_two_answers_is_deferred_and_the_second_starts_both(
    stage: Stage,
) -> None:
    """Case 13."""
    ops = stage.agent(act("one", "two"))
    async with stage.open(ops) as home:
        first, second = (await home.send("ops/api", "go", source=alice)).approvals
    async with stage.open(ops) as home:
        deferred = await home.answer(first, "approve_once", by=alice)
        assert (deferred.result, deferred.turn.outcome, stage.effects.done) == (
            "deferred",
            "waiting",
            [],
        )
        started = await home.answer(second, "approve_once", by=alice)
        assert (started.result, started.turn.outcome, sorted(stage.effects.done)) == (
            "started",
            "completed",
            ["one", "two"],
        )


@in_loop
async def test_another_persons_answer_is_refused_and_audited(stage: Stage) -> None:
    """Case 18."""
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        refused = await home.answer(approval, "approve_once", by=bob)
        assert (refused.result, refused.reason, refused.turn.outcome) == (
            "failed",
            "wrong_approver",
            "waiting",
        )
    (audit,) = of(AnswerRefused, await stage.events("ops/api"))
    assert (audit.by, audit.code, stage.effects.done) == ("bob", "wrong_approver", [])


@in_loop
async def test_the_same_answer_again_is_idempotent_and_another_one_is_refused(stage: Stage) -> None:
    """Case 19, live and after a restart."""
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        first = await home.answer(approval, "approve_once", by=alice, answer_id="mine")
        again = await home.answer(approval, "approve_once", by=alice, answer_id="mine")
        assert (first.result, again.result, again.turn.outcome) == (
            "started",
            "started",
            "completed",
        )
    async with stage.open(ops) as home:
        assert (
            await home.answer(approval, "approve_once", by=alice, answer_id="mine")
        ).result == "started"
        other = await home.answer(approval, "deny", by=alice, answer_id="other")
        assert (other.result, other.reason) == ("failed", "already_answered")
    assert stage.effects.done == ["deploy"]


@in_loop
async def test_a_denial_after_a_restart_is_a_result_and_nothing_runs(stage: Stage) -> None:
    """Case 20."""
    ops = stage.agent(
        [
            *act("deploy")[:1],
            {"expect": {"last_tool_result_contains": "denied it: not today"}, "say": "understood"},
        ]
    )
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
    async with stage.open(ops) as home:
        answer = await home.answer(approval, "deny", by=alice, reason="not today")
        assert (answer.turn.outcome, answer.turn.reply, await home.approvals()) == (
            "completed",
            "understood",
            (),
        )
    assert stage.effects.done == []


@in_loop
async def test_mixed_answers_have_one_effect_and_two_results(stage: Stage) -> None:
    """Case 21."""
    ops = stage.agent(act("one", "two"))
    async with stage.open(ops) as home:
        first, second = (await home.send("ops/api", "go", source=alice)).approvals
        await home.answer(first, "approve_once", by=alice)
    async with stage.open(ops) as home:
        assert (await home.answer(second, "deny", by=alice)).turn.outcome == "completed"
    finished = of(CallFinished, await stage.events("ops/api"))
    assert (stage.effects.done, sorted(each.outcome for each in finished)) == (
        ["one"],
        ["denied", "ok"],
    )


@in_loop
async def test_fifty_answers_at_once_are_one_decision_and_at_most_one_execution(
    stage: Stage,
) -> None:
    """Case 22."""
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        options = ["approve_once", "deny"] * 25
        answers = await asyncio.gather(
            *(home.answer(approval, option, by=alice) for option in options)
        )
    taken = [each for each in answers if each.result == "started"]
    refused = {each.reason for each in answers if each.result == "failed"}
    (answered,) = of(ApprovalAnswered, await stage.events("ops/api"))
    assert (len(taken), refused) == (1, {"already_answered"})
    assert stage.effects.done == (["deploy"] if answered.option == "approve_once" else [])


@in_loop
async def test_a_message_instead_of_an_answer_supersedes(stage: Stage) -> None:
    """
    Case 24: the gated call never runs, the next request has a synthetic result, a later click is
    told.
    """
    ops = stage.agent([*act("deploy")[:1], {"say": "fine, not deploying"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "deploy it", source=alice)).approvals
        turn = await home.send("ops/api", "actually, leave it for today", source=alice)
        assert (turn.outcome, turn.reply) == ("completed", "fine, not deploying")
        late = await home.answer(approval, "approve_once", by=alice)
        assert (late.result, late.reason) == ("failed", "superseded")
    (finished,) = of(CallFinished, await stage.events("ops/api"))
    assert (finished.outcome, stage.effects.done) == ("superseded", [])


@in_loop
async def test_three_parked_turns_of_three_people_are_answered_in_any_order(stage: Stage) -> None:
    """Case 25: each effect once, under its own authority, with restarts between."""
    ops = stage.agent(
        [
            *act("a")[:1],
            *act("b")[:1],
            *act("c")[:1],
            {"say": "one"},
            {"say": "two"},
            {"say": "three"},
        ]
    )
    asked = {}
    for source, name in ((alice, "alice"), (bob, "bob"), (carol, "carol")):
        async with stage.open(ops) as home:
            turn = await home.send("ops/api", f"for {name}", source=source)
            asked[name] = (source, turn.approvals[0])
    for name in ("carol", "alice", "bob"):
        source, approval = asked[name]
        async with stage.open(ops) as home:
            answer = await home.answer(approval, "approve_once", by=source)
            assert (answer.result, answer.turn.outcome) == ("started", "completed")
    assert stage.effects.done == ["c", "a", "b"]
    events = await stage.events("ops/api")
    who = {each.call: each.may_answer for each in of(ApprovalRequested, events)}
    answered = {each.call: each.by for each in of(ApprovalAnswered, events)}
    assert all((by,) == who[call] for call, by in answered.items())


@pytest.mark.parametrize("word", ["yes", "OK!", "no", "approve"])
@in_loop
async def test_an_answer_word_neither_approves_nor_supersedes(stage: Stage, word: str) -> None:
    """Case 25a."""
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "deploy it", source=alice)).approvals
        told = await home.send("ops/api", word, source=alice)
        assert (told.outcome, told.error.code if told.error else None) == ("waiting", "answer_word")
        assert approval.id in (told.error.hint if told.error else "")
        assert (await home.approval(approval.id)).state == "requested"
    assert stage.effects.done == []


@in_loop
async def test_on_message_wait_starts_another_turn_and_the_prompt_stands(stage: Stage) -> None:
    """Case 25a, second half."""
    stage.policy = Policy(on_message="wait")
    ops = stage.agent([*act("deploy")[:1], {"say": "hello"}, {"say": "deployed"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "deploy it", source=alice)).approvals
        assert (await home.send("ops/api", "how are you?", source=alice)).reply == "hello"
        assert (await home.answer(approval, "approve_once", by=alice)).turn.reply == "deployed"
    assert stage.effects.done == ["deploy"]


@in_loop
async def test_a_deferred_approval_does_not_survive_a_superseding_message(stage: Stage) -> None:
    """Case 25b."""
    ops = stage.agent([*act("one", "two")[:1], {"say": "ok"}])
    async with stage.open(ops) as home:
        first, _ = (await home.send("ops/api", "go", source=alice)).approvals
        assert (await home.answer(first, "approve_once", by=alice)).result == "deferred"
        await home.send("ops/api", "never mind all that", source=alice)
    finished = of(CallFinished, await stage.events("ops/api"))
    assert (stage.effects.done, [each.outcome for each in finished]) == (
        [],
        ["superseded", "superseded"],
    )


@in_loop
async def test_expiry_denies_durably_and_the_turn_goes_on(stage: Stage) -> None:
    """
    Case 28: past its time an answer is refused; whoever opens the session next journals the
    closing.
    """
    ops = stage.agent(
        [
            *act("deploy")[:1],
            {"expect": {"last_tool_result_contains": "nobody answered"}, "say": "too late"},
        ]
    )
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        stage.clock.advance(8 * 24 * 3600)
        late = await home.answer(approval, "approve_once", by=alice)
        assert (late.result, late.reason) == ("failed", "expired")
        assert await home.approvals() == ()
        stage.clock.jump(-9 * 24 * 3600)
    async with stage.open(ops) as home:
        stage.clock.jump(9 * 24 * 3600)
        (turn,) = await home.resume("ops/api")
        assert (turn.outcome, turn.reply) == ("completed", "too late")
    (closed,) = of(ApprovalClosed, await stage.events("ops/api"))
    assert (closed.closed_as, stage.effects.done) == ("expired", [])


@in_loop
async def test_an_answer_that_comes_too_late_journals_the_closing_and_the_turn_goes_on(
    stage: Stage,
) -> None:
    """
    Case 28: who answers has opened the session, so it is they who close the prompt; the answer
    itself is refused.
    """
    ops = stage.agent(
        [
            *act("deploy")[:1],
            {"expect": {"last_tool_result_contains": "nobody answered"}, "say": "too late"},
        ]
    )
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        stage.clock.advance(8 * 24 * 3600)
        late = await home.answer(approval, "approve_once", by=alice)
        assert (late.result, late.reason, late.turn.outcome, late.turn.reply) == (
            "failed",
            "expired",
            "completed",
            "too late",
        )
        shown = await home.approval(approval.id)
        assert (shown.state, shown.closed_as) == ("closed", "expired")
        again = await home.answer(approval, "approve_once", by=alice)
        assert (again.result, again.reason) == ("failed", "expired")
    assert (len(of(ApprovalClosed, await stage.events("ops/api"))), stage.effects.done) == (1, [])


@in_loop
async def test_an_answer_that_nobody_drives_on_yet_is_handed_on_however_often_it_is_given(
    stage: Stage,
) -> None:
    """
    Case 19: the same answer id prints the recorded result; `started` only once somebody went on
    with it.
    """
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "deploy it", source=alice)).approvals
        first = await home.answer(approval, "approve_once", by=alice, answer_id="mine", wait=False)
        again = await home.answer(approval, "approve_once", by=alice, answer_id="mine")
        assert (first.result, again.result, again.turn.outcome, stage.effects.done) == (
            "handed_on",
            "handed_on",
            "running",
            [],
        )
        await home.resume("ops/api")
        later = await home.answer(approval, "approve_once", by=alice, answer_id="mine")
        assert (later.result, later.turn.outcome, stage.effects.done) == (
            "started",
            "completed",
            ["deploy"],
        )


@in_loop
async def test_an_answered_call_runs_after_a_crash_before_a_new_message(
    stage: Stage,
) -> None:
    """
    Cases 14 and 16: the approved call runs once, first, whatever comes next; it is not left to
    whoever resumes.
    """
    ops = stage.agent([*act("deploy")[:1], {"say": "deployed"}, {"say": "hello"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "deploy it", source=alice)).approvals
        assert (
            await home.answer(approval, "approve_once", by=alice, wait=False)
        ).result == "handed_on"
    async with stage.open(ops) as home:
        turn = await home.send("ops/api", "hi there", source=alice)
        assert (turn.outcome, turn.reply, stage.effects.done) == ("completed", "hello", ["deploy"])
    ended = of(TurnEnded, await stage.events("ops/api"))
    assert [(each.turn, each.reply) for each in ended] == [("t1", "deployed"), ("t2", "hello")]


@in_loop
async def test_a_webhook_that_says_ok_is_a_message_and_answers_nothing(stage: Stage) -> None:
    """
    Cases 25 and 25a: only a person's word is told how to answer; what automation says is never
    lost, and never consents.
    """
    ops = stage.agent([*act("deploy")[:1], {"say": "noted"}, {"say": "deployed"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "deploy it", source=alice)).approvals
        hook = await home.send(
            "ops/api", "ok", source=holdfast.MessageSource.automation("alice", channel="webhook")
        )
        assert (hook.outcome, hook.reply, stage.effects.done) == ("completed", "noted", [])
        assert (await home.answer(approval, "approve_once", by=alice)).turn.reply == "deployed"


@in_loop
async def test_an_edit_is_validated_shown_again_and_reported_to_the_model(stage: Stage) -> None:
    """Case 36a."""
    ops = stage.agent(
        [
            *act("everything")[:1],
            {"expect": {"last_tool_result_contains": "changed the arguments"}, "say": "ok"},
        ]
    )
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        wrong = await home.answer(approval, "edit", by=alice, arguments={"what": 7})
        assert (wrong.result, wrong.reason) == ("failed", "malformed")
        edited = await home.answer(approval, "edit", by=alice, arguments={"what": "a little"})
        assert (edited.turn.outcome, stage.effects.done) == ("waiting", [])
        (again,) = edited.turn.approvals
        assert (again.arguments, again.id != approval.id, again.digest != approval.digest) == (
            {"what": "a little"},
            True,
            True,
        )
        assert (await home.answer(again, "approve_once", by=alice)).turn.outcome == "completed"
    assert stage.effects.done == ["a little"]


@in_loop
async def test_a_question_parks_and_its_answer_is_text_that_grants_nothing(stage: Stage) -> None:
    """Case 36a, ask_person."""
    ask = {"tool": "ask_person", "args": {"question": "which one?", "choices": ["api", "web"]}}
    ops = stage.agent(
        [{"call": [ask]}, {"expect": {"last_tool_result_contains": "web"}, "say": "ok"}]
    )
    async with stage.open(ops) as home:
        (question,) = (await home.send("ops/api", "go", source=alice)).approvals
        assert (question.kind, question.options) == ("question", ("api", "web", "answer", "deny"))
    async with stage.open(ops) as home:
        assert (await home.answer(question, "web", by=alice)).turn.outcome == "completed"
        assert await home.grants() == ()


@in_loop
async def test_named_approvers_answer_and_the_requester_may_not_where_policy_says_so(
    stage: Stage,
) -> None:
    stage.policy = Policy(
        rules={
            Audience.PERSONAL: {
                "act": Rule(mode="ask", approvers=("bob",), requester_may_answer=False)
            }
        }
    )
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        assert approval.may_answer == ("bob",)
        assert (await home.answer(approval, "approve_once", by=alice)).reason == "wrong_approver"
        assert (await home.answer(approval, "approve_once", by=bob)).turn.outcome == "completed"
    assert stage.effects.done == ["deploy"]


@in_loop
async def test_policy_tightened_while_parked_voids_what_was_approved(stage: Stage) -> None:
    """Case 37."""
    ops = stage.agent([*act("deploy")[:1], {"say": "it was stopped"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        stage.policy = Policy(rules={Audience.PERSONAL: {"act": Rule(mode="deny")}})
        answer = await home.answer(approval, "approve_once", by=alice)
        assert (answer.result, answer.reason) == ("failed", "voided")
        assert (answer.turn.outcome, answer.turn.reply) == ("completed", "it was stopped")
    (finished,) = of(CallFinished, await stage.events("ops/api"))
    assert (finished.outcome, stage.effects.done) == ("voided", [])


@in_loop
async def test_an_approver_removed_while_pending_no_longer_counts(stage: Stage) -> None:
    """Case 33, second half."""
    stage.policy = Policy(rules={Audience.PERSONAL: {"act": Rule(mode="ask", approvers=("bob",))}})
    ops = stage.agent([*act("deploy")[:1], {"say": "stopped"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        stage.policy = Policy(
            rules={Audience.PERSONAL: {"act": Rule(mode="ask", approvers=("carol",))}}
        )
        assert (await home.answer(approval, "approve_once", by=bob)).reason == "voided"
    assert (stage.effects.done, of(ToolStarted, await stage.events("ops/api"))) == ([], [])


@in_loop
async def test_a_batch_beyond_the_prompt_budget_is_denied_and_the_turn_goes_on(
    stage: Stage,
) -> None:
    stage.policy = Policy(prompts_per_turn_max=2)
    ops = stage.agent(act("a", "b", "c"))
    async with stage.open(ops) as home:
        turn = await home.send("ops/api", "go", source=alice)
        assert len(turn.approvals) == 2
        for approval in turn.approvals:
            answer = await home.answer(approval, "approve_once", by=alice)
        assert answer.turn.outcome == "completed"
    codes = {each.code for each in of(CallFinished, await stage.events("ops/api"))}
    assert (sorted(stage.effects.done), "prompt_budget" in codes) == (["a", "b"], True)


@in_loop
async def test_a_turn_nobody_asked_for_is_denied_at_once_and_prompts_nobody(stage: Stage) -> None:
    """Case 31."""
    ops = stage.agent(act("deploy"))
    webhook = holdfast.MessageSource.automation("alice", channel="webhook")
    async with stage.open(ops) as home:
        for session, source in (("ops/none", None), ("ops/hook", webhook)):
            turn = await home.send(session, "go", source=source)
            assert (turn.outcome, turn.approvals) == ("completed", ())
    for session in ("ops/none", "ops/hook"):
        events = await stage.events(session)
        (finished,) = of(CallFinished, events)
        assert (finished.outcome, finished.code, of(ApprovalRequested, events)) == (
            "unattended",
            "approval_unattended",
            [],
        )
    assert stage.effects.done == []


@in_loop
async def test_a_webhooks_turn_asks_the_approvers_that_policy_names_and_only_them(
    stage: Stage,
) -> None:
    """Case 31, second half."""
    stage.policy = Policy(rules={Audience.PERSONAL: {"act": Rule(mode="ask", approvers=("bob",))}})
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        turn = await home.send(
            "ops/hook", "go", source=holdfast.MessageSource.automation("alice", channel="webhook")
        )
        (approval,) = turn.approvals
        assert approval.may_answer == ("bob",)
        assert (await home.answer(approval, "approve_once", by=bob)).turn.outcome == "completed"
    assert stage.effects.done == ["deploy"]


@in_loop
async def test_an_answer_in_a_process_without_the_tool_is_handed_on(stage: Stage) -> None:
    """Case 33, first half."""
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
    async with stage.open() as home:
        answer = await home.answer(approval, "approve_once", by=alice)
        assert (answer.result, stage.effects.done) == ("handed_on", [])
    async with stage.open(ops) as home:
        (turn,) = await home.resume()
        assert turn.outcome == "completed"
    assert stage.effects.done == ["deploy"]
    assert [each.outcome for each in of(TurnEnded, await stage.events("ops/api"))] == ["completed"]


@in_loop
async def test_an_edit_needs_a_process_that_has_the_tool_and_the_prompt_stands(
    stage: Stage,
) -> None:
    """
    Arguments are validated before anyone is asked: where that can't be done, they are not taken.
    """
    ops = stage.agent(act("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
    async with stage.open() as home:
        refused = await home.answer(approval, "edit", by=alice, arguments={"what": "less"})
        assert (refused.result, refused.reason, refused.turn.outcome) == (
            "failed",
            "option_unavailable",
            "waiting",
        )


async def heard(notices: AsyncIterator[SessionId], session: SessionId) -> None:
    """Until there is word of it."""
    async with asyncio.timeout(60):
        async for notice in notices:
            if notice == session:
                return


@in_loop
async def test_a_prompt_is_announced_while_a_sibling_of_its_call_runs_on(stage: Stage) -> None:
    """The approver hears of it at once, and not when the drive ends."""
    session, marker = SessionId("ops/api"), SessionId("ops/marker")
    calls = [
        {"tool": "slow", "args": {"what": "second"}},
        {"tool": "act", "args": {"what": "deploy"}},
    ]
    ops = stage.agent(
        [{"call": [{"tool": "slow", "args": {"what": "first"}}]}, {"call": calls}, {"say": "done"}]
    )
    async with (
        stage.open(ops) as home,
        home.service.runtime.world.notifier.listen() as notices,
        asyncio.TaskGroup() as group,
    ):
        sending = group.create_task(home.send(session, "go", source=alice))
        await stage.effects.begun("first").wait()
        home.service.runtime.world.notifier.notify(marker)  # what was told before is heard before
        await heard(notices, marker)
        stage.effects.gates["first"].set()
        await heard(notices, session)
        (approval,) = await home.approvals(for_="alice")
        assert (approval.tool, sending.done(), "second" in stage.effects.done) == (
            "act",
            False,
            False,
        )
        stage.effects.gates["second"].set()
        assert (await sending).approvals == (approval,)


@in_loop
async def test_the_same_answer_id_with_other_arguments_is_another_answer(stage: Stage) -> None:
    """P2, while the edited call has not been shown again."""
    ops = stage.agent(act("everything"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        taken = await home.answer(
            approval, "edit", by=alice, arguments={"what": "a little"}, answer_id="mine", wait=False
        )
        again = await home.answer(
            approval, "edit", by=alice, arguments={"what": "a little"}, answer_id="mine", wait=False
        )
        other = await home.answer(
            approval, "edit", by=alice, arguments={"what": "a lot"}, answer_id="mine", wait=False
        )
    assert (taken.result, again.result, other.result, other.reason) == (
        "handed_on",
        "handed_on",
        "failed",
        "already_answered",
    )


@in_loop
async def test_the_same_answer_id_with_other_arguments_is_refused_also_when_its_turn_is_over(
    stage: Stage,
) -> None:
    """
    P2: the journal knows what was taken. The same answer, as the tool reads it, is told as the
    same.
    """
    ops = stage.agent([{"call": [{"tool": "act", "args": {"what": "all"}}]}, {"say": "done"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        edited = await home.answer(
            approval, "edit", by=alice, arguments={"what": "a little"}, answer_id="mine"
        )
        (anew,) = edited.turn.approvals
        assert (await home.answer(anew, "deny", by=alice)).turn.outcome == "completed"
        again = await home.answer(
            approval, "edit", by=alice, arguments={"what": "a little"}, answer_id="mine"
        )
        assert again.result == "started"
        for other in ({"what": "a lot"}, {"what": 7}, {"wat": "a little"}):
            refused = await home.answer(
                approval, "edit", by=alice, arguments=other, answer_id="mine"
            )
            assert (refused.result, refused.reason) == ("failed", "already_answered"), other
    assert stage.effects.done == []


@in_loop
async def test_the_same_arguments_in_another_spelling_are_the_same_answer_also_when_it_is_over(
    stage: Stage,
) -> None:
    """
    P2: what a client may write in another order, or leave out, is what the tool reads as the same.
    """

    @holdfast.tool
    def ship(what: str, where: str = "eu") -> str:
        """Send it off."""
        stage.effects.done.append(f"{what} {where}")
        return "shipped"

    ops = Agent(
        "ops",
        model=ScriptModel([{"call": [{"tool": "ship", "args": {"what": "all"}}]}, {"say": "done"}]),
        tools=[ship],
    )
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        edited = await home.answer(
            approval, "edit", by=alice, arguments={"what": "a little"}, answer_id="mine"
        )
        assert (
            await home.answer(edited.turn.approvals[0], "approve_once", by=alice)
        ).turn.outcome == "completed"
        for same in ({"what": "a little"}, {"where": "eu", "what": "a little"}):
            assert (
                await home.answer(approval, "edit", by=alice, arguments=same, answer_id="mine")
            ).result == "started", same
        other = await home.answer(
            approval,
            "edit",
            by=alice,
            arguments={"what": "a little", "where": "us"},
            answer_id="mine",
        )
        assert (other.result, other.reason) == ("failed", "already_answered")
    assert stage.effects.done == ["a little eu"]


@in_loop
async def test_the_same_answer_id_with_other_words_is_refused(stage: Stage) -> None:
    """An answer to a question is its words."""
    ops = stage.agent(
        [{"call": [{"tool": "ask_person", "args": {"question": "which one?"}}]}, {"say": "thanks"}]
    )
    async with stage.open(ops) as home:
        (question,) = (await home.send("ops/api", "go", source=alice)).approvals
        first = await home.answer(
            question, "answer", by=alice, reason="the left one", answer_id="mine"
        )
        assert first.turn.outcome == "completed"
        assert (
            await home.answer(question, "answer", by=alice, reason="the left one", answer_id="mine")
        ).result == "started"
        other = await home.answer(
            question, "answer", by=alice, reason="the right one", answer_id="mine"
        )
        assert (other.result, other.reason) == ("failed", "already_answered")
