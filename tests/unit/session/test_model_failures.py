"""Decide the next try of a failed model call: pure, by a clock that the test names."""

import msgspec
import pytest
from proof.scenarios.pure_session import START_MS
from proof.scenarios.teller import Teller

from holdfast.ids import TurnId
from holdfast.session.commands import TakeFailure
from holdfast.session.decide.model_failures import next_try, retry_wait_seconds, take_failure
from holdfast.session.events import ModelCallFailed, TurnEnded
from holdfast.session.state import Turn

FAILURE = TakeFailure(
    turn=TurnId("t1"), number=1, kind="server", message="away", final=False, first_wait_seconds=0.5
)


def asked() -> Turn:
    teller = Teller()
    teller.tell(('submit "hello"', "go"))
    return teller.pure.state.turns[TurnId("t1")]


def tried(failures: int = 0, **more: object) -> int | None:
    """Return the next try in milliseconds after the first failure."""
    turn = msgspec.structs.replace(asked(), model_failures=failures)
    failure = msgspec.structs.replace(FAILURE, **more)
    return next_try(turn, failure, since=START_MS, now=START_MS).at


@pytest.mark.parametrize("kind", ["server", "rate_limit", "timeout", "unavailable"])
def test_a_provider_that_is_away_is_tried_many_times(kind: str) -> None:
    assert tried(10_000, kind=kind) == START_MS + 60_000


@pytest.mark.parametrize("kind", ["auth", "refused", "unavailable", "malformed", "server"])
def test_a_failure_that_waiting_cannot_mend_is_not_tried_again(kind: str) -> None:
    assert tried(kind=kind, final=True, retry_after_seconds=1.0) is None


def test_an_answer_that_cannot_be_read_is_tried_three_times() -> None:
    tries = [tried(failures, kind="malformed", retry_after_seconds=1e300) for failures in range(3)]
    assert tries == [START_MS + 500, START_MS + 1000, None]


def test_the_bound_is_exact() -> None:
    assert tried(retry_after_seconds=900.0) == START_MS + 900_000
    assert tried(retry_after_seconds=900.001) is None


def test_a_home_that_does_not_wait_tries_three_times() -> None:
    assert [tried(failures, first_wait_seconds=0.0) for failures in range(3)] == [
        START_MS,
        START_MS,
        None,
    ]


def test_a_clock_that_was_set_back_makes_no_wait_longer() -> None:
    turn = msgspec.structs.replace(asked(), retry_at=START_MS, retry_wait_ms=2000)
    waits = [
        retry_wait_seconds(turn, now=now, retry_for_seconds=900)
        for now in (START_MS + 1, START_MS - 1500, START_MS - 10**9)
    ]
    assert waits == [0.0, 1.5, 2.0]


def test_a_lower_bound_shortens_a_wait_that_began_before() -> None:
    turn = msgspec.structs.replace(asked(), retry_at=START_MS + 2000, retry_wait_ms=2000)
    assert retry_wait_seconds(turn, now=START_MS, retry_for_seconds=1) == 1.0


def test_the_waits_end_at_the_bound_although_the_time_stands_still() -> None:
    """The session's time stands still while the clock is behind it."""
    teller = Teller()
    pure = teller.pure
    teller.tell(('submit "hello"', "go"))
    while (turn := pure.state.turns.get(TurnId("t1"))) is not None:
        assert turn.model_calls < 100
        pure.do(msgspec.structs.replace(FAILURE, number=turn.model_calls))
        teller.tell(("go",))
    failed = [each for each in pure.events() if isinstance(each, ModelCallFailed)]
    assert {each.since for each in failed} == {pure.now}
    assert 900_000 - 60_000 < sum(each.wait_ms or 0 for each in failed) <= 900_000
    assert failed[-1].final


def test_an_answer_begins_a_new_row_of_waits() -> None:
    teller = Teller()
    teller.tell(('submit "hello"', "go", "fails server wait=600", "go", "calls look"))
    turn = teller.pure.state.turns[TurnId("t1")]
    assert (turn.retry_wait_ms, turn.waited_ms, turn.failing_since) == (0, 0, 0)


def test_a_first_failure_that_is_still_to_come_does_not_move_the_bound() -> None:
    """The clock was days ahead at the first failure, and is right again."""
    teller = Teller()
    teller.tell(('submit "hello"', "go"))
    state = teller.pure.state
    turn = msgspec.structs.replace(
        state.turns[TurnId("t1")], failing_since=START_MS + 8 * 86_400_000
    )
    state = msgspec.structs.replace(state, turns={turn.id: turn})
    (failed,) = take_failure(state, FAILURE, START_MS).events
    assert isinstance(failed, ModelCallFailed)
    assert (failed.since, failed.retry_at) == (START_MS, START_MS + 500)


def test_the_hint_outlives_a_crash_between_the_failure_and_the_end() -> None:
    teller = Teller()
    teller.tell(
        (
            'submit "hello"',
            "go",
            'fails auth final=yes hint="check OPENAI_API_KEY"',
            "crash losing=1",
            "recover",
            "go",
        )
    )
    events = teller.pure.events()
    assert [each.hint for each in events if isinstance(each, ModelCallFailed | TurnEnded)] == [
        "check OPENAI_API_KEY"
    ] * 2
