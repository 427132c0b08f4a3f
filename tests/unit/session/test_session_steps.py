"""
Steps that belong to no single turn: a summary that comes late or gains nothing, deliveries, and what
recovery leaves alone.
"""

from typing import Any

import msgspec
import pytest
from proof.scenarios.teller import Teller

from holdfast.ids import TurnId
from holdfast.session.commands import (
    MarkDelivery,
    QueueDelivery,
    RecordCompaction,
    RecordTurnCompaction,
    Recover,
)
from holdfast.session.events import (
    CallFinished,
    Compacted,
    DeliveryConfirmed,
    TurnCompacted,
    TurnResumed,
)
from holdfast.session.view.messages import Usage

T1 = TurnId("t1")
BETWEEN_STEPS = (
    "submit x",
    "go",
    'calls "look at=1"',
    "go",
    'calls "look at=2"',
    "decide",
    "start c2",
    "finish c2",
)
"""Two steps are over: the request, and twice a call and its result."""
LENGTH = 5


def told(*steps: str) -> Teller:
    teller = Teller()
    teller.tell(steps)
    return teller


def of_turn(**changes: Any) -> RecordTurnCompaction:
    made = RecordTurnCompaction(
        turn=T1,
        summary="looked",
        part="own",
        messages=2,
        own_length=LENGTH,
        tokens_before=100,
        tokens_after=99,
        trigger="size",
        usage=Usage(output_tokens=7),
    )
    return msgspec.structs.replace(made, **changes)


SUMMARISED = TurnCompacted(
    turn=T1,
    summary="looked",
    part="own",
    messages=2,
    tokens_before=100,
    tokens_after=99,
    trigger="size",
    usage=Usage(output_tokens=7),
)


@pytest.mark.parametrize(
    "steps", [BETWEEN_STEPS, (*BETWEEN_STEPS, "think")], ids=["ready", "calling_model"]
)
def test_a_summary_of_a_turns_own_steps_is_taken_while_they_are_still_there(
    steps: tuple[str, ...],
) -> None:
    pure = told(*steps).pure
    assert len(pure.state.turns[T1].own) == LENGTH
    committed = pure.do(of_turn())
    assert (committed.events, committed.decided[-1].outcome) == ((SUMMARISED,), "compacted")


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        (BETWEEN_STEPS, {"turn": TurnId("t9")}),
        (BETWEEN_STEPS, {"own_length": LENGTH + 1}),
        (BETWEEN_STEPS[:5], {"own_length": 1}),
        (BETWEEN_STEPS[:-1], {"own_length": 1}),
        ((*BETWEEN_STEPS, "think", 'calls "delete at=3"', "go"), {}),
        ((*BETWEEN_STEPS, "think", "says bye"), {}),
    ],
    ids=[
        "no such turn",
        "more was summarised than there is",
        "a call is looked at",
        "a call runs",
        "parked",
        "over",
    ],
)
def test_a_summary_of_a_turns_own_steps_that_comes_too_late_is_refused_and_nothing_is_written(
    steps: tuple[str, ...], changes: dict[str, Any]
) -> None:
    committed = told(*steps).pure.do(of_turn(**changes))
    refusal = committed.decided[-1].refusal
    assert refusal is not None
    assert (refusal.code, committed.events) == ("superseded", ())


OF_ALL = RecordCompaction(
    summary="looked", turns=1, compactions=0, tokens_before=100, tokens_after=99, trigger="manual"
)
OVER = ("submit x", "go", "says bye")


@pytest.mark.parametrize(
    ("steps", "wish", "outcome"),
    [
        (BETWEEN_STEPS, of_turn(messages=0), "nothing to do"),
        (BETWEEN_STEPS, of_turn(messages=1, part="base"), "compacted"),
        (BETWEEN_STEPS, of_turn(tokens_after=100), "nothing gained"),
        (BETWEEN_STEPS, of_turn(tokens_after=101), "nothing gained"),
        (OVER, msgspec.structs.replace(OF_ALL, turns=0), "nothing to do"),
        (OVER, OF_ALL, "compacted"),
        (OVER, msgspec.structs.replace(OF_ALL, tokens_after=100), "nothing gained"),
    ],
)
def test_a_summary_is_written_only_if_tokens_really_fall(
    steps: tuple[str, ...], wish: RecordCompaction | RecordTurnCompaction, outcome: str
) -> None:
    """One that is as large as what it would replace gains nothing, and that is a success."""
    committed = told(*steps).pure.do(wish)
    assert committed.decided[-1].refusal is None
    assert committed.decided[-1].outcome == outcome
    assert [type(each) for each in committed.events] == (
        [TurnCompacted if steps is BETWEEN_STEPS else Compacted] if outcome == "compacted" else []
    )


def test_the_end_of_a_delivery_is_recorded_once_with_its_receipt() -> None:
    pure = told(*OVER).pure
    delivery = (
        pure.do(QueueDelivery(turn=T1, channel="slack", part="1", kind="reply", text="bye"))
        .decided[-1]
        .outcome
    )
    confirmed = MarkDelivery(delivery=delivery, became="confirmed", detail="ts-1")
    assert pure.do(confirmed).events == (DeliveryConfirmed(delivery=delivery, receipt="ts-1"),)
    assert pure.do(confirmed).events == ()
    assert pure.do(MarkDelivery(delivery=delivery, became="failed")).events == ()


def test_recovery_does_not_put_calls_of_its_own_driver_in_doubt() -> None:
    """T2: only what an earlier driver left in flight."""
    teller = told(
        "submit x", "go", 'calls "tidy at=1" "tidy at=2"', "decide", "start c1", "crash", "start c2"
    )
    pure = teller.pure
    first, second = (call.call for call in pure.state.turns[T1].calls)
    resumed, finished = pure.do(Recover(epoch=pure.epoch)).events
    assert resumed == TurnResumed(turn=T1, epoch=pure.epoch, after="crash")
    assert isinstance(finished, CallFinished)
    assert (finished.call, finished.outcome) == (first, "in_doubt")
    assert pure.state.open_call(T1, second) is not None
