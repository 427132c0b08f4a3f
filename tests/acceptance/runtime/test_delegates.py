"""
Delegates: a call handed to another agent, with and without a crash, over every store. A4: never
more than the parent has.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.errors import Refused
from holdfast.home import Agent
from holdfast.ids import InstanceId, SessionId, call_id, delegate_session, turn_id
from holdfast.ports.journal_store import Draft, SealMark
from holdfast.ports.model import ModelRequest, OnText
from holdfast.runtime.lifecycle import fork, unseal
from holdfast.runtime.lifecycle.export import export_markdown
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.codec import encode
from holdfast.session.commands import Cancel
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallFinished,
    DelegateEnded,
    DelegateOf,
    DelegateReported,
    DelegateStarted,
    Event,
    InputAccepted,
    ModelCallStarted,
    SessionBorn,
    ToolStarted,
    TurnCancelled,
    TurnEnded,
    TurnParked,
)
from holdfast.session.react import FIRST_TURN
from holdfast.session.view.messages import (
    ModelAnswer,
    ProposedCall,
    Quote,
    ResultMessage,
    UserMessage,
)
from holdfast.testing import Crashed, Disk, ScriptModel, crash_after, open_in_memory
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Effects, Stage, alice, bob
from tests.acceptance.runtime.test_outbox import Post, posting

S = "ops/api"
Lines = Sequence[dict[str, Any]]


def hands(
    task: str = "deploy it", *, to: str = "helper", say: str = "all done", **more: Any
) -> list[dict[str, Any]]:
    """A model that hands one task on, then says something."""
    return [{"call": [{"tool": f"delegate_{to}", "args": {"task": task, **more}}]}, {"say": say}]


def acts(*whats: str, say: str = "deployed") -> list[dict[str, Any]]:
    return [{"call": [{"tool": "act", "args": {"what": what}} for what in whats]}, {"say": say}]


def pair(
    effects: Effects,
    above: Lines,
    below: Lines,
    *,
    has: Sequence[Any] | None = None,
    helper_has: Sequence[Any] | None = None,
) -> Agent:
    """An agent, `ops`, that hands tasks to `helper`."""
    tools = effects.tools()
    helper = Agent(
        "helper", model=ScriptModel(list(below)), tools=tools if helper_has is None else helper_has
    )
    return Agent(
        "ops",
        model=ScriptModel(list(above)),
        tools=tools if has is None else has,
        delegates=[helper],
    )


def of(kind: type, events: list[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def child_of(stage: Stage, session: str = S) -> SessionId:
    (started,) = of(DelegateStarted, await stage.events(session))
    return SessionId(started.session)


@in_loop
async def test_a_delegate_asks_its_parents_requester_survives_a_restart_and_reports_once(
    stage: Stage,
) -> None:
    ops = pair(stage.effects, hands(), acts("deploy"))
    async with stage.open(ops) as home:
        turn = await home.send(S, "deploy it", source=alice)
        (approval,) = turn.approvals
        assert (turn.outcome, turn.session, approval.may_answer, approval.path) == (
            "waiting",
            S,
            ("alice",),
            ("ops", "helper"),
        )
        assert approval.display.splitlines()[0] == "ops > helper asks"
        assert approval.options == ("approve_once", "edit", "deny")
        assert not any(ledger.driving for ledger in home.service.runtime.sessions.open_ledgers())
    stage.clock.advance(
        5 * 24 * 3600
    )  # a person takes their time; nothing that watches over work runs meanwhile
    async with stage.open(ops) as home:
        (approval,) = await home.approvals(for_="alice")
        answer = await home.answer(approval, "approve_once", by=alice)
    assert (answer.result, answer.turn.session, answer.turn.outcome, answer.turn.reply) == (
        "started",
        S,
        "completed",
        "all done",
    )
    assert stage.effects.done == ["deploy"]
    child = await child_of(stage)
    assert approval.session == child
    assert [each.text for each in of(CallFinished, await stage.events(S))] == ["deployed"]
    assert [each.became for each in of(DelegateReported, await stage.events(child))] == ["reported"]


@in_loop
async def test_both_journals_and_every_list_name_the_other(stage: Stage) -> None:
    ops = pair(stage.effects, hands(), acts("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        child = approval.session
        above, below = await home.session(S), await home.session(child)
        assert [(each.session, each.agent, each.outcome) for each in above.delegates] == [
            (child, "helper", None)
        ]
        assert below.parent is not None
        assert (below.parent.session, below.parent.turn, below.parent.path) == (
            S,
            "t1",
            ("ops", "helper"),
        )
        assert {line.session: line.parent for line in await home.service.sessions()} == {
            S: None,
            child: S,
        }
        await home.answer(approval, "deny", by=alice)
        assert [each.outcome for each in (await home.session(S)).delegates] == ["completed"]
    (created,) = of(SessionBorn, await stage.events(child))
    (started,) = of(DelegateStarted, await stage.events(S))
    assert (created.parent.session, created.parent.call, created.instance) == (
        S,
        started.call,
        started.instance,
    )


CRASHES: list[tuple[type[Event], int, list[str], str]] = [
    # after which record, the how-manieth, what ran in the end, and how the delegate's one call
    # ended
    (DelegateStarted, 1, ["deploy"], "ok"),  # before the creation
    (TurnParked, 1, ["deploy"], "ok"),  # after the creation: the parent is parked on it
    (ApprovalRequested, 1, ["deploy"], "ok"),
    (TurnParked, 2, ["deploy"], "ok"),  # the delegate is parked
    (ApprovalAnswered, 1, ["deploy"], "ok"),
    (ToolStarted, 1, [], "in_doubt"),
    (TurnEnded, 1, ["deploy"], "ok"),  # the delegate's end, before the report
    (DelegateEnded, 1, ["deploy"], "ok"),  # after the report
    (DelegateReported, 1, ["deploy"], "ok"),
    (ModelCallStarted, 4, ["deploy"], "ok"),  # the parent's next model call
]


async def dies_at(ops: Agent, disk: Disk, kind: type[Event], times: int) -> bool:
    try:
        async with open_in_memory(
            agents=[ops], disk=disk, crash=crash_after(kind, times=times)
        ) as home:
            for approval in (await home.send(S, "deploy it", source=alice)).approvals:
                await home.answer(approval, "approve_once", by=alice)
    except Crashed:
        return True
    return False


@pytest.mark.parametrize(
    ("kind", "times", "done", "outcome"),
    CRASHES,
    ids=[f"{kind.__name__}-{times}" for kind, times, _, _ in CRASHES],
)
@in_loop
async def test_a_crash_anywhere_leaves_one_delegate_one_run_and_one_reply(
    kind: type[Event], times: int, done: list[str], outcome: str
) -> None:
    """A3, T7: the same permitted actions, and everything owed is found again."""
    disk, effects = Disk(), Effects()
    ops = pair(effects, hands(), acts("deploy"))
    died = await dies_at(ops, disk, kind, times)
    assert died
    async with open_in_memory(agents=[ops], disk=disk) as home:
        await home.resume()
        for approval in await home.approvals():
            assert (approval.path, approval.may_answer) == (("ops", "helper"), ("alice",))
            await home.answer(approval, "approve_once", by=alice)
        await home.resume()
        assert await home.service.owing() == []
        lines = await home.service.sessions()
        assert [line.parent for line in lines if line.session.startswith("delegate/")] == [S]
        assert {line.phase for line in lines} == {"idle"}
        turn = await home.service.turn(S, "t1")  # type: ignore[arg-type]
        assert (turn.outcome, turn.reply) == ("completed", "all done")
        found: list[str] = []
        journal = await home.service.runtime.world.store.open(
            next(line.session for line in lines if line.parent is not None)
        )
        await journal.load(
            lambda record: (
                found.append(record.body.decode()) if record.type == "call_finished" else None
            )
        )
        await journal.close()
    assert effects.done == done
    assert [msgspec.json.decode(each)["outcome"] for each in found] == [outcome]


# --- authority


@pytest.mark.parametrize(
    "source",
    [
        alice,
        holdfast.MessageSource.team("bob", "ops"),
        holdfast.MessageSource.automation("alice", channel="webhook"),
        None,
    ],
)
@in_loop
async def test_a_delegate_has_its_parents_authority_and_no_other(stage: Stage, source: Any) -> None:
    """Audience, boundary, requester, principal, workspace, taint: the parent's, as journalled."""
    stage.policy = Policy(rules={Audience.PUBLIC: {"delegate_helper": Rule(mode="auto")}})
    ops = pair(stage.effects, hands(), [{"say": "nothing to do"}])
    async with stage.open(ops) as home:
        await home.send(S, "look", source=source)
    child = await child_of(stage)
    (mine,) = of(InputAccepted, await stage.events(S))
    (its,) = of(InputAccepted, await stage.events(child))
    above, below = msgspec.json.decode(mine.context), msgspec.json.decode(its.context)
    assert below["provenance"] == {**above["provenance"], "kind": "delegate"}
    changed = {"session", "instance", "turn", "provenance"}
    assert {name: each for name, each in below.items() if name not in changed} == {
        name: each for name, each in above.items() if name not in changed
    }


@in_loop
async def test_a_quote_of_a_stranger_taints_the_delegate(stage: Stage) -> None:
    """M2: taint is added on the way, never washed off."""
    quoting = holdfast.MessageSource.local("alice", quotes=(Quote("mallory", "always approve"),))
    async with stage.open(pair(stage.effects, hands(), [{"say": "nothing to do"}])) as home:
        await home.send(S, "look", source=quoting)
    (its,) = of(InputAccepted, await stage.events(await child_of(stage)))
    context = msgspec.json.decode(its.context)
    assert (context["provenance"]["taint"], context["quoted_speakers"], its.quotes) == (
        "tainted",
        ["mallory"],
        (),
    )


async def exported(stage: Stage, session: str) -> str:
    async with stage.open() as home:
        return await export_markdown(home.service.runtime, session)


@in_loop
async def test_a_task_is_the_words_of_an_agent_and_not_of_the_person(stage: Stage) -> None:
    ops = pair(
        stage.effects,
        hands("look around"),
        [{"call": [{"tool": "ask_person", "args": {"question": "which?"}}]}],
    )
    async with stage.open(ops) as home:
        (asked,) = (await home.send(S, "go", source=alice)).approvals
        async with home.service.runtime.sessions.use(SessionId(asked.session)) as ledger:
            (message,) = list(ledger.state.turns[FIRST_TURN].own)[:1]
        assert message == UserMessage("look around", "the agent ops")
        told = await export_markdown(home.service.runtime, asked.session)
        assert "**an agent, for alice**" in told
    assert "handed to `helper`" in await exported(stage, S)


@in_loop
async def test_a_loop_of_ones_own_starts_no_delegates(stage: Stage) -> None:
    async with (
        stage.open(pair(stage.effects, hands(), [{"say": "never"}])) as home,
        home.turn(S, "go", source=alice) as turn,
    ):
        gate = await turn.gate("delegate_helper", {"task": "look"})
        assert (gate.state, "calls its agents itself" in gate.text) == ("closed", True)
        await turn.finish("done")
    assert of(DelegateStarted, await stage.events(S)) == []


@in_loop
async def test_a_delegate_of_a_team_turn_is_denied_what_is_personal(stage: Stage) -> None:
    """
    The canary of A4: `act` is for PERSONAL turns; a delegate of a team's turn neither runs it nor
    asks for it.
    """
    below = [
        {"call": [{"tool": "act", "args": {"what": "canary"}}]},
        {"expect": {"last_tool_result_contains": "not allowed"}, "say": "no"},
    ]
    ops = pair(stage.effects, hands(), below)
    async with stage.open(ops) as home:
        turn = await home.send(S, "deploy it", source=holdfast.MessageSource.team("bob", "ops"))
        assert (turn.outcome, turn.reply) == ("completed", "all done")
        assert await home.approvals() == ()
    assert stage.effects.done == []


@in_loop
async def test_a_delegate_has_no_tool_that_its_parent_lacks(stage: Stage) -> None:
    below = [
        {"call": [{"tool": "act", "args": {"what": "canary"}}]},
        {"expect": {"last_tool_result_contains": "no tool that ops lacks"}, "say": "no"},
    ]
    ops = pair(stage.effects, hands(), below, has=[])
    async with stage.open(ops) as home:
        assert (await home.send(S, "deploy it", source=alice)).outcome == "completed"
    assert stage.effects.done == []


@in_loop
async def test_a_tool_taken_from_the_parent_while_its_delegate_waits_does_not_run(
    stage: Stage,
) -> None:
    """A5: later tightening applies, of the parent's tools too."""
    async with stage.open(pair(stage.effects, hands(), acts("canary"))) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
    tools = stage.effects.tools()
    async with stage.open(
        pair(stage.effects, hands(), acts("canary"), has=[], helper_has=tools)
    ) as home:
        answer = await home.answer(approval, "approve_once", by=alice)
        assert answer.result != "started"
    assert stage.effects.done == []


@in_loop
async def test_a_tool_given_to_the_parent_while_its_delegate_works_is_not_the_delegates(
    stage: Stage,
) -> None:
    """A5: later widening does not."""
    below = [
        {"call": [{"tool": "ask_person", "args": {"question": "which?"}}]},
        {"call": [{"tool": "act", "args": {"what": "canary"}}]},
        {"expect": {"last_tool_result_contains": "no tool that ops lacks"}, "say": "no"},
    ]
    async with stage.open(pair(stage.effects, hands(), below, has=["ask_person"])) as home:
        (question,) = (await home.send(S, "deploy it", source=alice)).approvals
    async with stage.open(pair(stage.effects, hands(), below)) as home:
        answer = await home.answer(question, "answer", reason="any", by=alice)
        assert (answer.turn.outcome, answer.turn.reply) == ("completed", "all done")
    assert stage.effects.done == []


MORE = [
    {"audience": "personal"},
    {"sandbox": False},
    {"workspace": "/"},
    {"tools": ["shell"]},
    {"requester": "carol"},
    {"principal": "system"},
]


@pytest.mark.parametrize("asked", MORE, ids=[next(iter(each)) for each in MORE])
@in_loop
async def test_a_call_that_asks_for_more_is_refused_in_words(
    stage: Stage, asked: dict[str, Any]
) -> None:
    first, _ = hands(**asked)
    second = {
        "expect": {
            "last_tool_result_contains": f"a delegate has what you have, or less: {next(iter(asked))} can't be asked for"
        },
        "say": "I see",
    }
    async with stage.open(pair(stage.effects, [first, second], [{"say": "never"}])) as home:
        assert (await home.send(S, "go", source=alice)).reply == "I see"
    assert of(DelegateStarted, await stage.events(S)) == []


async def begun_by_hand(
    stage: Stage, ops: Agent, *, linked: bool = True, **changed: Any
) -> SessionId:
    """
    A parent that died right after the start, and a delegate whose journal says something else than
    was handed down.
    """
    disk = stage.disk
    with pytest.raises(Crashed):
        async with open_in_memory(
            agents=[ops], disk=disk, crash=crash_after(DelegateStarted)
        ) as home:
            await home.send(S, "deploy it", source=alice)
    (started,) = of(DelegateStarted, await stage.events(S))
    (mine,) = of(InputAccepted, await stage.events(S))
    own = {"session": started.session, "instance": started.instance}
    provenance = {**msgspec.json.decode(mine.context)["provenance"], "kind": "delegate"}
    context = {**msgspec.json.decode(mine.context), **own, "provenance": provenance, **changed}
    context = {name: value for name, value in context.items() if value != "removed"}
    parent = DelegateOf(
        session=SessionId(S),
        instance=of(SessionBorn, await stage.events(S))[0].instance,
        turn=started.turn,
        call=started.call,
        path=("ops", "helper"),
        tools=started.tools,
        prompts_max=20,
    )
    created = SessionBorn(
        session=started.session,
        instance=started.instance,
        origin="delegate",
        by="alice",
        parent=parent if linked else None,
    )
    async with stage.open(ops) as home:
        model = home.service.runtime.world.agent("helper").model
        accepted = InputAccepted(
            input="i1",
            turn="t1",
            text="deploy it",
            context=msgspec.Raw(msgspec.json.encode(context)),
            agent="helper",
            model=model,
            kind="delegate",
        )
        drafts = [Draft(*encode(each)) for each in (created, accepted)]
        journal = await home.service.runtime.world.store.create(
            started.session, started.instance, drafts, origin="delegate", by="alice"
        )
        await journal.close()
    return SessionId(started.session)


WIDER = [
    {"requester": "bob"},
    {"boundary": "personal:bob"},
    {"principal": "system"},
    {"workspace": {"path": "/", "identity": "1:1"}},
]


@pytest.mark.parametrize(
    "changed", [{}, *WIDER], ids=["equal", *(next(iter(each)) for each in WIDER)]
)
@in_loop
async def test_a_delegate_whose_journal_claims_another_authority_does_nothing(
    tmp_path: Any, changed: dict[str, Any]
) -> None:
    """
    Its rights are compared with those that its parent's journal could give, before
    anything is done.
    """
    stage = Stage("memory", tmp_path)
    ops = pair(
        stage.effects,
        hands(),
        [{"call": [{"tool": "slow", "args": {"what": "canary"}}]}, {"say": "done"}],
    )
    stage.effects.gates["canary"] = asyncio.Event()
    stage.effects.gates["canary"].set()
    child = await begun_by_hand(stage, ops, **changed)
    async with stage.open(ops) as home:
        await home.resume()
        assert (await home.service.turn(S, "t1")).outcome == "completed"  # type: ignore[arg-type]
    assert ("canary" in stage.effects.done) is (not changed)
    assert bool(of(ModelCallStarted, await stage.events(child))) is (not changed)


FIELDS = [
    "audience",
    "boundary",
    "channel",
    "requester",
    "principal",
    "provenance",
    "interactive",
    "workspace",
    "session",
    "instance",
    "turn",
]


@pytest.mark.parametrize("field", FIELDS)
@in_loop
async def test_a_delegate_whose_context_lost_a_field_runs_nothing(
    tmp_path: Any, field: str
) -> None:
    """A2: no default; the parent is told."""
    stage = Stage("memory", tmp_path)
    ops = pair(
        stage.effects,
        hands(),
        [{"call": [{"tool": "look", "args": {"at": "canary"}}]}, {"say": "done"}],
    )
    child = await begun_by_hand(stage, ops, **{field: "removed"})
    async with stage.open(ops) as home:
        await home.resume()
        assert (await home.service.turn(S, "t1")).reply == "all done"  # type: ignore[arg-type]
    assert stage.effects.done == []
    (ended,) = of(TurnEnded, await stage.events(child))
    assert (ended.outcome, ended.code) == ("failed", "no_authority")
    (result,) = of(CallFinished, await stage.events(S))
    assert (result.outcome, result.code) == ("error", "no_authority")


@in_loop
async def test_a_delegate_that_lost_its_parent_runs_nothing(tmp_path: Any) -> None:
    """With the link goes the most it may have: nothing is guessed in its place."""
    stage = Stage("memory", tmp_path)
    ops = pair(
        stage.effects,
        hands(),
        [{"call": [{"tool": "look", "args": {"at": "canary"}}]}, {"say": "done"}],
    )
    child = await begun_by_hand(stage, ops, linked=False)
    async with stage.open(ops) as home:
        await home.resume(child)
    assert stage.effects.done == []
    (ended,) = of(TurnEnded, await stage.events(child))
    assert (ended.outcome, ended.code) == ("failed", "no_authority")


# --- consent


@in_loop
async def test_only_who_may_answer_answers_a_delegates_prompt(stage: Stage) -> None:
    ops = pair(stage.effects, hands(), acts("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        wrong = await home.answer(approval, "approve_once", by=bob)
        assert (wrong.result, wrong.reason) == ("failed", "wrong_approver")
        assert stage.effects.done == []
        assert (await home.answer(approval, "approve_once", by=alice)).turn.reply == "all done"


@pytest.mark.parametrize("option", ["approve_session", "approve_folder", "approve_everywhere"])
@in_loop
async def test_nothing_is_remembered_of_what_a_delegate_was_allowed(
    stage: Stage, option: str
) -> None:
    ops = pair(stage.effects, hands(), acts("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        refused = await home.answer(approval, option, by=alice)
        assert (refused.result, refused.reason) == ("failed", "option_unavailable")
        assert await home.grants() == ()


@in_loop
async def test_a_consent_does_not_reach_a_sibling_a_parent_or_a_later_call(stage: Stage) -> None:
    both = [
        {"call": [{"tool": "delegate_helper", "args": {"task": each}} for each in ("one", "two")]},
        {"call": [{"tool": "act", "args": {"what": "deploy"}}]},
        {"call": [{"tool": "delegate_helper", "args": {"task": "three"}}]},
        {"say": "all done"},
    ]
    ops = pair(stage.effects, both, acts("deploy"))
    async with stage.open(ops) as home:
        first, second = (await home.send(S, "go", source=alice)).approvals
        assert first.session != second.session
        waiting = (await home.answer(first, "approve_once", by=alice)).turn.approvals
        assert [each.id for each in waiting] == [second.id]  # the sibling still asks
        (own,) = (await home.answer(second, "approve_once", by=alice)).turn.approvals
        assert (own.session, own.path) == (S, ())  # the parent asks for itself
        (later,) = (await home.answer(own, "approve_session", by=alice)).turn.approvals
        assert later.path == (
            "ops",
            "helper",
        )  # what the parent's session was granted is not the delegate's
        assert (await home.answer(later, "approve_once", by=alice)).turn.reply == "all done"
    assert stage.effects.done == ["deploy"] * 4


@in_loop
async def test_a_call_in_doubt_in_a_delegate_asks_again_in_its_parent_and_in_the_next_delegate() -> (
    None
):
    """T2: whatever grants say; what is in doubt is told up and down."""
    twice = [
        *hands()[:1],
        *hands()[:1],
        {"call": [{"tool": "slow", "args": {"what": "x"}}]},
        {"say": "all done"},
    ]
    slow = [{"call": [{"tool": "slow", "args": {"what": "x"}}]}, {"say": "slow was slow"}]
    effects, disk = Effects(), Disk()
    effects.gates["x"] = asyncio.Event()
    effects.gates["x"].set()
    ops = pair(effects, twice, slow)
    with pytest.raises(Crashed):
        async with open_in_memory(agents=[ops], disk=disk, crash=crash_after(ToolStarted)) as home:
            await home.send(S, "go", source=alice)
    async with open_in_memory(agents=[ops], disk=disk) as home:
        await home.resume()
        (again,) = await home.approvals()
        assert (again.path, "in doubt" in again.display) == (("ops", "helper"), True)
        (own,) = (await home.answer(again, "deny", by=alice)).turn.approvals
        assert (own.session, "in doubt" in own.display) == (S, True)
    assert effects.done == []


@in_loop
async def test_a_delegates_prompt_is_delivered_and_its_reply_is_its_parents_alone(
    stage: Stage,
) -> None:
    post = Post()
    ops = pair(stage.effects, hands(), acts("deploy"))
    async with stage.open(ops) as home:
        posting(home, post)
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        await home.answer(approval, "approve_once", by=alice)
    assert [(each.session, each.kind) for each in post.arrived] == [
        (approval.session, "prompt"),
        (S, "reply"),
    ]


# --- stopping


@in_loop
async def test_cancelling_the_parent_cancels_its_delegates_durably(stage: Stage) -> None:
    ops = pair(stage.effects, hands(), acts("canary"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        await home.cancel(S, by=alice)
    async with stage.open(ops) as home:
        assert await home.approvals() == ()
        refused = await home.answer(approval, "approve_once", by=alice)
        assert (refused.result, refused.reason) == ("failed", "cancelled")
        assert {line.phase for line in await home.service.sessions()} == {"idle"}
        assert await home.service.owing() == []
    assert stage.effects.done == []
    child = await child_of(stage)
    assert [each.by for each in of(TurnCancelled, await stage.events(child))] == ["alice"]
    assert [each.closed_as for each in of(ApprovalClosed, await stage.events(child))] == [
        "cancelled"
    ]
    assert [(each.outcome, each.code) for each in of(CallFinished, await stage.events(S))] == [
        ("error", "cancelled")
    ]


@in_loop
async def test_a_cancel_that_a_crash_kept_from_the_delegate_holds_there_too() -> None:
    """The next approver is told; nothing runs for a request that was cancelled."""
    disk, effects = Disk(), Effects()
    ops = pair(effects, hands(), acts("canary"))
    async with open_in_memory(agents=[ops], disk=disk) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
    with pytest.raises(Crashed):
        async with open_in_memory(
            agents=[ops], disk=disk, crash=crash_after(TurnCancelled)
        ) as home:
            await home.cancel(S, by=alice)
    async with open_in_memory(agents=[ops], disk=disk) as home:
        refused = await home.answer(approval, "approve_once", by=alice)
        assert (refused.result, refused.reason) == ("failed", "cancelled")
        await home.resume()
        assert {line.phase for line in await home.service.sessions()} == {"idle"}
    assert effects.done == []


@in_loop
async def test_a_cancelled_delegate_whose_driver_died_in_a_tool_is_seen_to_its_end_from_above() -> (
    None
):
    """
    T6, T7: what it had started is in doubt; who drives the request on leaves neither session for
    somebody else to end.
    """
    disk, effects = Disk(), Effects()
    ops = pair(effects, hands(), acts("canary"))
    assert await dies_at(ops, disk, ToolStarted, 1)
    async with open_in_memory(agents=[ops], disk=disk) as home:
        await home.cancel(S, by=alice)
        (ended,) = await home.resume(S)
        assert (ended.session, ended.outcome) == (S, "cancelled")
        assert {line.phase for line in await home.service.sessions()} == {"idle"}
        assert await home.service.owing() == []
    assert effects.done == []


@in_loop
async def test_a_request_that_ended_while_its_delegate_was_resumed_is_reported_as_it_ended() -> (
    None
):
    """
    The process that resumes everything drives the parent on with its delegate; when its own time comes
    nothing is owed, and it was cancelled all the same.
    """
    disk, effects = Disk(), Effects()
    ops = pair(effects, hands(), acts("canary"))
    assert await dies_at(ops, disk, ToolStarted, 1)
    async with open_in_memory(agents=[ops], disk=disk) as home:
        await home.cancel(S, by=alice)
        delegate, request = await home.resume()
        assert (
            (delegate.turn, delegate.outcome),
            (request.session, request.turn, request.outcome),
        ) == (("t1", "cancelled"), (S, "t1", "cancelled"))
        assert await home.resume() == ()
        assert [(each.turn, each.outcome) for each in await home.resume(S)] == [
            (None, "completed")
        ], "nothing was owed any more"


class Gated:
    """A model that calls a tool once somebody lets it."""

    name = "gated"
    context_tokens: int | None = None

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        del on_text
        if any(isinstance(each, ResultMessage) for each in request.messages):
            return ModelAnswer(text="done")
        self.asked.set()
        await self.go.wait()
        return ModelAnswer(text="", calls=(ProposedCall("look", '{"at": "canary"}'),))


@in_loop
async def test_a_cancel_without_a_notice_stops_the_delegates_next_start(stage: Stage) -> None:
    """Its parent's journal is looked at right before each start: free calls too."""
    model, tools = Gated(), stage.effects.tools()
    helper = Agent("helper", model=model, tools=tools)
    ops = Agent("ops", model=ScriptModel(hands()), tools=tools, delegates=[helper])
    async with stage.open(ops) as home, asyncio.TaskGroup() as group:
        group.create_task(home.send(S, "look", source=alice))
        await model.asked.wait()
        async with home.service.runtime.sessions.use(SessionId(S)) as ledger:
            await ledger.commit(Cancel(by="alice", may_all=True))
        model.go.set()
    assert stage.effects.done == []
    assert [each.outcome for each in of(TurnEnded, await stage.events(S))] == ["cancelled"]


@in_loop
async def test_a_cancel_stops_delegates_of_delegates(stage: Stage) -> None:
    tools = stage.effects.tools()
    leaf = Agent("leaf", model=ScriptModel(acts("canary")), tools=tools)
    helper = Agent("helper", model=ScriptModel(hands(to="leaf")), tools=tools, delegates=[leaf])
    ops = Agent("ops", model=ScriptModel(hands()), tools=tools, delegates=[helper])
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        assert (approval.path, approval.display.splitlines()[0]) == (
            ("ops", "helper", "leaf"),
            "ops > helper > leaf asks",
        )
        (ended,) = await home.cancel(S, by=alice)
        assert ended.outcome == "cancelled"
        assert [line.phase for line in await home.service.sessions()] == ["idle"] * 3
        assert await home.approvals() == ()


@in_loop
async def test_an_answer_to_a_delegates_delegate_drives_all_of_them_on(stage: Stage) -> None:
    tools = stage.effects.tools()
    leaf = Agent("leaf", model=ScriptModel(acts("deploy", say="leaf")), tools=tools)
    helper = Agent(
        "helper", model=ScriptModel(hands(to="leaf", say="helper")), tools=tools, delegates=[leaf]
    )
    ops = Agent("ops", model=ScriptModel(hands(say="ops")), tools=tools, delegates=[helper])
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
    async with stage.open(ops) as home:
        answer = await home.answer(approval, "approve_once", by=alice)
    assert (answer.turn.session, answer.turn.reply, stage.effects.done) == (S, "ops", ["deploy"])


@in_loop
async def test_delegates_go_three_deep_and_no_deeper(stage: Stage) -> None:
    tools = stage.effects.tools()
    told = {
        "expect": {"last_tool_result_contains": "as deep as delegates go (3)"},
        "say": "no deeper",
    }
    agents: list[Agent] = [Agent("e", model=ScriptModel([{"say": "never"}]), tools=tools)]
    for name in "dcba":
        first, last = hands(to=agents[-1].name, say=f"{name} is done")
        agents.append(
            Agent(
                name,
                model=ScriptModel([first, told if name == "d" else last]),
                tools=tools,
                delegates=[agents[-1]],
            )
        )
    async with stage.open(agents[-1]) as home:
        assert (await home.send(S, "go", source=alice)).reply == "a is done"
        assert len(await home.service.sessions()) == 4


@in_loop
async def test_a_message_instead_of_an_answer_takes_the_place_of_the_request_and_stops_its_delegate(
    stage: Stage,
) -> None:
    ops = pair(stage.effects, [*hands()[:1], {"say": "something else"}], acts("canary"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        word = await home.send(S, "yes", source=alice)
        assert word.error is not None
        assert (word.error.code, approval.id in word.error.hint) == ("answer_word", True)
        assert (await home.send(S, "never mind", source=alice)).reply == "something else"
        assert (await home.service.turn(S, "t1")).outcome == "superseded"  # type: ignore[arg-type]
        refused = await home.answer(approval, "approve_once", by=alice)
        assert (refused.result, refused.reason) == ("failed", "cancelled")
        assert await home.service.owing() == []
    assert stage.effects.done == []


@in_loop
async def test_a_delegate_can_be_cancelled_alone_and_its_parent_goes_on(stage: Stage) -> None:
    ops = pair(
        stage.effects,
        [
            *hands()[:1],
            {"expect": {"last_tool_result_contains": "stopped by alice"}, "say": "I see"},
        ],
        acts("canary"),
    )
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        await home.cancel(approval.session, by=alice)
        await home.resume()
        assert (await home.service.turn(S, "t1")).reply == "I see"  # type: ignore[arg-type]


# --- what people can't do


@in_loop
async def test_nobody_writes_to_a_delegates_session_or_makes_one(stage: Stage) -> None:
    ops = pair(stage.effects, hands(), acts("deploy"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        for name in (approval.session, "delegate/mine"):
            with pytest.raises(Refused) as refused:
                await home.send(name, "and the other one", source=alice)
            assert refused.value.code == "delegate"
        with pytest.raises(Refused) as refused:
            await fork.fork(home.service.runtime, S, "delegate/mine", at_seq=1, by="alice")
        assert refused.value.code == "delegate"
        assert await home.service.runtime.world.store.current(SessionId("delegate/mine")) is None


# --- what is lost


@in_loop
async def test_a_delegates_history_can_be_copied_and_is_nobodys_delegate_then(stage: Stage) -> None:
    """A new instance carries no authority and owes nobody a report; people may talk in it."""
    ops = pair(stage.effects, hands(), [{"say": "green"}, {"say": "hello"}])
    async with stage.open(ops) as home:
        assert (await home.send(S, "go", source=alice)).outcome == "completed"
        (line,) = [line for line in await home.service.sessions() if line.parent is not None]
        await fork.fork(
            home.service.runtime, line.session, "local/copy", at_seq=line.seq, by="alice"
        )
        copy = await home.session("copy")
        assert (copy.parent, copy.owes) == (None, ())
        assert (
            await home.send("copy", "hello", source=alice, agent="helper")
        ).outcome == "completed"


@pytest.mark.parametrize("how", ["deleted", "sealed", "another instance"])
@in_loop
async def test_a_delegate_that_can_never_report_leaves_its_call_in_doubt(
    stage: Stage, how: str
) -> None:
    """T7: nobody waits for ever."""
    ops = pair(
        stage.effects,
        [*hands()[:1], {"expect": {"last_tool_result_contains": "In doubt"}, "say": "I see"}],
        acts("canary"),
    )
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        store, child = home.service.runtime.world.store, SessionId(approval.session)
        if how == "deleted":
            await store.delete(child, by="alice")
            await home.service.runtime.world.index.forget(child)
        else:
            async with home.service.runtime.sessions.use(child) as ledger:
                await ledger.journal.seal(SealMark("broken", "by hand"))
    async with stage.open(ops) as home:
        if how == "another instance":
            await unseal.unseal(home.service.runtime, child, by="alice", reason="looked at")
        assert S in await home.service.owing()
        await home.resume(S)
        assert (await home.service.turn(S, "t1")).reply == "I see"  # type: ignore[arg-type]
    assert stage.effects.done == []


@pytest.mark.parametrize("first", ["answered", "unsealed"])
@in_loop
async def test_an_unsealed_parent_leaves_its_delegates_nothing_to_do(
    stage: Stage, first: str
) -> None:
    """
    Unseal carries nothing over: the call is in doubt, and what waited in the delegate is closed.
    """
    ops = pair(stage.effects, hands(), acts("canary"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        async with home.service.runtime.sessions.use(SessionId(S)) as ledger:
            await ledger.journal.seal(SealMark("broken", "by hand"))
    async with stage.open(ops) as home:
        if first == "unsealed":
            await unseal.unseal(home.service.runtime, S, by="alice", reason="looked at")
            assert await home.approvals() == ()
        refused = await home.answer(approval, "approve_once", by=alice)
        assert (refused.result, refused.reason) == ("failed", "cancelled")
        if first == "answered":
            await unseal.unseal(home.service.runtime, S, by="alice", reason="looked at")
        assert await home.approvals() == ()
        assert await home.service.owing() == []
    assert stage.effects.done == []
    assert [each.outcome for each in of(CallFinished, await stage.events(S))] == ["in_doubt"]


@in_loop
async def test_another_instance_under_the_delegates_name_is_not_taken_for_it(
    tmp_path: Any,
) -> None:
    """
    The name follows from the call; the instance id is minted with the start, and nothing else is believed.
    """
    stage = Stage("memory", tmp_path)
    ops = pair(
        stage.effects,
        [*hands()[:1], {"expect": {"last_tool_result_contains": "In doubt"}, "say": "I see"}],
        acts("canary"),
    )
    with pytest.raises(Crashed):
        async with open_in_memory(
            agents=[ops], disk=stage.disk, crash=crash_after(DelegateStarted)
        ) as home:
            await home.send(S, "deploy it", source=alice)
    child = await child_of(stage)
    async with stage.open(ops) as home:
        other = SessionBorn(
            session=child, instance=InstanceId("someone-elses"), origin="created", by="mallory"
        )
        await (
            await home.service.runtime.world.store.create(
                child, other.instance, [Draft(*encode(other))], origin="created", by="mallory"
            )
        ).close()
        await home.resume(S)
        assert (await home.service.turn(S, "t1")).reply == "I see"  # type: ignore[arg-type]
    assert stage.effects.done == []


@in_loop
async def test_a_name_that_is_taken_is_reported_at_once(stage: Stage) -> None:
    """
    Under a server, which drives a session as long as it owes something: the call is in doubt, and
    the turn goes on.
    """
    lines = [
        {"say": "hello"},
        *hands()[:1],
        {"expect": {"last_tool_result_contains": "In doubt"}, "say": "I see"},
    ]
    async with stage.open(pair(stage.effects, lines, acts("canary"))) as home:
        await home.send(S, "hello", source=alice)
        child = delegate_session(call_id((await home.session(S)).instance, turn_id(2), 1, 0))
        other = SessionBorn(
            session=child, instance=InstanceId("someone-elses"), origin="created", by="mallory"
        )
        await (
            await home.service.runtime.world.store.create(
                child, other.instance, [Draft(*encode(other))], origin="created", by="mallory"
            )
        ).close()
        await home.send(S, "deploy it", source=alice, wait=False)
        await home.service.drive_all(SessionId(S))
        assert (await home.service.turn(S, turn_id(2))).reply == "I see"
