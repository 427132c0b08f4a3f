"""A driver's wishes that come at the wrong time change nothing, and bounds name themselves."""

import msgspec
import pytest
from proof.scenarios.pure_session import INSTANCE
from proof.scenarios.teller import Teller

from holdfast import limits
from holdfast.errors import InvariantBroken
from holdfast.ids import CallId, TurnId, approval_id
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import (
    DecideCalls,
    EndTurn,
    FailTurn,
    FinishCall,
    KeepPartialAnswer,
    ParkTurn,
    ProposeCalls,
    ResumeTurn,
    StartModelCall,
    StartTool,
    StartTurn,
    TakeAnswer,
    TakeFailure,
)
from holdfast.session.events import (
    ApprovalRequested,
    CallFinished,
    InputAccepted,
    ModelAnswerDropped,
    ModelCallStarted,
    TurnEnded,
)
from holdfast.session.state import CallStatus, Phase
from holdfast.session.view.messages import ModelAnswer, ProposedCall, Usage

T1 = TurnId("t1")
ASKED = ("submit x", "go")
PLACES = {
    "idle": (),
    "ready": ("submit x", "begin"),
    "calling_model": ASKED,
    "deciding": (*ASKED, 'calls "delete b=1" "tidy b=2"'),
    "running": (*ASKED, 'calls "delete b=1" "tidy b=2"', "decide"),
    "parked": (*ASKED, 'calls "delete b=1"', "go"),
    "cancelling": (*ASKED, 'calls "delete b=1" "tidy b=2"', "decide", "start c2", "cancel"),
    "ended": (*ASKED, "says bye"),
}
WISHES = {
    "StartModelCall": (StartModelCall(turn=T1, epoch=1, policy=Policy()), {"ready"}),
    "DecideCalls": (DecideCalls(turn=T1, bound=(), policy=Policy()), set()),
    "ProposeCalls": (ProposeCalls(turn=T1, calls=(), text="", policy=Policy()), set()),
    "ParkTurn": (ParkTurn(turn=T1), set()),
    "ResumeTurn": (ResumeTurn(turn=T1, epoch=1), set()),
    "EndTurn": (EndTurn(turn=T1, policy=Policy()), set()),
    "StartTurn": (StartTurn(epoch=1), set()),
    "FinishCall": (FinishCall(turn=T1, call="c-none", run=1, outcome="ok", text=""), set()),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("wish", WISHES)
def test_a_wish_at_the_wrong_time_changes_nothing(wish: str, place: str) -> None:
    """Two drivers' steps may cross: whatever no longer fits is not written, and is not an error."""
    command, fits = WISHES[wish]
    teller = Teller()
    teller.tell(PLACES[place])
    before = list(teller.pure.records)
    teller.pure.do(command)
    assert (len(teller.pure.records) > len(before)) is (place in fits)


def test_a_call_that_is_too_long_to_show_is_denied_without_a_prompt() -> None:
    """P4."""
    teller = Teller()
    teller.tell([*ASKED, f'calls "delete b={"x" * 20_000}"', "decide"])
    (call,) = teller.pure.state.turns[T1].calls
    assert (call.outcome, call.code, call.approval) == ("denied", "too_long", None)


@pytest.mark.parametrize(
    ("bound", "usage", "code"),
    [
        ({"turn_tokens_max": 100}, Usage(input_tokens=90, output_tokens=10), "turn_tokens_max"),
        ({"turn_cost_microusd_max": 100}, Usage(cost_microusd=100), "turn_cost_max"),
        (
            {"turn_tokens_max": 101, "turn_cost_microusd_max": 101},
            Usage(input_tokens=90, output_tokens=10, cost_microusd=100),
            None,
        ),
    ],
)
def test_tokens_and_cost_end_the_turn_and_name_it(
    bound: dict[str, int], usage: Usage, code: str | None
) -> None:
    teller = Teller()
    teller.tell(ASKED)
    pure = teller.pure
    pure.policy = msgspec.structs.replace(pure.policy, **bound)
    pure.do(
        TakeAnswer(
            turn=T1,
            number=1,
            answer=ModelAnswer(text="", calls=(ProposedCall("look", "{}"),), usage=usage),
            policy=pure.policy,
        )
    )
    teller.tell(["go"])
    assert getattr(pure.events()[-1], "code", None) == code


@pytest.mark.parametrize(
    "steps",
    [
        (*ASKED, 'calls "delete b=1"'),
        (*ASKED, 'calls "delete b=1" "tidy b=2"', "decide"),
        (*ASKED, 'calls "delete b=1" "tidy b=2"', "decide", "answer a1 deny"),
        (*ASKED, 'calls "delete b=1"', "go"),
        (*ASKED, 'calls "delete b=1"', "go", "answer a1 approve_once"),
        (*ASKED, 'calls "delete b=1"', "go", "answer a1 approve_once", "resume t1", "start c1"),
        (*ASKED, 'calls "look b=1"', "decide", "start c1"),
        (*ASKED, 'calls "tidy b=1"', "decide", "start c1", "crash"),
    ],
    ids=[
        "proposed",
        "waiting",
        "finished",
        "parked",
        "answered but parked",
        "started",
        "started, and may be repeated",
        "started by one who died",
    ],
)
def test_a_call_starts_only_when_it_may(steps: tuple[str, ...]) -> None:
    """T1, T2: not before it is allowed, not while the turn is parked, not twice."""
    teller = Teller()
    teller.tell(steps)
    before = len(teller.pure.records)
    assert teller.tell(["start c1"]) == ["c1 does not start"]
    assert len(teller.pure.records) == before


@pytest.mark.parametrize(
    "steps",
    [
        (*ASKED, 'calls "delete b=1"', "go", "submit y by=bob", "begin", "answer a1 approve_once"),
        (*ASKED, 'calls "delete b=1"', "go", "answer a1 deny", "crash losing=1"),
        (*ASKED, 'calls "delete b=1"', "go", "submit rename-it", "crash losing=3"),
    ],
    ids=["another runs", "a denial without its result", "superseded"],
)
def test_a_parked_turn_is_not_resumed_too_early(steps: tuple[str, ...]) -> None:
    """T4, T6: at most one turn runs, and what was decided is said to the end first."""
    teller = Teller()
    teller.tell(steps)
    before = len(teller.pure.records)
    teller.tell(["resume t1"])
    assert len(teller.pure.records) == before


@pytest.mark.parametrize("first", ["submit rename-it", "cancel"])
def test_expiry_does_not_overtake_what_was_journalled_before_it(first: str) -> None:
    """
    Between answer, supersede, cancel and expiry the first journalled wins, even if a crash cut its
    consequences off.
    """
    teller = Teller()
    teller.tell([*ASKED, 'calls "delete b=1"', "go", first, "crash losing=3", "wait 8d"])
    assert teller.tell(["expire"]) == []


APPROVED = (*ASKED, 'calls "charge amount=5"', "go", "answer a1 approve_once", "resume t1")


@pytest.mark.parametrize(
    "meanwhile",
    [
        "policy personal.charge=deny",
        "policy personal.charge=ask:bob:only",
        "world changes=charge",
        "world identity=9:9",
        "world lacks=charge",
    ],
)
def test_a_started_call_that_must_not_repeat_is_in_doubt_after_a_crash(meanwhile: str) -> None:
    """
    T2, T6, A5: it ran before the crash, so nobody may say of it that it was not run, whatever stops
    it from being run again.
    """
    teller = Teller()
    teller.tell([*APPROVED, "start c1", "crash", "recover", meanwhile, "start c1"])
    last = teller.pure.events()[-1]
    assert isinstance(last, CallFinished)
    assert (last.outcome, last.text[:39]) == ("in_doubt", "In doubt: it was started before and cou")
    teller = Teller()
    teller.tell([*APPROVED, meanwhile, "start c1"])
    last = teller.pure.events()[-1]
    assert isinstance(last, CallFinished)
    assert last.outcome == "voided", "what never began is not in doubt"


def test_the_bound_of_delegates_does_not_bound_other_tools() -> None:
    """As deep as delegates go, one may still look and do the work itself."""
    teller = Teller()
    teller.tell(
        [
            'as-delegate "go deeper" path=ops,a,b,helper',
            "begin",
            "think",
            'calls "delegate_helper task=x" "look at=x"',
            "decide",
        ]
    )
    assert [call.code for call in teller.pure.state.turns[T1].calls] == ["delegate_depth", None]
    teller.tell(["run c2"])
    assert teller.pure.state.turns[T1].calls[1].outcome == "ok"


def test_a_look_without_a_problem_has_found_everything() -> None:
    """An adapter that forgot something is a bug of ours: it stops, and decides nothing."""
    teller = Teller()
    teller.tell(PLACES["deciding"])
    pure = teller.pure
    (whole, *_) = pure.bound(T1)
    before = len(pure.records)
    for forgotten in ("definition", "arguments", "binding"):
        bound = msgspec.structs.replace(whole, **{forgotten: None})
        with pytest.raises(InvariantBroken):
            pure.do(DecideCalls(turn=T1, bound=(bound,), policy=Policy()))
    assert len(pure.records) == before


def test_a_started_call_asks_nobody_after_a_crash() -> None:
    """
    T2, A5: policy asks by now; whoever were asked would approve something that has perhaps
    happened, so it is in doubt.
    """
    teller = Teller()
    teller.tell(
        [
            "policy personal.charge=auto",
            *ASKED,
            'calls "charge amount=5"',
            "decide",
            "start c1",
            "crash",
            "recover",
            "policy personal.charge=ask",
        ]
    )
    teller.tell(["start c1"])
    last = teller.pure.events()[-1]
    assert isinstance(last, CallFinished)
    assert (last.outcome, last.code) == ("in_doubt", "in_doubt")
    assert teller.pure.state.approvals == {}


def test_an_equal_call_is_equal_however_it_is_spelled() -> None:
    """
    The third of the same call in a row is corrected, though the model wrote its arguments in
    another order.
    """
    teller = Teller()
    teller.tell(ASKED)
    for spelled in ('{"a":1,"b":2}', '{"b":2,"a":1}'):
        teller.tell([f"calls 'look {spelled}'", "go"])
    teller.tell(["""calls 'look {"b":2, "a":1}'""", "decide"])
    last = teller.pure.events()[-1]
    assert isinstance(last, CallFinished)
    assert (last.outcome, last.code) == ("error", "repeated")


def test_a_call_is_decided_once_however_often_it_is_looked_at() -> None:
    """
    Two drivers' looks may cross: a second look at one call, in the same command or a later one, and
    a look at none of ours, decide nothing.
    """
    teller = Teller()
    teller.tell([*ASKED, 'calls "delete b=1" "delete b=2"'])
    pure = teller.pure
    first, second = pure.bound(T1)
    stranger = msgspec.structs.replace(first, call=CallId("c-none"))
    for bound, events in (((first, stranger, first), 1), ((first,), 0), ((first, second), 1)):
        before = len(pure.records)
        pure.do(DecideCalls(turn=T1, bound=bound, policy=Policy()))
        assert len(pure.records) == before + events
    assert len(pure.state.approvals) == 2


@pytest.mark.parametrize(
    ("meanwhile", "code"),
    [((), "turn_tool_calls_max"), (("start c1",), None)],
    ids=["none started", "one started"],
)
def test_a_bound_that_was_lowered_ends_no_turn_whose_call_has_begun(
    meanwhile: tuple[str, ...], code: str | None
) -> None:
    """
    T6: that one ends with its outcome first; with none begun, the turn ends and names the bound.
    """
    teller = Teller()
    teller.tell(
        [
            *ASKED,
            'calls "tidy b=1" "delete b=2"',
            "decide",
            *meanwhile,
            """answer a1 edit 'arguments={"b":"3"}'""",
            "policy tool_calls=1",
        ]
    )
    teller.tell(["decide"])
    last = teller.pure.events()[-1]
    assert isinstance(last, ApprovalRequested if code is None else TurnEnded)
    assert getattr(last, "code", None) == code


def test_each_prompt_of_a_call_has_an_id_of_its_own() -> None:
    """P7: counted from one, and the same however often the records are read."""
    teller = Teller()
    teller.tell(
        [*ASKED, 'calls "delete b=1"', "go", """answer a1 edit 'arguments={"b":"2"}'""", "go"]
    )
    asked = [event for event in teller.pure.events() if isinstance(event, ApprovalRequested)]
    assert [each.approval for each in asked] == [
        approval_id(INSTANCE, each.call, number) for number, each in enumerate(asked, 1)
    ]
    assert len(asked) == 2


def test_a_delegate_is_not_a_tool_that_could_be_started() -> None:
    """Its call is handed on with a session of its own, or not at all."""
    teller = Teller()
    teller.tell([*ASKED, 'calls "delegate_helper task=x"', "decide"])
    pure = teller.pure
    call = pure.state.turns[T1].calls[0].call
    (bound,) = pure.bound(T1, call)
    with pytest.raises(InvariantBroken):
        pure.do(StartTool(turn=T1, bound=bound, policy=Policy(), grants=(), epoch=pure.epoch))
    assert pure.start(T1, call) == 1


def test_a_failure_of_a_model_call_that_nobody_waits_for_ends_no_turn() -> None:
    """T4: it is journalled as dropped, and the call that is out goes on."""
    teller = Teller()
    teller.tell(ASKED)
    pure = teller.pure
    pure.do(TakeFailure(turn=T1, number=7, kind="server", message="late", final=True))
    assert isinstance(pure.events()[-1], ModelAnswerDropped)
    assert pure.state.turns[T1].phase is Phase.CALLING_MODEL
    pure.do(TakeFailure(turn=TurnId("t9"), number=1, kind="server", message="of none", final=True))
    assert isinstance(pure.events()[-1], ModelAnswerDropped)


def test_the_text_of_a_stopped_answer_is_kept_and_no_later_turn_sees_it() -> None:
    teller = Teller()
    teller.tell([*ASKED, "cancel"])
    pure = teller.pure
    before = pure.state.view
    pure.do(KeepPartialAnswer(turn=T1, number=1, text="First I"))
    dropped = pure.events()[-1]
    assert isinstance(dropped, ModelAnswerDropped)
    assert dropped.text == "First I"
    assert pure.state.view == before


def test_a_model_call_that_still_runs_keeps_no_part_of_its_answer() -> None:
    teller = Teller()
    teller.tell(ASKED)
    assert teller.pure.do(KeepPartialAnswer(turn=T1, number=1, text="First I")).events == ()


def test_an_answer_that_was_replaced_leaves_no_text() -> None:
    teller = Teller()
    teller.tell(ASKED)
    teller.pure.do(KeepPartialAnswer(turn=T1, number=7, text="of an older call"))
    dropped = teller.pure.events()[-1]
    assert isinstance(dropped, ModelAnswerDropped)
    assert dropped.text == ""


@pytest.mark.parametrize(
    ("step", "outcome", "code", "reply"),
    [
        ("fails server final=yes", "failed", "server", None),
        ('says "all done"', "completed", None, "all done"),
    ],
    ids=["failed", "answered"],
)
def test_the_end_of_a_turn_that_a_crash_cut_off_is_said_after_it(
    step: str, outcome: str, code: str | None, reply: str | None
) -> None:
    """T7: the model's last word was kept, and the turn's end was not; nothing is asked again."""
    teller = Teller()
    teller.tell([*ASKED, step, "crash losing=1", "recover", "go"])
    last = teller.pure.events()[-1]
    assert isinstance(last, TurnEnded)
    assert (last.outcome, last.code, last.reply) == (outcome, code, reply)
    assert sum(isinstance(event, ModelCallStarted) for event in teller.pure.events()) == 1


@pytest.mark.parametrize(
    "steps",
    [("proposes 'delete b=1'",), ("proposes 'delete b=1'", "decide")],
    ids=["deciding", "waiting"],
)
def test_a_foreign_loop_ends_no_turn_whose_calls_are_open(steps: tuple[str, ...]) -> None:
    """T5: each call has its result before the turn ends."""
    teller = Teller()
    teller.tell(["submit x loop=foreign", "go", *steps])
    before = len(teller.pure.records)
    teller.tell(["end reply=done"])
    assert len(teller.pure.records) == before


def test_a_turn_that_is_not_there_can_not_fail() -> None:
    teller = Teller()
    teller.tell(ASKED)
    before = len(teller.pure.records)
    teller.pure.do(FailTurn(turn=TurnId("t9"), code="x", message="x"))
    assert len(teller.pure.records) == before


def test_calls_up_to_the_bound_are_made() -> None:
    """The bound is the most there may be, at once and in a turn; one more ends the turn."""
    teller = Teller()
    many = limits.CALLS_PER_BATCH_MAX
    teller.tell(
        [
            *ASKED,
            f"policy tool_calls={many}",
            "calls " + " ".join(f'"look b={number}"' for number in range(many)),
            "decide",
        ]
    )
    assert {call.status for call in teller.pure.state.turns[T1].calls} == {CallStatus.ALLOWED}


@pytest.mark.parametrize("first", ["cancel", "submit rename-it"])
@pytest.mark.parametrize("text", ["yes", "something-else"])
def test_a_prompt_that_is_over_is_nothing_to_answer_or_to_replace(first: str, text: str) -> None:
    """
    Case 25a, T6: the crash cut its closing off; a word is a message like any other, and takes
    nobody's place a second time.
    """
    teller = Teller()
    teller.tell([*ASKED, 'calls "delete b=1"', "go", first, "crash losing=3"])
    before = teller.pure.state.turns[T1]
    assert before.cancelled_by is not None or before.superseded_by is not None
    teller.tell([f"submit {text}"])
    assert isinstance(teller.pure.events()[-1], InputAccepted)
    after = teller.pure.state.turns[T1]
    assert (after.cancelled_by, after.superseded_by) == (before.cancelled_by, before.superseded_by)


@pytest.mark.parametrize(
    ("path", "code"),
    [("ops,helper", None), ("ops,a,helper", None), ("ops,a,b,helper", "delegate_depth")],
)
def test_delegates_go_three_deep(path: str, code: str | None) -> None:
    teller = Teller()
    teller.tell(
        [
            f'as-delegate "go deeper" path={path}',
            "begin",
            "think",
            'calls "delegate_helper task=x"',
            "decide",
        ]
    )
    assert teller.pure.state.turns[T1].calls[0].code == code
