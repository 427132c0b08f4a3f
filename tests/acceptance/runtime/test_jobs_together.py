"""
Jobs where they meet delegates, reminders and memory, over every store. Each has its own authority,
and none lends it to another.
"""

from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.home import Agent
from holdfast.ids import SessionId
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.commands import StartTurn
from holdfast.session.events import (
    ApprovalRequested,
    CallFinished,
    DelegateStarted,
    InputAccepted,
    JobEnded,
    JobSubmitted,
    MemoryRecalled,
    ModelCallStarted,
    ReminderFired,
    TurnEnded,
    TurnStarted,
)
from holdfast.testing import Crashed, Disk, ScriptModel, crash_after, open_in_memory
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_items import item
from tests.acceptance.runtime.conftest import Stage, alice, seen
from tests.acceptance.runtime.test_jobs import AUTO, Digs, of, reports
from tests.acceptance.runtime.test_memory import Heard, journal, keep

DIG: dict[str, Any] = {"call": [{"tool": "dig", "args": {"place": "yard"}}]}


def tools_of(agent: Agent) -> tuple[Any, ...]:
    return tuple(agent.tools)


# --- delegates


@pytest.mark.parametrize("policy", [Policy(), AUTO], ids=["asked about", "allowed"])
@in_loop
async def test_a_delegate_starts_no_job_and_nobody_is_asked(policy: Policy, stage: Stage) -> None:
    """
    Its session ends with its one answer: refused in words, before anything is shown or made ready.
    Its parent may start the very same.
    """
    stage.policy = policy
    digs = Digs()
    tools = tools_of(digs.agent())
    helper = Agent("helper", model=ScriptModel([DIG, {"say": "I can't"}]), tools=tools)
    hands = {"call": [{"tool": "delegate_helper", "args": {"task": "dig"}}]}
    ops = Agent(
        "ops",
        model=ScriptModel([hands, DIG, {"say": "then I do it"}, {"say": "heard"}]),
        tools=tools,
        delegates=[helper],
    )
    async with stage.open(ops) as home:
        turn = await home.send("ops/a", "dig", source=alice)
        events = await events_of(home, "ops/a")
        (handed,) = of(events, DelegateStarted)
        below = await events_of(home, handed.session)
        for approval in turn.approvals:  # the parent's own
            assert approval.session == "ops/a"
            turn = (await home.answer(approval, "approve_once", by=alice)).turn
        assert turn.reply == "then I do it"
        digs.gate("yard").set()
        await seen(home, "ops/a", TurnEnded, turn="t2")
    (refused,) = of(below, CallFinished)
    assert (refused.outcome, refused.code) == ("denied", "delegate_job")
    assert "a delegate starts no background jobs" in refused.text
    assert (of(below, ApprovalRequested), of(below, JobSubmitted)) == ([], [])
    assert digs.dug == ["yard"]  # by the parent, once


async def events_of(home: holdfast.Home, session: str) -> list[Any]:
    return await journal(home, SessionId(session))


# --- reminders


@in_loop
async def test_a_job_of_a_reminders_turn_has_the_reminders_authority_and_asks_nobody(
    stage: Stage,
) -> None:
    """A4: whoever set it gave no leave to ask, so neither its turn, nor its job's, asks anybody."""
    stage.policy = AUTO
    digs = Digs()
    act = {"call": [{"tool": "act", "args": {"what": "x"}}]}
    model = ScriptModel([DIG, {"say": "begun"}, act, {"say": "heard"}])
    ops = Agent("ops", model=model, tools=[*tools_of(digs.agent()), *stage.effects.tools()])
    async with stage.open(ops) as home:
        await home.remind("ops/a", "dig in the yard", source=alice, every="1h")
        stage.clock.advance(3600)
        (turn,) = await home.resume()
        assert turn.reply == "begun"
        shown = await home.session("ops/a")
        assert (len(shown.jobs), len(shown.reminders), shown.owes) == (1, 1, ())
        digs.gate("yard").set()
        await seen(home, "ops/a", TurnEnded, turn="t2")
    events = await stage.events("ops/a")
    assert len(of(events, ReminderFired)) == 1
    fired, report = (msgspec.json.decode(each.context) for each in of(events, InputAccepted))
    assert (fired["provenance"].pop("kind"), report["provenance"].pop("kind")) == (
        "reminder",
        "job",
    )
    assert (fired.pop("turn"), report.pop("turn")) == ("t1", "t2")
    assert report == fired
    unattended = of(events, CallFinished)[-1]
    assert (unattended.turn, unattended.outcome, stage.effects.done) == ("t2", "unattended", [])


@in_loop
async def test_a_reminder_that_is_due_and_a_job_that_ended_are_two_turns_of_their_own(
    stage: Stage,
) -> None:
    """
    Found by the same look, after the program was gone: each comes once, neither joins the other.
    """
    stage.policy = AUTO
    digs = Digs()

    def ops() -> Agent:
        return Agent(
            "ops",
            model=ScriptModel([DIG, {"say": "begun"}, {"say": "one"}, {"say": "other"}]),
            tools=tools_of(digs.agent()),
        )

    with pytest.raises(RuntimeError, match="power cut"):
        await set_begun_and_cut_off(stage, ops())
    stage.clock.advance(3600)
    for _ in range(2):
        async with stage.open(ops()) as home:
            await home.resume()
            assert [each.reply for each in of(await events_of(home, "ops/a"), TurnEnded)] == [
                "begun",
                "one",
                "other",
            ]
    events = await stage.events("ops/a")
    assert sorted(each.kind for each in of(events, InputAccepted)) == ["job", "message", "reminder"]
    assert all(len(each.inputs) == 1 for each in of(events, TurnStarted))
    assert len(of(events, JobEnded)) == 1


async def set_begun_and_cut_off(stage: Stage, ops: Agent) -> None:
    async with stage.open(ops) as home:
        await home.remind("ops/a", "look around", source=alice, every="1h")
        await home.send("ops/a", "dig", source=alice)
        raise RuntimeError("power cut")


# --- memory

OWN = item("own", "the yard has pipes: canary-own")
OTHERS = item("others", "the yard is haunted: canary-others", boundary="personal:bob", person="bob")
PRINTED = item("printed", "treasure lies deep: canary-printed")


async def begun_alone(opened: holdfast.Home) -> None:
    """All that is durable of the turn is that it began."""
    async with opened as home, home.service.runtime.sessions.use(SessionId("ops/a")) as ledger:
        assert await ledger.attempt.try_claim()
        assert ledger.attempt.epoch is not None
        await ledger.drive(StartTurn(epoch=ledger.attempt.epoch))


@pytest.mark.parametrize(
    "point",
    [None, TurnStarted, MemoryRecalled, ModelCallStarted],
    ids=lambda point: point and point.__name__,
)
@in_loop
async def test_a_jobs_turn_recalls_for_its_stored_requester_by_its_call_and_not_by_what_it_printed(
    point: type[Any] | None,
) -> None:
    """
    M1, A3: with and without a crash, the same; what a job printed is nobody's question. And its
    turn is tainted (M2).
    """
    disk = Disk()
    model = Heard(DIG, "begun", "heard", "and again")

    @holdfast.tool(background=True, mode="auto")
    async def dig(place: str) -> str:
        """Dig a hole."""
        return f"treasure below the {place}"

    ops = Agent("ops", model=model, tools=[dig, "recall", "remember"])
    allowed = Policy(rules={Audience.PERSONAL: {"dig": Rule(mode="auto")}})
    async with open_in_memory(agents=[ops], disk=disk, policy=allowed) as home:
        home.service.runtime.job_keeper.drives = False
        await home.send("ops/a", "go", source=alice)
        await seen(home, "ops/a", InputAccepted, turn="t2")
        keep(home, OWN, OTHERS, PRINTED)
    if point is TurnStarted:
        await begun_alone(open_in_memory(agents=[ops], disk=disk, policy=allowed))
    elif point is not None:
        with pytest.raises(Crashed):
            async with open_in_memory(
                agents=[ops], disk=disk, policy=allowed, crash=crash_after(point)
            ) as home:
                await home.resume("ops/a")
    async with open_in_memory(agents=[ops], disk=disk, policy=allowed) as home:
        await home.resume("ops/a")
        events = await events_of(home, "ops/a")
    (recalled,) = of(events, MemoryRecalled)
    assert (recalled.turn, [each.memory for each in recalled.items]) == ("t2", [OWN.id])
    said = model.said()
    assert ("canary-own" in said, "canary-others" in said, "canary-printed" in said) == (
        True,
        False,
        False,
    )
    assert len(reports(events)) == 1
