"""
Reminders over every store: set by a tool or a person, fired once whoever looks, late when nobody
did, and visible everywhere.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.errors import Refused, Untrusted, Unusable
from holdfast.ports.journal_store import Draft
from holdfast.runtime.lifecycle.fork import fork
from holdfast.runtime.lifecycle.unseal import unseal
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.codec import encode
from holdfast.session.events import (
    ApprovalRequested,
    CallFinished,
    InputAccepted,
    LifeCarried,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
    TurnEnded,
)
from holdfast.testing import Crashed, ScriptModel, crash_after, open_in_memory
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import Disk
from tests.acceptance.runtime.conftest import Stage, alice, bob
from tests.acceptance.runtime.test_instances import break_it

HOUR = 3600.0
TOOLS = ("set_reminder", "cancel_reminder", "list_reminders")
ACT = {"call": [{"tool": "act", "args": {"what": "x"}}]}


def setting(**arguments: Any) -> dict[str, Any]:
    return {"call": [{"tool": "set_reminder", "args": {"text": "look around", **arguments}}]}


def kinds(events: list[Any], *wanted: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, wanted)]


def reminded(stage: Stage, *lines: dict[str, Any], name: str = "ops") -> holdfast.Agent:
    return holdfast.Agent(
        name, model=ScriptModel(list(lines)), tools=[*stage.effects.tools(), *TOOLS]
    )


# --- firing


@in_loop
async def test_resume_fires_what_is_due_then_drives_it_and_says_that_it_was_late(
    stage: Stage,
) -> None:
    """Nothing ran for a day: one turn, for all that were missed."""
    async with stage.open(stage.agent([{"say": "looked"}])) as home:
        made = await home.remind("ops/a", "look around", source=alice, every="1h")
        assert (await home.resume(), await home.reminders()) == ((), (made,))
    stage.clock.advance(24 * HOUR)
    async with stage.open(stage.agent([{"say": "looked"}])) as home:
        [turn] = await home.resume()
        assert (turn.turn, turn.outcome, turn.reply) == ("t1", "completed", "looked")
        assert await home.resume() == ()
        [left] = await home.reminders()
        assert (left.fired, left.id, left.state) == (1, made.id, "waiting")
    [accepted] = kinds(await stage.events("ops/a"), InputAccepted)
    assert accepted.text.startswith(
        "look around\n\n(This reminder comes late: it was due at 2023-11-14T23:13:20Z, and it is 2023-11-15T22:13:20Z. 23 later ones"
    )


@in_loop
async def test_many_processes_that_look_at_once_fire_it_once(stage: Stage) -> None:
    agent = stage.agent([{"say": "looked"}] * 8)
    async with stage.open(agent) as home:
        await home.remind("ops/a", "look around", source=alice, every="1h")
    stage.clock.advance(HOUR)
    async with stage.open(agent) as one, stage.open(agent) as two, stage.open(agent) as three:
        await asyncio.gather(*(home.resume("ops/a") for home in (one, two, three, one, two, three)))
    events = await stage.events("ops/a")
    assert [len(kinds(events, kind)) for kind in (InputAccepted, ReminderFired, TurnEnded)] == [
        1,
        1,
        1,
    ]


@in_loop
async def test_the_index_is_a_cache_deleted_it_changes_nothing(stage: Stage) -> None:
    """
    Each opening here has an empty index in memory, or none on disk: what is due is found from the
    journals.
    """
    async with stage.open(stage.agent([{"say": "looked"}])) as home:
        made = await home.remind("ops/a", "look around", source=alice, at="2023-11-14T23:00:00Z")
        for name in ("index.db", "index.db-journal"):
            (stage.folder / name).unlink(missing_ok=True)
    async with stage.open(stage.agent([{"say": "looked"}])) as home:
        assert await home.reminders() == (made,)
        stage.clock.advance(HOUR)
        assert list(await home.service.owing()) == ["ops/a"]
        [turn] = await home.resume()
        assert turn.outcome == "completed"
        assert await home.reminders() == ()


@in_loop
async def test_an_append_that_the_index_never_heard_of_is_noticed(tmp_path: Path) -> None:
    """
    As after a crash between the two: the row is behind its journal, and the session is opened
    instead.
    """
    stage = Stage("files", tmp_path / "home")
    async with stage.open(stage.agent([{"say": "hello"}, {"say": "looked"}])) as home:
        await home.send("ops/a", "hello", source=alice)
        assert await home.reminders() == ()
        service = home.service

        async def put_nothing(*_: object) -> None:
            pass

        real, service.runtime.world.index.put = service.runtime.world.index.put, put_nothing  # type: ignore[method-assign]
        made = await home.remind("ops/a", "look around", source=alice, every="1h")
        service.runtime.world.index.put = real  # type: ignore[method-assign]
    async with stage.open(stage.agent([{"say": "hello"}, {"say": "looked"}])) as home:
        assert await home.reminders() == (made,)
        stage.clock.advance(HOUR)
        assert [turn.outcome for turn in await home.resume()] == ["completed"]


@pytest.mark.parametrize("kind", [ReminderSet, InputAccepted, ReminderFired, TurnEnded])
@in_loop
async def test_a_reminder_fires_once_with_the_same_authority_after_a_crash(
    kind: type[Any],
) -> None:
    """A3: the same turn, the same denial, with and without a crash."""
    disk, clock = Disk(), holdfast.testing.ManualClock()
    done: list[str] = []

    @holdfast.tool
    def act(what: str) -> str:
        """Do something that can't be undone."""
        done.append(what)
        return "did"

    def agent() -> holdfast.Agent:
        return holdfast.Agent("ops", model=ScriptModel([ACT, {"say": "could not"}]), tools=[act])

    async def run_once(crash: Any) -> None:
        async with open_in_memory(agents=[agent()], disk=disk, clock=clock, crash=crash) as home:
            if (
                not await home.reminders()
                and "ops/a" not in await home.service.runtime.world.store.sessions()
            ):
                await home.remind("ops/a", "act", source=alice, at="2023-11-14T23:00:00Z")
            clock.advance(HOUR)
            await home.resume()

    with pytest.raises((Crashed, BaseExceptionGroup)):
        await run_once(crash_after(kind))
    await run_once(None)
    async with open_in_memory(agents=[agent()], disk=disk, clock=clock) as home:
        events: list[Any] = []
        journal = await home.service.runtime.world.store.open("ops/a")  # type: ignore[arg-type]
        await journal.load(
            lambda record: events.append(
                holdfast.session.codec.decode(record.type, record.version, record.body)
            )
        )
    assert [
        len(kinds(events, each)) for each in (ReminderSet, InputAccepted, ReminderFired, TurnEnded)
    ] == [1, 1, 1, 1]
    assert [each.code for each in kinds(events, CallFinished)] == ["approval_unattended"]
    assert done == []


# --- by a tool


@in_loop
async def test_a_reminder_set_by_a_tool_is_asked_about_and_runs_as_its_requester(
    stage: Stage,
) -> None:
    """
    The prompt says what will come, when, as whom; and the turn then has that person's authority and
    nobody to ask.
    """
    async with stage.open(
        reminded(stage, setting(every="1h"), {"say": "set"}, ACT, {"say": "could not"})
    ) as home:
        turn = await home.send("ops/a", "remind me", source=alice)
        [approval] = turn.approvals
        assert approval.display.splitlines() == [
            "set a reminder, every 1h",
            "| look around",
            "it runs as alice (personal:alice), and nobody can be asked in it",
        ]
        turn = (await home.answer(approval, "approve_once", by=alice)).turn
        assert turn.reply == "set"
        [made] = await home.reminders()
        assert (made.text, made.by, made.boundary, made.set_in, made.may_prompt) == (
            "look around",
            "alice",
            "personal:alice",
            "t1",
            False,
        )
        assert (await home.session("ops/a")).reminders == (made,)
        stage.clock.advance(HOUR)
        [turn] = await home.resume()
        assert (turn.outcome, turn.reply, turn.approvals) == ("completed", "could not", ())
    assert stage.effects.done == []
    assert [each.code for each in kinds(await stage.events("ops/a"), CallFinished)] == [
        None,
        "approval_unattended",
    ]


@in_loop
async def test_a_reminders_turn_parks_for_its_creator_alone_when_they_allowed_it(
    stage: Stage,
) -> None:
    async with stage.open(stage.agent([ACT, {"say": "done"}])) as home:
        await home.remind("ops/a", "act", source=alice, every="1h", may_prompt=True)
        stage.clock.advance(HOUR)
        [turn] = await home.resume()
        [approval] = turn.approvals
        assert (approval.may_answer, approval.channel, approval.principal) == (
            ("alice",),
            "reminder",
            "verified_automation",
        )
        refused = await home.answer(approval, "approve_once", by=bob)
        assert (refused.result, refused.reason, stage.effects.done) == (
            "failed",
            "wrong_approver",
            [],
        )
    async with stage.open(stage.agent([ACT, {"say": "done"}])) as home:
        assert (await home.answer(approval, "approve_once", by=alice)).turn.outcome == "completed"
    assert stage.effects.done == ["x"]


@in_loop
async def test_a_reminders_turn_parks_for_the_approvers_that_policy_names(stage: Stage) -> None:
    stage.policy = Policy(rules={Audience.PERSONAL: {"act": Rule(mode="ask", approvers=("bob",))}})
    async with stage.open(stage.agent([ACT, {"say": "done"}])) as home:
        await home.remind("ops/a", "act", source=alice, every="1h")
        stage.clock.advance(HOUR)
        [turn] = await home.resume()
        [approval] = turn.approvals
        assert approval.may_answer == ("bob",)
        assert (await home.answer(approval, "approve_once", by=alice)).reason == "wrong_approver"
        assert (await home.answer(approval, "approve_once", by=bob)).turn.outcome == "completed"
    assert stage.effects.done == ["x"]


@pytest.mark.parametrize(
    "crashing", [holdfast.session.events.ToolStarted, ReminderSet, CallFinished]
)
@in_loop
async def test_killed_at_any_step_of_setting_it_a_reminder_is_set_once(crashing: type[Any]) -> None:
    disk, clock = Disk(), holdfast.testing.ManualClock()
    policy = Policy(rules={Audience.PERSONAL: {"set_reminder": Rule(mode="auto")}})

    def agent() -> holdfast.Agent:
        return holdfast.Agent(
            "ops", model=ScriptModel([setting(every="1h"), {"say": "set"}]), tools=list(TOOLS)
        )

    with pytest.raises((Crashed, BaseExceptionGroup)):
        async with open_in_memory(
            agents=[agent()], disk=disk, clock=clock, policy=policy, crash=crash_after(crashing)
        ) as home:
            await home.send("ops/a", "remind me", source=alice)
    async with open_in_memory(agents=[agent()], disk=disk, clock=clock, policy=policy) as home:
        clock.advance(60)
        assert [turn.reply for turn in await home.resume()] == ["set"]
        [made] = await home.reminders()
        assert (made.text, made.set_in) == ("look around", "t1")


@in_loop
async def test_a_tool_sees_and_cancels_only_what_stands_in_its_own_reader_set(stage: Stage) -> None:
    """Another audience, boundary or session: not found, whatever the id."""
    stage.policy = Policy(
        rules={
            audience: {name: Rule(mode="auto") for name in TOOLS}
            for audience in (Audience.PERSONAL, Audience.TEAM)
        },
    )
    team = holdfast.MessageSource.team("alice", "ops")
    other_team = holdfast.MessageSource.team("alice", "sales")
    async with stage.open(stage.agent([])) as home:
        own = await home.remind("ops/a", "CANARY of alice", source=alice, every="1h")
        teams = await home.remind("ops/a", "for the team", source=team, every="1h")
        await home.remind("ops/b", "elsewhere", source=alice, every="1h")

    async def told(source: holdfast.MessageSource, name: str, session: str = "ops/a") -> list[str]:
        calls = (
            {"tool": "list_reminders", "args": {}},
            {"tool": "cancel_reminder", "args": {"reminder": name}},
        )
        lines = [
            *({"call": [each]} for each in calls),
            {"say": f"to {source.boundary}"},
        ]  # a script of its own: each line is used once
        agent = f"for-{source.boundary}"  # a session keeps its agent's model
        async with stage.open(reminded(stage, *lines, name=agent)) as home:
            turn = await home.send(session, "which?", source=source, agent=agent)
        finished = [
            each
            for each in kinds(await stage.events(session), CallFinished)
            if each.turn == turn.turn
        ]
        assert len(finished) == len(calls)
        return [each.text for each in finished]

    unknown = f"no reminder {own.id} here (list the reminders, and name one by its whole id)"
    assert await told(other_team, own.id) == ["no reminders are set here", unknown]
    assert await told(bob, own.id) == ["no reminders are set here", unknown]
    listed, refused = await told(team, own.id)
    assert ("CANARY" in listed, teams.id in listed, refused) == (False, True, unknown)
    listed, refused = await told(alice, own.id, session="ops/b")
    assert ("CANARY" in listed, refused) == (False, unknown)
    listed, cancelled = await told(alice, own.id)
    assert ("CANARY" in listed, cancelled) == (True, f"{own.id} is cancelled")
    async with stage.open(stage.agent([])) as home:
        assert [each.text for each in await home.reminders()] == ["for the team", "elsewhere"]


@pytest.mark.parametrize(
    ("source", "settings", "code"),
    [
        (holdfast.MessageSource.team("alice", "ops"), {}, "denied_by_policy"),
        (None, {}, "approval_unattended"),
        (None, {Audience.PUBLIC: {"set_reminder": Rule(mode="auto")}}, None),
    ],
)
@in_loop
async def test_a_team_sets_none_unless_settings_say_so_and_the_public_never_does(
    source: holdfast.MessageSource | None,
    settings: dict[Audience, Any],
    code: str | None,
    stage: Stage,
) -> None:
    stage.policy = Policy(rules=settings)
    async with stage.open(reminded(stage, setting(every="1h"), {"say": "no"})) as home:
        await home.send("ops/a", "remind me", source=source)
        assert await home.reminders() == ()
    [finished] = kinds(await stage.events("ops/a"), CallFinished)
    assert finished.code == code
    assert finished.outcome != "ok"


@in_loop
async def test_a_turn_nobody_can_be_asked_in_gives_no_leave_to_ask(stage: Stage) -> None:
    stage.policy = Policy(rules={Audience.PERSONAL: {"set_reminder": Rule(mode="auto")}})
    webhook = holdfast.MessageSource.automation("alice", channel="webhook")
    async with stage.open(
        reminded(stage, setting(every="1h", may_prompt=True), {"say": "no"})
    ) as home:
        await home.send("ops/a", "remind me", source=webhook)
        assert await home.reminders() == ()
    [finished] = kinds(await stage.events("ops/a"), CallFinished)
    assert (finished.outcome, "nobody can be asked" in finished.text) == ("error", True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"at": "yesterday"}, "at: 'yesterday' is not a date and time; write"),
        ({"at": "2023-11-14T22:00:00Z"}, "at: it is 2023-11-14T22:13:20Z already; name"),
        ({"cron": "0 0 31 2 *", "time_zone": "UTC"}, "never fires"),
        ({"cron": "0 9 * * *", "time_zone": "Europe/Berlinn"}, "did you mean Europe/Berlin?"),
        ({"every": "1h", "text": " "}, "text is empty"),
        ({"every": "1h", "as": "bob"}, "no field 'as'"),
    ],
)
@in_loop
async def test_bad_arguments_are_reported_to_the_model_before_anyone_is_asked(
    arguments: dict[str, str], said: str, stage: Stage
) -> None:
    async with stage.open(reminded(stage, setting(**arguments), {"say": "no"})) as home:
        turn = await home.send("ops/a", "remind me", source=alice)
        assert (turn.approvals, await home.reminders()) == ((), ())
    events = await stage.events("ops/a")
    assert kinds(events, ApprovalRequested) == []
    [finished] = kinds(events, CallFinished)
    assert (finished.code, said in finished.text) == ("invalid_arguments", True)


# --- refused


@in_loop
async def test_a_refused_reminder_creates_no_session(stage: Stage) -> None:
    async with stage.open(stage.agent([])) as home:
        home.service.runtime.world.secrets = ("hunter22",)
        for wrong, kind in (
            ({"every": "1s"}, Unusable),
            ({}, Unusable),
            ({"cron": "0 9 * * *", "time_zone": "Mars/Base"}, Unusable),
        ):
            with pytest.raises(kind):
                await home.remind("ops/a", "x", source=alice, **wrong)
        with pytest.raises(Refused) as refused:
            await home.remind("ops/a", "the password is hunter22", source=alice, every="1h")
        assert refused.value.code == "secret"
        assert await home.service.runtime.world.store.sessions() == []
        with pytest.raises(Refused) as refused:
            await home.cancel_reminder("r-nothere", by=alice)
        assert refused.value.code == "unknown"


# --- a record that lost a field, with a valid mac


async def _append_reminder(stage: Stage, drop: str, *, of_context: bool) -> None:
    async with stage.open(stage.agent([])) as home:
        await home.remind("ops/a", "look around", source=alice, every="1h")
        [event] = kinds(await stage.events("ops/a"), ReminderSet)
        [made] = await home.reminders()
        await home.cancel_reminder(made.id, by=alice)
        name, version, body = encode(msgspec.structs.replace(event, reminder="r-damaged"))
        fields = msgspec.json.decode(body)
        del (fields["context"] if of_context else fields)[drop]
        journal = await home.service.runtime.world.store.open("ops/a")  # type: ignore[arg-type]
        await journal.append(
            lambda _: [Draft(name, version, msgspec.json.encode(fields))], since=journal.head
        )
        await journal.close()


@pytest.mark.parametrize("field", ["audience", "boundary", "requester", "interactive", "workspace"])
@in_loop
async def test_a_stored_reminder_without_its_whole_authority_never_runs_and_is_seen(
    field: str, stage: Stage
) -> None:
    await _append_reminder(stage, field, of_context=True)
    async with stage.open(stage.agent([ACT])) as home:
        [seen] = await home.reminders()
        assert (seen.id, seen.state, seen.reason) == (
            "r-damaged",
            "no_authority",
            f"the turn's context has no {field}",
        )
        stage.clock.advance(HOUR)
        await home.resume()
        assert await home.reminders() == ()
    events = await stage.events("ops/a")
    assert kinds(events, InputAccepted) == []
    assert (
        kinds(events, ReminderCancelled)[-1].reason
        == f"never fired: the turn's context has no {field}"
    )


@in_loop
async def test_a_stored_reminder_without_a_field_of_its_own_seals_the_session(
    tmp_path: Path,
) -> None:
    stage = Stage("files", tmp_path / "home")
    await _append_reminder(stage, "next_at", of_context=False)
    async with stage.open(stage.agent([ACT])) as home:
        stage.clock.advance(HOUR)
        with pytest.raises(Untrusted):
            await home.resume("ops/a")
        assert await home.reminders() == ()
    assert stage.effects.done == []


# --- other instances


@in_loop
async def test_a_fork_and_an_unsealed_session_carry_no_reminder_over(tmp_path: Path) -> None:
    stage = Stage("files", tmp_path / "home")
    async with stage.open(stage.agent([{"say": "hello"}])) as home:
        await home.send("ops/a", "first", source=alice)
        made = await home.remind("ops/a", "look around", source=alice, every="1h")
        await fork(
            home.service.runtime,
            "ops/a",
            "ops/b",
            at_seq=(await home.session("ops/a")).seq,
            by="alice",
        )
        assert [(each.session, each.id) for each in await home.reminders()] == [("ops/a", made.id)]
    break_it(stage.folder / "sessions" / "ops" / "a", b"look around", b"LOOK around")
    stage.clock.advance(HOUR)
    async with stage.open(stage.agent([ACT])) as home:
        with pytest.raises((Untrusted, Refused)):
            await home.resume("ops/a")
        assert await home.reminders() == ()
        await unseal(home.service.runtime, "ops/a", by="alice", reason="tests")
        assert (await home.reminders(), await home.resume()) == ((), ())
    [carried] = kinds(await stage.events("ops/b"), LifeCarried)
    assert carried.not_run == (made.id,)
