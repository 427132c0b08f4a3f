"""
A reminder has what its creator's turn had, or less; without all of it, it never fires; and it fires
once.
"""

from datetime import UTC
from typing import Any

import msgspec
import pytest
from proof.scenarios.pure_session import INSTANCE, SESSION, START_MS, PureSession
from proof.scenarios.teller import Teller

from holdfast import limits
from holdfast.errors import BrokenChain
from holdfast.ids import InputId, InstanceId, TurnId, reminder_id
from holdfast.session.authority.context import (
    Audience,
    LostContext,
    MessageSource,
    Principal,
    Provenance,
    TurnContext,
    Workspace,
)
from holdfast.session.authority.policy import Policy
from holdfast.session.codec import decode, encode
from holdfast.session.commands import (
    AcceptInput,
    CancelReminder,
    CloseInstance,
    FireReminders,
    GiveModel,
    SetReminder,
)
from holdfast.session.events import (
    InputAccepted,
    InputDropped,
    LifeCarried,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
)
from holdfast.session.features.reminders.decide import set_reminder
from holdfast.session.features.reminders.schedule import Cron, Every, Once
from holdfast.session.snapshots.session import decode_state, encode_state
from holdfast.session.view.messages import Quote

MINUTE = 60_000
R1 = reminder_id(INSTANCE, "one")
PLACE = Workspace("/srv", "1:2")
FIRE = FireReminders(zones={"UTC": UTC})
ALICE = MessageSource.local("alice", quotes=(Quote("bob", "him"),))


def wish(**changes: Any) -> SetReminder:
    made = SetReminder(
        reminder=R1,
        text="look",
        schedule=Every(60, 0),
        zone=UTC,
        source=ALICE,
        workspace=PLACE,
        agent="ops",
        model="demo",
    )
    return msgspec.structs.replace(made, **changes)


def with_reminder(**changes: Any) -> PureSession:
    pure = PureSession()
    decided = pure.do(wish(**changes)).decided[-1]
    assert decided.refusal is None, decided.refusal
    return pure


def set_event(pure: PureSession) -> ReminderSet:
    return next(event for event in pure.events() if isinstance(event, ReminderSet))


def fired(pure: PureSession, after: int = MINUTE) -> list[Any]:
    """A second check, a while later."""
    pure.now += after
    return list(pure.do(FIRE).events)


# --- authority


@pytest.mark.parametrize("may_prompt", [False, True])
def test_a_reminder_runs_under_its_creators_context_narrowed_and_nothing_else(
    may_prompt: bool,
) -> None:
    """
    Whole value: the audience, boundary, workspace and speakers are kept; it is automation, tainted
    by a third party, and asks nobody without leave.
    """
    accepted, _ = fired(with_reminder(may_prompt=may_prompt))
    assert msgspec.json.decode(accepted.context, type=TurnContext) == TurnContext(
        session=SESSION,
        instance=INSTANCE,
        turn=TurnId("t1"),
        audience=Audience.PERSONAL,
        boundary="personal:alice",
        channel="reminder",
        requester="alice",
        principal=Principal.VERIFIED_AUTOMATION,
        provenance=Provenance(
            authenticity="verified", taint="tainted", scope="direct", kind="reminder"
        ),
        quoted_speakers=("bob",),
        interactive=may_prompt,
        workspace=PLACE,
    )
    assert (accepted.kind, accepted.dedup, accepted.supersedes) == (
        "reminder",
        f"{R1}@{START_MS + MINUTE}",
        (),
    )


def damaged(**changes: Any) -> PureSession:
    """A reminder whose record was changed by somebody who has the key."""
    event = set_event(with_reminder())
    fields = msgspec.json.decode(event.context)
    for name, value in changes.items():
        if value is ...:
            del fields[name]
        else:
            fields[name] = value
    pure = PureSession()
    pure.append([msgspec.structs.replace(event, context=msgspec.Raw(msgspec.json.encode(fields)))])
    return pure


def assert_never_fires(pure: PureSession, field: str | None) -> None:
    lost = pure.state.reminders[R1].context
    assert isinstance(lost, LostContext)
    assert lost.field == field
    events = fired(pure)
    assert events == [
        ReminderCancelled(reminder=R1, by="holdfast", reason=f"never fired: {lost.reason}")
    ]
    assert (pure.state.queued, pure.state.reminders) == ((), {})


@pytest.mark.parametrize("field", TurnContext.__struct_fields__)
def test_a_reminder_whose_record_lost_a_field_of_its_context_never_fires_and_says_so(
    field: str,
) -> None:
    assert_never_fires(damaged(**{field: ...}), field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("instance", "another-life"),
        ("session", "ops/other"),
        ("requester", "bob"),
        ("interactive", True),
        ("audience", "everyone"),
        (
            "provenance",
            {"authenticity": "verified", "taint": "clean", "scope": "direct", "kind": "message"},
        ),
    ],
)
def test_a_reminder_with_another_authority_than_it_was_set_with_never_fires(
    field: str, value: Any
) -> None:
    assert_never_fires(damaged(**{field: value}), field)


@pytest.mark.parametrize(
    "schedule", [Every(0, START_MS), Every(-60, START_MS), Cron("every day", "UTC")]
)
def test_a_reminder_whose_schedule_can_not_be_kept_never_fires_and_stops_no_other(
    schedule: Every | Cron,
) -> None:
    event = set_event(with_reminder())
    pure = PureSession()
    pure.append([msgspec.structs.replace(event, schedule=schedule)])
    pure.do(wish(reminder=reminder_id(INSTANCE, "two")))
    assert isinstance(pure.state.reminders[R1].context, LostContext)
    assert [type(each) for each in fired(pure)] == [ReminderCancelled, InputAccepted, ReminderFired]


def test_a_reminder_from_before_contexts_existed_does_not_fire() -> None:
    """The isolated path of old approval requests is not a way in."""
    event = set_event(with_reminder())
    old = {
        "legacy": "c-1",
        "channel": "slack",
        "requester": "alice",
        "audience": "personal",
        "boundary": "personal:alice",
    }
    pure = PureSession()
    pure.append([msgspec.structs.replace(event, context=msgspec.Raw(msgspec.json.encode(old)))])
    assert isinstance(pure.state.reminders[R1].context, LostContext)
    assert [type(each) for each in fired(pure)] == [ReminderCancelled]


@pytest.mark.parametrize(
    "field", ["reminder", "text", "schedule", "context", "by", "agent", "model", "next_at"]
)
def test_a_record_that_lost_a_field_of_its_own_is_not_believed(field: str) -> None:
    """Decoding it seals the session: nothing of it runs."""
    name, version, body = encode(set_event(with_reminder()))
    fields = msgspec.json.decode(body)
    del fields[field]
    with pytest.raises(BrokenChain):
        decode(name, version, msgspec.json.encode(fields))


# --- set by a tool


SET_BY_A_CALL = ("submit x", "go", 'calls "tidy at=1"', "decide", "start c1")


def of_call(pure: PureSession) -> SetReminder:
    (call,) = pure.state.turns[TurnId("t1")].calls
    return wish(
        source=None,
        workspace=None,
        turn=TurnId("t1"),
        call=call.call,
        agent="another",
        model="another",
    )


def test_a_reminder_of_a_tool_goes_on_with_the_agent_and_the_model_of_its_turn() -> None:
    """The words of the call do not matter."""
    teller = Teller()
    teller.tell(SET_BY_A_CALL)
    (event,) = teller.pure.do(of_call(teller.pure)).events
    turn = teller.pure.state.turns[TurnId("t1")]
    assert isinstance(event, ReminderSet)
    assert (event.agent, event.model, event.turn) == (turn.agent, turn.model, turn.id)
    assert turn.agent != "another"


def test_a_call_of_a_turn_whose_context_is_lost_sets_no_reminder() -> None:
    """A2: should such a call ever be running, it has nothing that a reminder could be given."""
    teller = Teller()
    teller.tell(SET_BY_A_CALL)
    state, command = teller.pure.state, of_call(teller.pure)
    turn = msgspec.structs.replace(
        state.turns[TurnId("t1")], context=LostContext("the audience is missing", "audience")
    )
    decided = set_reminder(msgspec.structs.replace(state, turns={turn.id: turn}), command, START_MS)
    assert decided.refusal is not None
    assert (decided.refusal.code, decided.refusal.message, decided.events) == (
        "no_authority",
        "the audience is missing",
        (),
    )


def test_a_delegate_sets_no_reminder_for_any_requester() -> None:
    teller = Teller()
    teller.tell(["as-delegate task"])
    decided = teller.pure.do(wish()).decided[-1]
    assert decided.refusal is not None
    assert (decided.refusal.code, decided.refusal.message.split(":")[0]) == (
        "delegate_reminder",
        "a delegate sets no reminders",
    )
    assert teller.pure.state.reminders == {}


# --- once


def test_a_record_of_a_second_firing_is_not_believed() -> None:
    pure = with_reminder()
    _, once = fired(pure)
    with pytest.raises(BrokenChain):
        pure.append([once])


@pytest.mark.parametrize("scheduled_at", [START_MS, START_MS + 2 * MINUTE])
def test_a_record_of_a_firing_at_another_time_is_not_believed(scheduled_at: int) -> None:
    pure = with_reminder()
    with pytest.raises(BrokenChain):
        pure.append(
            [
                ReminderFired(
                    reminder=R1,
                    turn=TurnId("t1"),
                    scheduled_at=scheduled_at,
                    fired_at=pure.now,
                    next_at=pure.now + 10 * MINUTE,
                )
            ]
        )


def test_firing_keeps_the_pace_of_the_first_instant_however_late_each_look_is() -> None:
    """
    A look 7, 77 and 777 seconds late: every instant stays a whole number of minutes after the
    first.
    """
    pure = with_reminder()
    for late in (7_000, 77_000, 777_000):
        pure.now = pure.state.reminders[R1].next_at + late
        pure.do(FIRE)
        due = pure.state.reminders[R1].next_at
        assert (due - START_MS) % MINUTE == 0
        assert 0 < due - pure.now <= MINUTE


def test_an_input_that_was_kept_alone_is_not_accepted_twice_however_much_later_the_next_look_is() -> (
    None
):
    """
    A crash between the two records of a firing; the text of a second one would say something else.
    """
    pure = with_reminder()
    fired(pure)
    pure.crash(len(pure.records) - 1)
    assert len(pure.state.queued) == 1
    events = fired(pure, after=30 * MINUTE)
    assert [type(each) for each in events] == [ReminderFired]
    assert (events[0].turn, len(pure.state.queued), fired(pure, after=0)) == ("t1", 1, [])


def test_a_single_one_is_over_when_it_has_fired_and_setting_it_again_by_the_same_call_sets_nothing() -> (
    None
):
    pure = with_reminder(schedule=Once(START_MS + MINUTE))
    assert [type(each) for each in fired(pure)] == [InputAccepted, ReminderFired]
    assert pure.state.reminders == {}
    assert pure.do(wish(schedule=Once(pure.now + MINUTE))).events == ()


# --- bounds


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"text": "x" * (limits.REMINDER_TEXT_BYTES_MAX + 1)}, "too_large"),
        ({"text": "é" * (limits.REMINDER_TEXT_BYTES_MAX // 2 + 1)}, "too_large"),
        ({"text": "  \n"}, "malformed"),
        ({"text": "\ud800"}, "malformed"),
        ({"schedule": Once(START_MS)}, "malformed"),
        ({"schedule": Cron("0 0 30 2 *", "UTC")}, "malformed"),
        ({"schedule": Cron("0 0 1 1 *", "Nowhere/At_All"), "zone": None}, "malformed"),
        ({"source": None}, "no_authority"),
        ({"source": MessageSource.none()}, "no_authority"),
        (
            {
                "source": msgspec.structs.replace(
                    MessageSource.automation("x", channel="webhook"), person=None
                )
            },
            "no_authority",
        ),
        (
            {"source": msgspec.structs.replace(ALICE, audience=Audience.PUBLIC, boundary="public")},
            "no_authority",
        ),
    ],
)
def test_an_invalid_reminder_is_refused_and_nothing_is_written(
    changes: dict[str, Any], code: str
) -> None:
    pure = PureSession()
    committed = pure.do(wish(**changes))
    assert committed.decided[-1].refusal is not None
    assert (committed.decided[-1].refusal.code, committed.events) == (code, ())


def test_a_text_as_long_as_the_bound_says_is_taken() -> None:
    assert (
        len(set_event(with_reminder(text="x" * limits.REMINDER_TEXT_BYTES_MAX)).text)
        == limits.REMINDER_TEXT_BYTES_MAX
    )


@pytest.mark.parametrize(
    "late_ms", [limits.REMINDER_LATE_SECONDS * 1000 - 1, limits.REMINDER_LATE_SECONDS * 1000]
)
def test_a_reminder_says_that_it_is_late_from_the_bound_on(late_ms: int) -> None:
    accepted, _ = fired(with_reminder(schedule=Once(START_MS + MINUTE)), after=MINUTE + late_ms)
    assert (accepted.text == "look") is (late_ms < limits.REMINDER_LATE_SECONDS * 1000)


def test_a_session_has_room_for_so_many_and_no_more() -> None:
    pure = PureSession()
    for number in range(limits.REMINDERS_PER_SESSION_MAX):
        assert pure.do(wish(reminder=reminder_id(INSTANCE, str(number)))).events
    refusal = pure.do(wish(reminder=reminder_id(INSTANCE, "one more"))).decided[-1].refusal
    assert refusal is not None
    assert refusal.code == "too_many"
    assert len(fired(pure)) == 2 * limits.REMINDERS_PER_SESSION_MAX


def test_a_full_queue_takes_no_more_and_what_is_due_waits_for_room() -> None:
    pure = with_reminder()
    for number in range(limits.QUEUED_INPUTS_MAX):
        pure.do(
            AcceptInput(
                text=f"{number}",
                source=MessageSource.local("bob"),
                agent="ops",
                model="demo",
                policy=Policy(),
            )
        )
    assert fired(pure) == []
    pure.append([InputDropped(input=InputId("i1"), reason="tests")])
    assert [type(each) for each in fired(pure, after=0)] == [InputAccepted, ReminderFired]


def test_a_reminder_whose_zone_nobody_brought_waits_for_somebody_who_has_it() -> None:
    pure = with_reminder(schedule=Cron("* * * * *", "Europe/Berlin"))
    assert fired(pure) == []
    assert [type(each) for each in pure.do(FireReminders(zones={"Europe/Berlin": UTC})).events] == [
        InputAccepted,
        ReminderFired,
    ]


# --- other instances, other models


def test_a_new_instance_lists_old_reminders_as_not_run() -> None:
    pure = with_reminder()
    carried = next(
        event
        for event in pure.do(CloseInstance(by="alice", reason="forked")).events
        if isinstance(event, LifeCarried)
    )
    assert carried.not_run == (R1,)
    assert (pure.state.reminders, fired(pure)) == ({}, [])


def test_a_firing_changes_neither_the_sessions_model_nor_its_agent() -> None:
    """
    It goes on with what it was set with; whoever writes next gets what the session was last given.
    """
    pure = PureSession()
    pure.do(
        AcceptInput(
            text="hello",
            source=MessageSource.local("alice"),
            agent="chat",
            model="other",
            policy=Policy(),
        )
    )
    pure.do(wish())
    accepted, _ = fired(pure)
    assert (accepted.agent, accepted.model) == ("ops", "demo")
    assert (pure.state.agent, pure.state.model) == ("chat", "other")


def test_a_model_given_for_what_comes_is_given_to_reminders_too() -> None:
    pure = with_reminder()
    pure.do(GiveModel(model="third", by="alice"))
    assert fired(pure)[0].model == "third"


def test_only_its_setter_or_an_operator_may_cancel_a_reminder() -> None:
    pure = with_reminder()
    refusal = pure.do(CancelReminder(reminder=R1, by="bob")).decided[-1].refusal
    assert refusal is not None
    assert refusal.code == "no_authority"
    assert pure.do(CancelReminder(reminder=R1, by="bob", may_all=True)).events == (
        ReminderCancelled(reminder=R1, by="bob"),
    )


def test_another_instance_gives_other_reminder_ids() -> None:
    assert reminder_id(INSTANCE, "one") != reminder_id(InstanceId("life-2"), "one")


def test_a_snapshot_keeps_what_stands_and_what_is_over() -> None:
    pure = with_reminder(schedule=Cron("0 9 * * *", "UTC"), may_prompt=True)
    pure.do(wish(reminder=reminder_id(INSTANCE, "two"), schedule=Once(START_MS + MINUTE)))
    fired(pure)
    assert pure.state.reminders
    assert list(pure.state.reminders_over.items())
    assert decode_state(encode_state(pure.state)) == pure.state
