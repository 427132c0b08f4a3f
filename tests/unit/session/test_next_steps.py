"""
A driver's commit ends with the bookkeeping that `react` names, and with nothing that needs the
outside world.
"""

from pathlib import Path

import msgspec
import pytest
from proof.scenarios.pure_session import START_MS, PureSession
from proof.scenarios.teller import Teller

from holdfast.errors import InvariantBroken
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import Expire, FinishCall, SessionCommand, StartTurn, TakeFailure
from holdfast.session.decide.commit import commit
from holdfast.session.next_steps import DriverFacts, bookkeeping_owed
from holdfast.session.state import SessionState

STORIES = sorted((Path(__file__).parents[2] / "proof/scenarios").rglob("*.txt"))
DRIVER = DriverFacts(epoch=1, policy=Policy())
START_TURN = StartTurn(epoch=1)


def told(*steps: str) -> PureSession:
    teller = Teller()
    teller.tell(steps)
    return teller.pure


def names(
    state: SessionState, *commands: SessionCommand, driver: DriverFacts | None = DRIVER
) -> list[str]:
    return [
        type(each).__name__ for each in commit(state, commands, now=START_MS, driver=driver).events
    ]


def test_a_turn_begins_together_with_its_first_model_call() -> None:
    state = told('submit "hello"').state
    assert names(state, START_TURN) == ["TurnStarted", "ModelCallStarted"]
    assert names(state, START_TURN, driver=None) == ["TurnStarted"]


def test_a_turn_that_must_ask_memory_first_waits_for_it_once() -> None:
    state = told('submit "hello"').state
    recalling = msgspec.structs.replace(DRIVER, recalls=True)
    recalled = msgspec.structs.replace(recalling, recalled=frozenset({"t1"}))
    assert names(state, START_TURN, driver=recalling) == ["TurnStarted"]
    assert names(state, START_TURN, driver=recalled) == ["TurnStarted", "ModelCallStarted"]


def test_a_failed_model_call_is_not_repeated_in_the_same_commit() -> None:
    """The next attempt waits first, and an overflow needs a summary."""
    state = told('submit "hello"', "go").state
    failure = TakeFailure(turn="t1", number=1, kind="rate_limit", message="slow down", final=False)
    assert names(state, failure) == ["ModelCallFailed"]


def test_the_last_outcome_of_a_batch_parks_the_turn_or_calls_the_model() -> None:
    waiting = told(
        'submit "x"', "go", 'calls "look at=1" "delete branch=old"', "decide", "start c1"
    )
    call = waiting.state.turns["t1"].calls[0]
    finish = FinishCall(turn="t1", call=call.call, run=call.run, outcome="ok", text="done")
    assert names(waiting.state, finish) == ["CallFinished", "TurnParked"]
    alone = told('submit "x"', "go", 'calls "look at=1"', "decide", "start c1")
    call = alone.state.turns["t1"].calls[0]
    finish = FinishCall(turn="t1", call=call.call, run=call.run, outcome="ok", text="done")
    assert names(alone.state, finish) == ["CallFinished", "ModelCallStarted"]


def test_a_commit_without_events_adds_nothing() -> None:
    """
    A look at the head, and a command that is refused, leave the bookkeeping to the driver's own
    step.
    """
    state = told('submit "x"', "go", 'calls "delete branch=old"', "decide").state
    assert bookkeeping_owed(state, DRIVER) != []
    assert names(state) == []
    assert names(state, Expire()) == []


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_bookkeeping_settles_in_every_state_of_every_story(story: Path) -> None:
    teller = Teller()
    for block in story.read_text().split("\n\n"):
        steps, separator, _ = block.partition("\n----")
        if not separator:
            continue
        teller.tell(steps.split("\n"))
        state = teller.pure.state
        settled = commit(
            state, bookkeeping_owed(state, DRIVER), now=teller.pure.now, driver=DRIVER
        ).state
        assert commit(settled, bookkeeping_owed(settled, DRIVER), now=teller.pure.now).events == ()


def test_the_result_of_a_command_is_read_by_the_command() -> None:
    state = told('submit "hello"').state
    first, second = Expire(), StartTurn(epoch=1)
    committed = commit(state, [first, second], now=START_MS)
    assert committed.of(second) == "t1"
    with pytest.raises(InvariantBroken):
        committed.of(StartTurn(epoch=1))
