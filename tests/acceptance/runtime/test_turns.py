"""
Turns: inputs, queueing, failures, cancel, drain. Cases 10, 15 to 17, 38 to 50, over every store.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.errors import CannotDrive, Refused
from holdfast.home import Agent
from holdfast.ids import SessionId, TurnId
from holdfast.limits import MIB
from holdfast.ports.model import ModelRequest, OnText
from holdfast.runtime.context import Tuning
from holdfast.runtime.drive.driver import Driver
from holdfast.runtime.drive.turn import drive_until, nothing_owed
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.context import Audience, Workspace
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.events import (
    ApprovalRequested,
    CallFinished,
    InputAccepted,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    ToolStarted,
    TurnCancelled,
    TurnEnded,
    TurnStarted,
)
from holdfast.session.view.messages import ModelAnswer, ProposedCall
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob, seen
from tests.acceptance.runtime.test_pause_and_answer import act, of


@in_loop
async def test_messages_of_two_people_are_two_turns_each_under_its_own_requester(
    stage: Stage,
) -> None:
    """Case 39: queued while a turn runs; order kept, each consumed once, never merged."""
    slow = {"call": [{"tool": "slow", "args": {"what": "first"}}]}
    ops = stage.agent([slow, {"say": "one"}, {"say": "two"}, {"say": "three"}])
    async with stage.open(ops) as home:
        first = asyncio.ensure_future(home.send("ops/api", "start", source=alice))
        await stage.effects.begun("first").wait()
        queued = [
            await home.send("ops/api", text, source=who, wait=False)
            for text, who in (("b1", bob), ("a1", alice), ("a2", alice))
        ]
        assert {turn.outcome for turn in queued} == {"queued"}
        stage.effects.gates["first"].set()
        assert (await first).reply == "one"
        await home.resume("ops/api")
    events = await stage.events("ops/api")
    assert [each.inputs for each in of(TurnStarted, events)] == [("i1",), ("i2",), ("i3", "i4")]
    assert len(of(InputAccepted, events)) == 4


@in_loop
async def test_the_same_message_twice_is_one_turn_and_another_text_under_its_key_is_refused(
    stage: Stage,
) -> None:
    """Case 40."""
    ops = stage.agent([{"say": "hello"}])
    async with stage.open(ops) as home:
        one = await home.send("ops/api", "hi", source=alice, dedup="m1")
    async with stage.open(ops) as home:
        two = await home.send("ops/api", "hi", source=alice, dedup="m1")
        assert (one.reply, two.reply, one.turn) == ("hello", "hello", two.turn)
        with pytest.raises(holdfast.Refused) as refused:
            await home.send("ops/api", "other", source=alice, dedup="m1")
        assert refused.value.code == "dedup_conflict"
        other = await home.send("ops/api", "hi", source=bob, dedup="m1")
        assert other.turn != one.turn
    assert len(of(TurnStarted, await stage.events("ops/api"))) == 2


@pytest.mark.parametrize("text", ["", " \n\t", "\u2003"])
@in_loop
async def test_a_message_that_says_nothing_is_refused_before_a_session_is_created_for_it(
    stage: Stage, text: str
) -> None:
    """Whichever way in: they all ask the service, which asks the same function as deciding does."""
    async with stage.open(stage.agent([{"say": "hello"}])) as home:
        with pytest.raises(holdfast.Refused) as refused:
            await home.send("ops/api", text, source=alice)
        with pytest.raises(holdfast.Refused) as foreign:
            async with home.turn("ops/api", text, source=alice):
                pytest.fail("a turn began")
        assert (
            refused.value.code,
            foreign.value.code,
            list(await home.service.runtime.world.store.sessions()),
        ) == ("malformed", "malformed", [])


@in_loop
async def test_a_model_that_fails_is_tried_again_within_bounds_then_the_turn_fails(
    stage: Stage,
) -> None:
    """Case 41."""
    ops = stage.agent(
        [
            {"fail": "server"},
            {"say": "at last"},
            {"fail": "server"},
            {"fail": "rate_limit"},
            {"fail": "timeout"},
            {"say": "never"},
        ]
    )
    async with stage.open(ops) as home:
        assert (await home.send("ops/api", "one", source=alice)).reply == "at last"
        failed = await home.send("ops/api", "two", source=alice)
        assert (failed.outcome, failed.error.code if failed.error else None) == (
            "failed",
            "timeout",
        )
    assert [each.final for each in of(ModelCallFailed, await stage.events("ops/api"))] == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"say": "x" * MIB}, "an answer of 1048"),
        (
            {"call": [{"tool": "look", "args": {"at": "x" * MIB}}]},
            "with 1 calls is more than can be kept",
        ),
        (
            {"call": [{"tool": "look", "args": {}}] * 2_100},
            "with 2100 calls is more than can be kept",
        ),
    ],
)
@in_loop
async def test_an_answer_that_no_record_can_hold_fails_its_turn_and_no_later_one(
    stage: Stage, line: dict[str, Any], told: str
) -> None:
    """
    Found only by the append it ended the drive and not the turn: every later one asked the model
    for the same again.
    """
    ops = stage.agent([line, {"say": "and now?"}])
    async with stage.open(ops) as home:
        failed = await home.send("ops/api", "one", source=alice)
        assert failed.error is not None
        assert (failed.outcome, failed.error.code, told in failed.error.message) == (
            "failed",
            "malformed",
            True,
        )
        assert (await home.send("ops/api", "two", source=alice)).reply == "and now?"


@in_loop
async def test_a_tool_that_fails_is_a_result_not_an_end(stage: Stage) -> None:
    """Case 43: each call of a batch has a result, contiguous."""
    calls = [
        {"tool": "fail", "args": {}},
        {"tool": "look", "args": {"at": "x"}},
        {"tool": "nope", "args": {}},
        {"tool": "look", "args": {"at": 3}},
    ]
    ops = stage.agent([{"call": calls}, {"say": "ok"}])
    async with stage.open(ops) as home:
        assert (await home.send("ops/api", "go", source=alice)).outcome == "completed"
    finished = of(CallFinished, await stage.events("ops/api"))
    assert sorted((each.outcome, each.code or "") for each in finished) == [
        ("error", ""),
        ("error", "invalid_arguments"),
        ("error", "unknown_tool"),
        ("ok", ""),
    ]


@in_loop
async def test_cancel_while_a_tool_runs_ends_it_in_doubt_and_never_as_cancelled(
    stage: Stage,
) -> None:
    """Case 44."""
    ops = stage.agent([{"call": [{"tool": "slow", "args": {"what": "x"}}]}, {"say": "never"}])
    async with stage.open(ops) as home:
        sending = asyncio.ensure_future(home.send("ops/api", "go", source=alice))
        await stage.effects.begun("x").wait()
        await home.cancel("ops/api", by=alice)
        assert (await sending).outcome == "cancelled"
    events = await stage.events("ops/api")
    (finished,) = of(CallFinished, events)
    assert (finished.outcome, stage.effects.done) == ("in_doubt", ["began x"])
    assert [
        type(each) for each in events if isinstance(each, TurnCancelled | CallFinished | TurnEnded)
    ] == [TurnCancelled, CallFinished, TurnEnded]


@in_loop
async def test_cancel_while_parked_and_while_thinking(stage: Stage) -> None:
    """Case 44: durable at once; a late answer is dropped; what never started never will."""
    ops = stage.agent([*act("deploy")[:1], {"sleep": 600, "say": "too late"}, {"say": "next"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        (cancelled,) = await home.cancel("ops/api", by=alice)
        assert cancelled.outcome == "cancelled"
        assert (await home.answer(approval, "approve_once", by=alice)).reason == "cancelled"
        thinking = asyncio.ensure_future(home.send("ops/api", "think", source=alice))
        await seen(home, "ops/api", ModelCallStarted, turn="t2")
        await home.cancel("ops/api", by=alice)
        assert (await thinking).outcome == "cancelled"
    assert stage.effects.done == []


@in_loop
async def test_only_the_requester_or_the_operator_cancels(stage: Stage) -> None:
    ops = stage.agent(act("deploy"))
    stranger = holdfast.MessageSource.team("mallory", "ops")
    async with stage.open(ops) as home:
        await home.send("ops/api", "go", source=alice)
        with pytest.raises(holdfast.Refused) as refused:
            await home.cancel("ops/api", by=stranger)
        assert refused.value.code == "no_authority"


@in_loop
async def test_an_unknown_caller_has_no_rights_of_a_person_named_nobody(stage: Stage) -> None:
    """A2: a stand-in for a missing name is somebody's own."""
    requester, unknown = (
        holdfast.MessageSource.local("nobody"),
        msgspec.structs.replace(bob, person=None, principal="trusted_internal"),
    )
    async with stage.open(stage.agent(act("it"))) as home:
        turn = await home.send("ops/api", "do it", source=requester)
        (approval,) = turn.approvals
        reminder = await home.remind("ops/api", "look", source=requester, every="1h")
        for tried in (
            home.cancel("ops/api", by=unknown),
            home.cancel_reminder(reminder.id, by=unknown),
            home.revoke("g-1", by=unknown),
        ):
            with pytest.raises(Refused) as refused:
                await tried
            assert refused.value.code == "no_authority"
        assert [each.id for each in await home.approvals()] == [approval.id]
        assert [each.id for each in await home.reminders()] == [reminder.id]


@in_loop
async def test_the_same_call_again_and_again_is_corrected_then_ends_the_turn(stage: Stage) -> None:
    """Case 46."""
    same = {"call": [{"tool": "look", "args": {"at": "x"}}]}
    ops = stage.agent([same, same, same, same, same])
    async with stage.open(ops) as home:
        turn = await home.send("ops/api", "go", source=alice)
        assert (turn.outcome, turn.error.code if turn.error else None) == ("failed", "repeating")
    assert stage.effects.done == ["look x", "look x"]


@in_loop
async def test_a_bound_that_is_reached_ends_the_turn_and_is_named(stage: Stage) -> None:
    stage.policy = Policy(turn_model_calls_max=2)
    ops = stage.agent([{"call": [{"tool": "look", "args": {"at": str(i)}}]} for i in range(5)])
    async with stage.open(ops) as home:
        turn = await home.send("ops/api", "go", source=alice)
        assert (turn.outcome, turn.error.code if turn.error else None) == (
            "failed",
            "turn_model_calls_max",
        )


@in_loop
async def test_a_script_expectation_that_is_not_met_fails_the_turn(stage: Stage) -> None:
    ops = stage.agent([{"expect": {"last_tool_result_contains": "nothing ran"}, "say": "x"}])
    async with stage.open(ops) as home:
        turn = await home.send("ops/api", "go", source=alice)
        assert (turn.outcome, turn.error.code if turn.error else None) == (
            "failed",
            "script_expectation",
        )


@in_loop
async def test_a_session_keeps_its_model_and_a_removed_one_is_cannot_drive_with_a_hint(
    stage: Stage,
) -> None:
    """Case 50."""
    ops = stage.agent([*act("deploy")[:1], {"say": "done"}])
    async with stage.open(ops) as home:
        await home.send("ops/api", "go", source=alice)
        (approval,) = await home.approvals()
        await home.answer(approval, "deny", by=alice, wait=False)
    other = holdfast.Agent("ops", model="demo", tools=stage.effects.tools())
    async with stage.open(other) as home:
        with pytest.raises(holdfast.CannotDrive) as cannot:
            await home.resume("ops/api")
        assert "resume ops/api --model" in cannot.value.hint
        (turn,) = await home.resume("ops/api", model="demo")
        assert turn.outcome == "completed"


@in_loop
async def test_changed_live_facts_change_nothing_later_in_the_turn(stage: Stage) -> None:
    """Cases 6 and 23: the continuation after a restart asks under the original context."""
    first = {"call": [{"tool": "act", "args": {"what": "one"}}]}
    second = {"call": [{"tool": "act", "args": {"what": "two"}}]}
    ops = stage.agent([first, second, {"say": "done"}])
    quoted = holdfast.MessageSource.local(
        "alice", quotes=(holdfast.Quote("mallory", "approve everything"),)
    )
    async with stage.open(ops) as home:
        (one,) = (await home.send("ops/api", "go", source=quoted)).approvals
    async with stage.open(ops) as home:
        answer = await home.answer(one, "approve_once", by=alice)
        (two,) = answer.turn.approvals
    same = (
        "requester",
        "audience",
        "boundary",
        "channel",
        "quoted_speakers",
        "principal",
        "may_answer",
    )
    assert [getattr(one, name) for name in same] == [getattr(two, name) for name in same]
    assert two.quoted_speakers == ("mallory",)


@in_loop
async def test_team_turns_are_denied_what_policy_does_not_name(stage: Stage) -> None:
    ops = stage.agent([*act("deploy")[:1], {"say": "no"}, *act("deploy")[:1], {"say": "yes"}])
    team = holdfast.MessageSource.team("alice", "ops")
    async with stage.open(ops) as home:
        assert (await home.send("ops/api", "go", source=team)).reply == "no"
        stage.policy = Policy(
            rules={
                Audience.TEAM: {
                    "act": Rule(mode="ask", approvers=("bob",), requester_may_answer=False)
                }
            }
        )
        (approval,) = (await home.send("ops/api", "again", source=team)).approvals
        assert (approval.audience, approval.boundary, approval.may_answer) == (
            "team",
            "team:ops",
            ("bob",),
        )
    (denied,) = of(CallFinished, await stage.events("ops/api"))
    assert (denied.outcome, denied.code) == ("denied", "denied_by_policy")


@pytest.mark.parametrize("stage", ["memory"], indirect=True)  # real disks: tests/hostile/faults
@in_loop
async def test_no_model_call_is_made_when_the_message_could_not_be_kept(stage: Stage) -> None:
    """Case 38."""
    from holdfast.adapters.inmemory import Fault

    ops = stage.agent([{"say": "never"}])
    async with stage.open(ops) as home:
        await home.send("ops/other", "hi", source=alice)
        stage.disk.fail_next(Fault.NOT_SAVED)
        with pytest.raises(holdfast.NotSaved):
            await home.send("ops/other", "hi again", source=alice)
    events = await stage.events("ops/other")
    assert (len(of(InputAccepted, events)), len(of(ModelCallStarted, events))) == (1, 1)


@in_loop
async def test_a_lost_model_call_is_repeated_under_a_new_number(stage: Stage) -> None:
    ops = stage.agent([{"say": "hello"}, {"sleep": 600, "say": "slow"}])
    async with stage.open(ops) as home:
        await home.send("ops/api", "hi", source=alice)
        sending = asyncio.ensure_future(home.send("ops/api", "go", source=alice))
        await seen(home, "ops/api", ModelCallStarted, turn="t2")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    quick = holdfast.Agent("ops", model=ops.model, tools=ops.tools)
    async with stage.open(quick) as home:
        resuming = asyncio.ensure_future(home.resume("ops/api"))
        await seen(home, "ops/api", ModelCallStarted, turn="t2", number=2)
        resuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resuming
    events = await stage.events("ops/api")
    started = [(each.turn, each.number) for each in of(ModelCallStarted, events)]
    assert (started, [each.number for each in of(ModelCallLost, events)]) == (
        [("t1", 1), ("t2", 1), ("t2", 2)],
        [1],
    )
    assert [each.turn for each in of(ModelAnswered, events)] == ["t1"]


@in_loop
async def test_an_in_doubt_call_asks_again_whatever_grants_say(stage: Stage) -> None:
    """Case 15: the prompt says that an earlier attempt is in doubt."""
    same = {"call": [{"tool": "act", "args": {"what": "deploy"}}]}
    slow = {"call": [{"tool": "slow", "args": {"what": "x"}}]}
    ops = stage.agent([same, {"say": "granted"}, slow, slow, {"say": "end"}])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        await home.answer(approval, "approve_session", by=alice)
        sending = asyncio.ensure_future(home.send("ops/api", "slowly", source=alice))
        await stage.effects.begun("x").wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    async with stage.open(ops) as home:
        (turn,) = await home.resume("ops/api")
        assert turn.outcome == "waiting"
        assert "in doubt" in turn.approvals[0].display
        assert turn.approvals[0].options == ("approve_once", "edit", "deny")
    assert stage.effects.done.count("began x") == 1
    assert (
        len(
            [each for each in of(ToolStarted, await stage.events("ops/api")) if each.tool == "slow"]
        )
        == 1
    )


@in_loop
async def test_a_late_answer_of_the_model_is_dropped_visibly(stage: Stage) -> None:
    """T6: whoever follows sees that an answer came too late, and why."""
    from holdfast.session.commands import TakeAnswer
    from holdfast.session.view.messages import ModelAnswer

    ops = stage.agent([{"say": "hi"}])
    async with stage.open(ops) as home:
        turn = await home.send("ops/api", "go", source=alice)
        async with home.service.runtime.sessions.use(holdfast.ids.session_id("ops/api")) as ledger:
            await ledger.commit(
                TakeAnswer(
                    turn=turn.turn, number=1, answer=ModelAnswer(text="late"), policy=Policy()
                )
            )
    (dropped,) = of(ModelAnswerDropped, await stage.events("ops/api"))
    assert "completed" in dropped.reason


@in_loop
async def test_approvals_are_listed_from_the_journals_when_the_index_is_gone(stage: Stage) -> None:
    ops = stage.agent([*act("a")[:1], *act("b")[:1]])
    async with stage.open(ops) as home:
        await home.send("ops/a", "go", source=alice)
        await home.send("ops/b", "go", source=bob)
    if stage.kind == "files":
        (stage.folder / "index.db").unlink()
    async with stage.open(ops) as home:
        assert [each.session for each in await home.approvals()] == ["ops/a", "ops/b"]
        (mine,) = await home.approvals(for_="bob")
        assert (mine.session, (await home.approval(mine.id)).display) == ("ops/b", mine.display)


@in_loop
async def test_following_gives_every_record_once_and_text_as_it_comes(stage: Stage) -> None:
    ops = stage.agent([{"say": "hello there"}])
    seen: list[Any] = []
    async with stage.open(ops) as home:
        await home.send("ops/api", "hi", source=alice)
        async for piece in home.follow("ops/api", after=0):
            seen.append(piece)
            if isinstance(piece, holdfast.Record) and piece.type == "turn_ended":
                break
    numbers = [piece.seq for piece in seen if isinstance(piece, holdfast.Record)]
    assert numbers == sorted(set(numbers))
    assert [piece.type for piece in seen if isinstance(piece, holdfast.Record)] == [
        "session_born", "input_accepted", "turn_started", "model_call_started", "model_answered", "turn_ended",
    ]  # fmt: skip
    assert of(ApprovalRequested, seen) == []


@in_loop
async def test_a_message_that_was_cancelled_in_the_queue_is_reported_as_cancelled_and_never_as_completed(
    stage: Stage,
) -> None:
    """
    Case 44: nothing of it ran, so nothing of it succeeded; its sender, a duplicate and whoever
    looks later hear the same.
    """
    ops = stage.agent([{"say": "never"}])
    async with stage.open(ops) as home:
        queued = await home.send("ops/api", "go", source=alice, dedup="k", wait=False)
        assert queued.outcome == "queued"
        (cancelled,) = await home.cancel("ops/api", by=alice, turn=queued.turn)
        assert (cancelled.outcome, cancelled.error.code if cancelled.error else None) == (
            "cancelled",
            "cancelled",
        )
        assert (await home.send("ops/api", "go", source=alice, dedup="k")).outcome == "cancelled"
    async with stage.open(ops) as home:
        assert (await home.send("ops/api", "go", source=alice, dedup="k")).outcome == "cancelled"


@in_loop
async def test_the_model_view_hides_a_narrower_reader_set_from_a_wider_one(
    stage: Stage,
) -> None:
    """
    A canary of a personal turn is in no later request of a team's or a public turn of the same
    session; and comes back for the person.
    """

    class Watching:
        name = "script-object:watching"
        context_tokens = None

        def __init__(self) -> None:
            self.seen: list[str] = []

        async def call(self, request: Any, *, on_text: Any) -> Any:
            from holdfast.session.view.messages import ModelAnswer

            on_text("")
            self.seen.append(repr(request.messages))
            return ModelAnswer(text="noted")

    watching = Watching()
    ops = holdfast.Agent("ops", model=watching, tools=[])
    async with stage.open(ops) as home:
        await home.send("ops/api", "my canary is 7f3b", source=alice)
        await home.send("ops/api", "hello team", source=holdfast.MessageSource.team("alice", "ops"))
    async with stage.open(ops) as home:
        await home.send("ops/api", "hello world", source=None)
        await home.send("ops/api", "what did I say?", source=alice)
    assert ["7f3b" in each for each in watching.seen] == [True, False, False, True]
    assert "hello team" not in watching.seen[2]


@in_loop
async def test_resume_with_nothing_owed_is_well_whatever_the_last_turn_came_to(
    stage: Stage,
) -> None:
    ops = stage.agent([{"say": "hello"}, *act("deploy")])
    async with stage.open(ops) as home:
        await home.send("ops/api", "hi", source=alice)
        assert [(each.outcome, each.reply) for each in await home.resume("ops/api")] == [
            ("completed", "hello")
        ]
        await home.send("ops/api", "deploy", source=alice)
        await home.cancel("ops/api", by=alice)
        assert [(each.turn, each.outcome) for each in await home.resume("ops/api")] == [
            (None, "completed")
        ]


@in_loop
async def test_a_turn_nobody_remembers_is_not_reported_as_completed(stage: Stage) -> None:
    ops = stage.agent([{"say": "hello"}])
    async with stage.open(ops) as home:
        await home.send("ops/api", "hi", source=alice)
        unknown = await home.service.turn("ops/api", holdfast.ids.TurnId("t99"))
        assert (unknown.outcome, unknown.error.code if unknown.error else None) == (
            "failed",
            "unknown",
        )


@in_loop
async def test_a_workspace_of_ones_own_machine_is_remembered_there_and_never_over_http(
    stage: Stage, tmp_path: Path
) -> None:
    """
    Over HTTP it comes from the server's settings only; for the same person on a local channel it is
    the one they gave last.
    """
    ops = stage.agent([{"say": "ok"}] * 4)
    over_http = msgspec.structs.replace(alice, channel="http")
    async with stage.open(ops) as home:
        own, settings = (
            home.service.runtime.world.workspace(str(folder))
            for folder in (tmp_path, tmp_path.parent)
        )
        await home.service.send("ops/api", Incoming(text="here", source=alice, workspace=own))
        await home.service.send("ops/api", Incoming(text="again", source=alice))
        await home.service.send("ops/api", Incoming(text="by the server", source=over_http))
        await home.service.send(
            "ops/api",
            Incoming(text="where the server says", source=over_http, default_workspace=settings),
        )
    accepted = of(InputAccepted, await stage.events("ops/api"))
    given = [msgspec.json.decode(each.context).get("workspace") for each in accepted]
    assert given == [msgspec.to_builtins(each) for each in (own, own, None, settings)]


@in_loop
async def test_a_message_during_a_release_is_driven_under_a_new_claim(
    stage: Stage,
) -> None:
    """
    T7, C1: one caller, two drives; the claim of the first is nobody's any more when the second
    begins.
    """
    ops = stage.agent([{"say": "one"}, {"say": "two"}])
    async with stage.open(ops) as home, stage.open(ops) as peer:
        service = home.service
        await home.send("ops/api", "first", source=alice, wait=False)
        async with service.runtime.sessions.use(SessionId("ops/api")) as ledger:
            driver = Driver(service.runtime, ledger)
            give_up, came = driver.give_up, list[str]()

            async def give_up_as_a_message_comes() -> None:
                await give_up()
                if not came:
                    came.append(
                        (await peer.send("ops/api", "second", source=alice, wait=False)).turn
                    )

            driver.give_up = give_up_as_a_message_comes  # type: ignore[method-assign]  # as another process may at any time
            assert await driver.claim()
            await drive_until(
                driver, lambda state: came != [] and nothing_owed(state), claimed=True
            )
            assert not ledger.driving
    events = await stage.events("ops/api")
    assert [(each.turn, each.reply) for each in events if isinstance(each, TurnEnded)] == [
        ("t1", "one"),
        ("t2", "two"),
    ]
    first, second = (each.epoch for each in events if isinstance(each, TurnStarted))
    assert first < second


@pytest.mark.parametrize(
    "given", [{"dedup": "\udcff"}, {"workspace": Workspace(path="/w-\udcff", identity="1:2")}]
)
@in_loop
async def test_half_a_character_of_a_person_is_refused_in_words_and_writes_nothing(
    stage: Stage, given: dict[str, Any]
) -> None:
    async with stage.open(stage.agent([{"say": "hello"}])) as home:
        await home.send("ops/api", "hi", source=alice)
        before = await stage.events("ops/api")
        with pytest.raises(Refused) as refused:
            await home.service.send("ops/api", Incoming(text="again", source=alice, **given))
        assert (refused.value.code, bool(refused.value.hint)) == ("malformed", True)
        assert await stage.events("ops/api") == before


@in_loop
async def test_an_answer_with_half_a_character_is_refused_and_the_prompt_stands(
    stage: Stage,
) -> None:
    async with stage.open(stage.agent(act("deploy"))) as home:
        [approval] = (await home.send("ops/api", "deploy", source=alice)).approvals
        for given in ({"reason": "\udcff"}, {"answer_id": "\udcff"}):
            refused = await home.answer(approval, "deny", by=alice, **given)
            assert (refused.result, refused.reason) == ("failed", "malformed")
        with pytest.raises(
            Refused
        ) as unknown:  # no row has it, and the index is not made anew for it
            await home.approval("\udcff")
        assert unknown.value.code == "unknown"
        assert (
            await home.answer(approval, "deny", by=alice, reason="no")
        ).turn.outcome == "completed"


class HalfCharacters:
    """Says and calls with lone surrogates, which a provider's stream may leave behind."""

    name = "halves"
    context_tokens = None
    summarises = False

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        self.calls += 1
        on_text("half \ud83d")
        if request.messages[-1].text == "go":
            calls = (
                ProposedCall("look", '{"at":"\ud83d"}'),
                ProposedCall("look", '{"at":"whole \ud83d\ude00"}'),
                ProposedCall("look", '{"at":"\\\ud83d"}'),
            )
            return ModelAnswer(text="half \ud83d", calls=calls)
        return ModelAnswer(text="\ude00 half")


@in_loop
async def test_a_reply_with_a_lone_surrogate_is_mended_and_its_call_does_not_run(
    stage: Stage,
) -> None:
    """
    It is paid once: words are mended, the call is told to the model as any whose arguments can't be
    read (T5), and what is whole runs.
    """
    model = HalfCharacters()
    async with stage.open(Agent("ops", model=model, tools=stage.effects.tools())) as home:
        turn = await home.send("ops/api", "go", source=alice)
    assert (turn.outcome, turn.reply, model.calls) == ("completed", "\ufffd half", 2)
    events = await stage.events("ops/api")
    answered = of(ModelAnswered, events)
    assert [each.text for each in answered] == ["half \ufffd", "\ufffd half"]
    assert [each.arguments for each in answered[0].calls] == [
        '{"at":"\\ud83d"}',
        '{"at":"whole \U0001f600"}',
        '{"at":"\\\ufffd"}',
    ]
    assert [(each.outcome, each.code) for each in of(CallFinished, events)] == [
        ("error", "invalid_arguments")
    ] * 2 + [("ok", None)]
    assert stage.effects.done == ["look whole \U0001f600"]


@in_loop
async def test_a_repeated_message_reports_the_usage_of_its_old_turn(stage: Stage) -> None:
    """Who repeats an old message is told the original turn's outcome, what it used included."""
    stage.tuning = Tuning(remembered_max=1)
    async with stage.open(holdfast.Agent("ops", model="demo")) as home:
        first = await home.send("ops/api", "hello", source=alice, dedup="one")
        assert first.usage.output_tokens > 0
        for _ in range(2):
            await home.send("ops/api", "hello", source=alice)
        assert await home.send("ops/api", "hello", source=alice, dedup="one") == first


@in_loop
async def test_a_message_that_joined_another_turn_reports_the_usage_of_that_turn(
    stage: Stage,
) -> None:
    async with stage.open(holdfast.Agent("ops", model="demo")) as home:
        for number in range(3):
            await home.send("ops/api", f"hello {number}", source=alice, wait=False)
        await home.resume("ops/api")
        first, *joined = [
            await home.service.turn("ops/api", TurnId(f"t{number}")) for number in (1, 2, 3)
        ]
        assert first.usage.output_tokens > 0
        assert [(each.outcome, each.reply, each.usage) for each in joined] == [
            (first.outcome, first.reply, first.usage)
        ] * 2


@in_loop
async def test_resume_drives_other_sessions_when_one_can_not_be_driven(stage: Stage) -> None:
    ops, other = stage.agent([{"say": "done"}]), Agent("other", model="demo")
    async with stage.open(ops, other) as home:
        await home.send("ops/a", "first", source=alice, agent="other", wait=False)
        await home.send("ops/b", "second", source=alice, agent="ops", wait=False)
    async with stage.open(ops) as home:
        with pytest.raises(CannotDrive, match="ops/a"):
            await home.resume()
        assert [(await home.session(name)).phase for name in ("ops/a", "ops/b")] == [
            "queued",
            "idle",
        ]
