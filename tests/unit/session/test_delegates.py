"""A delegate's end changes its parent's state, and a snapshot keeps both."""

import pytest
from proof.scenarios.teller import Teller

from holdfast.errors import BrokenChain
from holdfast.ids import CallId, InstanceId, TurnId
from holdfast.session.commands import ParkTurn, ReportDelegate
from holdfast.session.events import DelegateEnded, DelegateReported, TurnEnded
from holdfast.session.evolve.fold import fold
from holdfast.session.react import react
from holdfast.session.snapshots.session import decode_state, encode_state
from holdfast.session.view.messages import Usage

STARTED = ("submit x", "go", 'calls "delegate_helper task=look"', "decide", "start c1")


def told(*steps: str) -> Teller:
    teller = Teller()
    teller.tell(steps)
    return teller


def test_the_usage_of_a_delegate_counts_for_its_parents_turn() -> None:
    """Tokens and prompts: a turn does not escape its bounds by handing work on."""
    teller = told("policy tokens=100", *STARTED, "park")
    (call,) = teller.pure.state.delegates
    teller.pure.report(call, usage=Usage(input_tokens=90, output_tokens=20), prompts=3)
    assert teller.pure.state.turns[TurnId("t1")].prompts == 3
    teller.tell(["go"])
    ended = teller.pure.events()[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.code) == ("failed", "turn_tokens_max")


def test_a_turn_is_not_parked_on_a_delegate_that_may_not_exist() -> None:
    """The process that parks must know of the new session: nobody else would see to it."""
    pure = told(*STARTED).pure
    assert pure.do(ParkTurn(turn=TurnId("t1"))).events == ()
    (call,) = pure.state.delegates
    assert [
        type(each).__name__
        for each in pure.do(ParkTurn(turn=TurnId("t1"), existing=(call,))).events
    ] == ["TurnParked"]
    assert pure.state.delegates[call].exists


@pytest.mark.parametrize(
    "steps",
    [(*STARTED, "park"), ("as-delegate task", "begin", "think", "says done")],
    ids=["parent", "delegate"],
)
def test_a_snapshot_keeps_all_of_it(steps: tuple[str, ...]) -> None:
    state = told(*steps).pure.state
    kept = decode_state(encode_state(state))
    assert kept == state
    assert kept is not None
    assert react(kept) == react(state)


@pytest.mark.parametrize(
    "event",
    [
        DelegateEnded(turn=TurnId("t1"), call=CallId("c-nosuch"), outcome="completed"),
        DelegateReported(turn=TurnId("t1"), became="reported"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_record_that_speaks_of_no_delegate_is_not_believed(
    event: DelegateEnded | DelegateReported,
) -> None:
    """T4."""
    with pytest.raises(BrokenChain):
        fold(told(*STARTED).pure.state, [(77, 1, event)])


def test_a_delegates_end_without_the_result_of_its_call_is_not_believed() -> None:
    pure = told(*STARTED, "park").pure
    (call,) = pure.state.delegates
    with pytest.raises(BrokenChain):
        fold(
            pure.state, [(77, 1, DelegateEnded(turn=TurnId("t1"), call=call, outcome="completed"))]
        )


def test_only_the_started_instance_of_a_delegate_may_report() -> None:
    """P7's rule for delegates: bound to the instance, not to a name that can be reused."""
    pure = told(*STARTED, "park").pure
    (call,) = pure.state.delegates
    session = pure.state.delegates[call].session
    other = ReportDelegate(
        call=call,
        session=session,
        instance=InstanceId("another instance"),
        ended="completed",
        outcome="ok",
        text="it is done",
    )
    assert pure.do(other).events == ()
    assert pure.report(call).decided[-1].outcome == "reported"
