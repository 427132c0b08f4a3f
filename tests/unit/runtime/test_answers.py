"""Replies to the approver: whether somebody has to go on with it."""

from collections.abc import Sequence

import pytest
from proof.scenarios.teller import Teller

from holdfast.ids import TurnId
from holdfast.runtime.verbs.answer import _waits_for_a_driver

T1 = TurnId("t1")
ASKED = ("submit x", "go", 'calls "delete b=1" "tidy b=2"', "decide")


@pytest.mark.parametrize(
    ("steps", "waits"),
    [
        (
            (*ASKED, "answer a1 approve_once"),
            True,
        ),  # a driver is at it, and has not come to this call yet
        ((*ASKED, "start c2", "finish c2", "park", "answer a1 approve_once"), True),
        (
            (*ASKED, "start c2", "finish c2", "park", "answer a1 deny"),
            True,
        ),  # there is nothing to run, and the turn has to go on all the same
        ((*ASKED, "answer a1 approve_once", "start c1"), False),
        ((*ASKED, "answer a1 deny"), False),
        (
            (
                *ASKED,
                "answer a1 approve_once",
                "start c1",
                "finish c1",
                "start c2",
                "finish c2",
                "think",
                'calls "delete b=3"',
                "go",
            ),
            False,
        ),
        ((*ASKED, "answer a1 deny", "start c2", "finish c2", "think", "says bye"), False),
    ],
    ids=[
        "running",
        "parked",
        "denied while parked",
        "started",
        "denied while running",
        "parked on a later call",
        "over",
    ],
)
def test_an_answer_waits_for_a_driver_until_somebody_has_gone_on_with_it(
    steps: Sequence[str], waits: bool
) -> None:
    teller = Teller()
    teller.tell(steps[:4])
    first = teller.pure.state.turns[T1].calls[0].call
    teller.tell(steps[4:])
    state = teller.pure.state
    turn, call = state.turns.get(T1), state.open_call(T1, first)
    assert (turn is not None and call is not None and _waits_for_a_driver(turn, call)) is waits
