"""The lettered cases are complete and exclusive, and each does what its row says."""

from itertools import product

import pytest
from proof.scenarios.teller import Teller

from holdfast.errors import InvariantBroken
from holdfast.session.decide.lifecycle import _by_case
from holdfast.session.recovery import CASES, Findings, RecoveryAction, case_for, findings_of
from holdfast.session.state import Turn

COMBINATIONS = [Findings(*bits) for bits in product([True, False], repeat=len(Findings._fields))]


@pytest.mark.parametrize("findings", COMBINATIONS, ids=str)
def test_every_combination_of_findings_matches_exactly_one_case(findings: Findings) -> None:
    matching = [case for case in CASES if case.matches(findings)]
    assert matching == [case_for(findings)]


def test_letters_are_used_once_and_every_action_has_a_case() -> None:
    assert len({case.letter for case in CASES}) == len(CASES)
    assert {case.action for case in CASES} == set(RecoveryAction)
    assert all(case.sentence for case in CASES)


def turn_after(*steps: str) -> tuple[Turn, int]:
    teller = Teller()
    teller.tell(steps)
    (turn,) = teller.pure.state.turns.values()
    return turn, teller.pure.epoch


ASKED = ("submit x", "go")
TIDY = (*ASKED, 'calls "tidy place=a" "look at=a"', "decide", "start c1")


@pytest.mark.parametrize(
    ("steps", "findings", "letter"),
    [
        (ASKED, (True, False, False, False, False), "B"),
        ((*ASKED, 'calls "look at=a"'), (False, False, False, False, False), "A"),
        (TIDY, (False, True, False, False, False), "C"),
        ((*TIDY, "start c2"), (False, True, True, False, False), "C"),
        (
            (*ASKED, 'calls "look at=a"', "decide", "start c1"),
            (False, False, True, False, False),
            "D",
        ),
        ((*TIDY, "cancel"), (False, True, False, True, False), "E"),
    ],
)
def test_findings_are_what_was_left_in_flight(
    steps: tuple[str, ...], findings: tuple[bool, ...], letter: str
) -> None:
    turn, epoch = turn_after(*steps)
    assert findings_of(turn, epoch + 1) == Findings(*findings)
    assert case_for(Findings(*findings)).letter == letter


@pytest.mark.parametrize("steps", [ASKED, TIDY], ids=["a model call", "a tool"])
def test_recovery_ignores_work_that_its_own_epoch_started(
    steps: tuple[str, ...],
) -> None:
    turn, epoch = turn_after(*steps)
    assert findings_of(turn, epoch) == Findings(
        model_out=False, once_started=False, again_started=False, cancelled=False, crash_loop=False
    )


@pytest.mark.parametrize("action", [RecoveryAction.IMPOSSIBLE, RecoveryAction.LOSE_MODEL_CALL])
def test_an_impossible_combination_is_a_bug_and_stops(action: RecoveryAction) -> None:
    """A turn with no model call out has none to lose."""
    turn, epoch = turn_after("submit x", "begin")
    with pytest.raises(InvariantBroken):
        _by_case(turn, action, epoch, now=0)
