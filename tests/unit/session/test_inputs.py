"""
Taking messages in: answer words, bounds, duplicates, children, and what is carried into a new instance.
"""

from typing import Any

import msgspec
import pytest
from proof.scenarios.pure_session import INSTANCE, SESSION, PureSession
from proof.scenarios.teller import Teller

from holdfast import limits
from holdfast.ids import ApprovalId, InstanceId, TurnId
from holdfast.session.authority.context import (
    LostContext,
    MessageSource,
    TurnContext,
    context_from_source,
    narrowed,
)
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import AcceptInput, CloseInstance
from holdfast.session.decide.commit import commit
from holdfast.session.decide.inputs import is_answer_word
from holdfast.session.events import InputAccepted, SessionBorn
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.react import react
from holdfast.session.results import Accepted, Duplicate, OnlyAnAnswerWord
from holdfast.session.view.messages import Quote

ALICE = MessageSource.local("alice")


def accept(text: str = "hello", source: MessageSource | None = ALICE, **more: Any) -> AcceptInput:
    return AcceptInput(text=text, source=source, agent="ops", model="demo", policy=Policy(), **more)


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "Yes!",
        " OK ",
        "ok.",
        "no",
        "Deny",
        "y",
        "n",
        "go ahead",
        "approve_once",
        "'yes'",
        "*approve*",
        "YES\n",
    ],
)
def test_only_an_answer_word(text: str) -> None:
    """Case 25a, P6."""
    assert is_answer_word(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes, and restart the other one",
        "ok go",
        "not yes",
        "yesterday",
        "no: use staging",
        "approve the plan in docs/",
    ],
)
def test_more_than_an_answer_word(text: str) -> None:
    assert not is_answer_word(text)


def test_an_answer_word_with_nothing_waiting_is_a_message() -> None:
    pure = PureSession()
    assert isinstance(pure.do(accept("yes")).decided[0].outcome, Accepted)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (accept("x" * (limits.INPUT_TEXT_BYTES_MAX + 1)), "too_large"),
        (accept("half \ud800"), "malformed"),
        (accept(""), "malformed"),
        (accept(" \t\n\u2003"), "malformed"),
        (
            accept(
                source=MessageSource.local(
                    "alice", quotes=(Quote("bob", "x"),) * (limits.QUOTES_MAX + 1)
                )
            ),
            "too_large",
        ),
    ],
    ids=["long", "surrogate", "empty", "blank", "quotes"],
)
def test_too_much_is_refused_and_nothing_is_written(command: AcceptInput, code: str) -> None:
    pure = PureSession()
    before = list(pure.records)
    decided = pure.do(command).decided[0]
    assert decided.refusal is not None
    assert (decided.refusal.code, pure.records) == (code, before)


def test_a_full_queue_refuses() -> None:
    pure = PureSession()
    for _ in range(limits.QUEUED_INPUTS_MAX):
        pure.do(accept())
    refusal = pure.do(accept()).decided[0].refusal
    assert refusal is not None
    assert refusal.code == "too_many"


def test_dedup_is_per_channel_and_requester() -> None:
    """Case 40."""
    pure = PureSession()
    pure.do(accept(dedup="k"))
    assert pure.do(accept(dedup="k")).decided[0].outcome == Duplicate(TurnId("t1"))
    elsewhere = msgspec.structs.replace(ALICE, channel="slack")
    assert pure.do(accept(source=elsewhere, dedup="k")).decided[0].outcome == Accepted(
        "i2", TurnId("t2")
    )
    assert pure.do(accept(source=MessageSource.local("bob"), dedup="k")).decided[
        0
    ].outcome == Accepted("i3", TurnId("t3"))


def test_a_child_keeps_its_narrowed_authority_under_its_own_turn() -> None:
    """A4: handed on for this session and instance, or refused."""
    parent = context_from_source(
        ALICE, session=SESSION, instance=INSTANCE, turn=TurnId("t1"), workspace=None
    )
    child = narrowed(
        parent, session=SESSION, instance=INSTANCE, turn=TurnId("t1"), kind="job", interactive=False
    )
    pure = PureSession()
    pure.do(accept(source=None, kind="job", context=child))
    assert pure.state.queued[0].context == child
    foreign = msgspec.structs.replace(child, instance=InstanceId("life-0"))
    refusal = pure.do(accept(source=None, kind="job", context=foreign)).decided[0].refusal
    assert refusal is not None
    assert refusal.code == "no_authority"
    pure.do(accept(source=None, kind="job", context=child))
    assert pure.state.queued[1].context == msgspec.structs.replace(child, turn=TurnId("t2"))


@pytest.mark.parametrize("kind", ["job", "reminder", "delegate"])
def test_only_a_message_supersedes(kind: str) -> None:
    """Jobs, reminders and delegates never do, whoever's they are."""
    teller = Teller()
    teller.tell(["submit x", "go", 'calls "delete b=1"', "go", f"submit later kind={kind}"])
    assert teller.pure.state.turns[TurnId("t1")].waiting


def test_a_message_before_the_parking_is_on_record_supersedes_too() -> None:
    """The prompt stands from the moment it is asked: no gap between asking and parking."""
    teller = Teller()
    teller.tell(["submit x", "go", 'calls "delete b=1"', "decide", "submit rename-it"])
    assert (list(teller.pure.state.turns), teller.pure.state.running) == ([], None)


def test_a_message_while_a_sibling_still_runs_waits_its_turn() -> None:
    """
    Something can still be done without a person: the turn is not parked, so the message is queued,
    and the prompt stands.
    """
    teller = Teller()
    teller.tell(
        [
            "submit x",
            "go",
            'calls "delete b=1" "tidy b=2"',
            "decide",
            "start c2",
            "submit rename-it",
        ]
    )
    assert len(teller.pure.state.turns[TurnId("t1")].waiting) == 1
    assert [each.input for each in teller.pure.state.queued] == ["i2"]


def test_a_prompt_past_its_time_is_closed_by_expiry_and_nothing_else() -> None:
    """
    Case 28: a message that comes after its time does not supersede it; the turn goes on with a
    denial.
    """
    teller = Teller()
    teller.tell(["submit x", "go", 'calls "delete b=1"', "go", "wait 8d", "submit rename-it"])
    assert TurnId("t1") in teller.pure.state.turns
    teller.tell(["expire"])
    assert teller.pure.state.turns[TurnId("t1")].calls[0].code == "expired"


def damaged(**changes: Any) -> LostContext | TurnContext:
    """
    A queued message whose record was damaged, and sealed anew by somebody with the key.
    """
    pure = PureSession()
    pure.do(accept())
    event = pure.events()[-1]
    assert isinstance(event, InputAccepted)
    fields = {**msgspec.json.decode(event.context), **changes}
    bad = msgspec.structs.replace(event, context=msgspec.Raw(msgspec.json.encode(fields)))
    return evolve(initial(SESSION, INSTANCE), bad, seq=1, at=0).queued[0].context


def test_a_context_of_another_turn_is_lost() -> None:
    """A2: incoherent with the record it stands in."""
    assert damaged(turn="t9") == LostContext("the turn's context belongs to turn t9", "turn")


@pytest.mark.parametrize("loop", ["ours", "foreign"])
@pytest.mark.parametrize("field", TurnContext.__struct_fields__)
def test_without_its_authority_a_message_runs_nothing(field: str, loop: str) -> None:
    """
    A2: each field missing: the turn fails as no_authority; no model call, no tool, whoever's loop
    it is.
    """
    pure = PureSession()
    pure.do(accept(loop=loop))
    event = pure.events()[-1]
    assert isinstance(event, InputAccepted)
    fields = {
        name: value for name, value in msgspec.json.decode(event.context).items() if name != field
    }
    pure.crash(1)
    pure.append([msgspec.structs.replace(event, context=msgspec.Raw(msgspec.json.encode(fields)))])
    teller = Teller()
    teller.pure = pure
    teller.tell(["go"])
    assert [type(each).__name__ for each in pure.events()][2:] == ["TurnStarted", "TurnEnded"]
    assert pure.events()[-1].code == "no_authority"


def test_without_its_authority_an_open_turn_goes_on_to_nothing() -> None:
    """
    A2, T7: at every point of a turn whose context can't be restored any more, nothing starts and it
    ends.
    """
    for steps in (
        ["begin"],
        ["go"],
        ["go", 'calls "tidy b=1"'],
        ["go", 'calls "tidy b=1"', "decide"],
        ["go", 'calls "delete b=1"', "go", "answer a1 approve_once"],
    ):
        teller = Teller()
        teller.tell(["submit x", *steps])
        pure = teller.pure
        turn = msgspec.structs.replace(pure.state.turns[TurnId("t1")], context=LostContext("gone"))
        pure.state = msgspec.structs.replace(pure.state, turns={turn.id: turn})
        lost = Lost(pure)
        teller.pure = lost
        lost.drive(teller)
        assert "ToolStarted" not in lost.names
        assert "ModelCallStarted" not in lost.names
        assert lost.names[-1] == "TurnEnded"
        assert not react(lost.state)


class Lost(PureSession):
    """A session whose fold is not repeated: the damage is in the state."""

    def __init__(self, pure: PureSession) -> None:
        super().__init__()
        self.records, self.state, self.names = list(pure.records), pure.state, []

    def do(self, *commands: Any) -> Any:
        committed = commit(self.state, commands, now=self.now)
        self.state = committed.state
        self.names.extend(type(event).__name__ for event in committed.events)
        return committed

    def drive(self, teller: Teller) -> None:
        for _ in range(20):
            teller.tell(
                ["says done"]
                if any(type(each).__name__ == "AwaitModel" for each in react(self.state))
                else []
            )
            teller.tell(["go"])


def test_legacy_prompts_answer_that_they_expired() -> None:
    """Case 8: any answer is told it expired; nothing runs."""
    for legacy, code in ((True, "expired"), (False, "no_authority")):
        teller = Teller()
        teller.tell(["submit x", "go", 'calls "delete b=1"', "go"])
        turn = teller.pure.state.turns[TurnId("t1")]
        state = msgspec.structs.replace(
            teller.pure.state,
            turns={
                turn.id: msgspec.structs.replace(
                    turn, context=LostContext("no requester", "requester", legacy)
                )
            },
        )
        lost = Lost(teller.pure)
        lost.state = state
        (approval,) = state.approvals
        refusal = lost.answer(approval, "approve_once", "alice").decided[-1].refusal
        assert refusal is not None
        assert (refusal.code, lost.names) == (code, [])


# --- a new instance


def test_a_new_instance_owes_nothing_of_the_old_one() -> None:
    """
    Unseal, fork, import, restore: open calls in doubt or voided, prompts voided, queue listed but
    not run, dedup keys kept.
    """
    teller = Teller()
    teller.tell(
        [
            "submit x dedup=k",
            "go",
            'calls "tidy b=1" "delete b=2"',
            "decide",
            "start c1",
            "submit y by=bob",
            "deliver hi turn=t1",
        ]
    )
    old = teller.pure
    instance = InstanceId("life-2")
    created = SessionBorn(
        session=SESSION,
        instance=instance,
        origin="unseal",
        by="alice",
        carried=len(old.records) - 1,
    )
    state = evolve(initial(SESSION, instance), created, seq=1, at=0)
    for seq, event in enumerate(old.events()[1:], 2):
        state = evolve(state, event, seq=seq, at=0)
        assert react(state) == ()
    committed = commit(state, [CloseInstance(by="alice", reason="unsealed")], now=0)
    said = [
        (type(event).__name__, getattr(event, "outcome", getattr(event, "closed_as", None)))
        for event in committed.events
    ]
    assert said == [
        ("CallFinished", "in_doubt"),
        ("ApprovalClosed", "voided"),
        ("CallFinished", "voided"),
        ("TurnEnded", "cancelled"),
        ("InputDropped", None),
        ("LifeCarried", None),
    ]
    after = committed.state
    assert (after.turns, after.queued, after.deliveries, after.carrying, react(after)) == (
        {},
        (),
        {},
        0,
        (),
    )
    assert commit(after, [accept("x", dedup="k")], now=0).decided[0].outcome == Duplicate(
        TurnId("t1")
    )
    assert len(list(after.in_doubt.items())) == 1


def test_input_up_to_the_bounds_is_accepted() -> None:
    """The bound is the most there may be; one more is refused, as above."""
    longest = "x" * limits.INPUT_TEXT_BYTES_MAX
    quotes = tuple(Quote("bob", "hi") for _ in range(limits.QUOTES_MAX))
    for command in (accept(longest), accept(source=MessageSource.local("alice", quotes=quotes))):
        assert PureSession().do(command).decided[-1].refusal is None


def test_a_word_at_the_very_end_of_a_prompts_time_is_a_message() -> None:
    """An answer would come too late by then, so nobody is told how to give one."""
    teller = Teller()
    teller.tell(["submit x", "go", 'calls "delete b=1"', "go"])
    pure = teller.pure
    (call,) = pure.state.turns["t1"].calls
    assert call.approval is not None
    pure.now = call.approval.asked.expires_at
    assert isinstance(pure.do(accept("yes")).decided[-1].outcome, Accepted)
    assert isinstance(pure.events()[-1], InputAccepted)


@pytest.mark.parametrize(("by", "told"), [("alice", True), ("bob", False)])
def test_an_answer_word_while_a_delegate_asks_names_the_delegates_prompt(
    by: str, told: bool
) -> None:
    """
    Case 25a: the prompt stands in another session, for the request of whoever made it and of nobody
    else.
    """
    teller = Teller()
    teller.tell(["submit x", "go", 'calls "delegate_helper task=x"', "go"])
    below = {TurnId("t1"): (ApprovalId("a-below"),)}
    outcome = (
        teller.pure.do(accept("yes", source=MessageSource.local(by), asked_below=below))
        .decided[-1]
        .outcome
    )
    assert (
        outcome == OnlyAnAnswerWord((ApprovalId("a-below"),), TurnId("t1"), by)
        if told
        else isinstance(outcome, Accepted)
    )
