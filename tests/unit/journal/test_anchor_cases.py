"""The table of (slots, journal end): complete, without overlap, and what each letter stands for."""

from itertools import product
from pathlib import Path

import pytest

from holdfast.journal.anchor_cases import CASES, AnchorAction, JournalEnd, Slots, end_of, judge


@pytest.mark.parametrize(("slots", "end"), list(product(Slots, JournalEnd)))
def test_every_state_matches_exactly_one_case(slots: Slots, end: JournalEnd) -> None:
    assert sum(slots in case.slots and end in case.ends for case in CASES) == 1
    assert judge(slots, end) in CASES


def test_every_case_matches_something_and_has_its_own_letter() -> None:
    assert all(case.slots and case.ends for case in CASES)
    assert "".join(case.letter for case in CASES) == "ABCDEFGHIJ"


def test_only_a_state_with_a_legal_cause_goes_on() -> None:
    for case in CASES:
        is_accused = case.action in {AnchorAction.CUT_SHORT, AnchorAction.BROKEN}
        assert case.cause.startswith("none: ") == is_accused, case.letter


@pytest.mark.parametrize(
    ("slots", "end", "action"),
    [
        (
            Slots.SETTLED,
            JournalEnd.AT,
            AnchorAction.GO_ON,
        ),  # a new session, a claim without a record
        (
            Slots.SETTLED,
            JournalEnd.PAST,
            AnchorAction.MOVE,
        ),  # a failed anchor write that left nothing; a power cut
        (
            Slots.ONE,
            JournalEnd.PAST,
            AnchorAction.MOVE,
        ),  # a crash in mid write of a slot, and a second one in mid repair
        (Slots.ONE, JournalEnd.PAST_TORN, AnchorAction.MOVE_AND_CUT),
        (
            Slots.ONE,
            JournalEnd.AT,
            AnchorAction.CUT_SHORT,
        ),  # a slot zeroed or copied over its neighbour, and its batch cut
        (
            Slots.ONE,
            JournalEnd.TORN,
            AnchorAction.CUT_SHORT,
        ),  # the same with one byte left, or cut inside the batch
        (Slots.APART, JournalEnd.PAST, AnchorAction.CUT_SHORT),  # an older copy of one slot
        (Slots.NONE, JournalEnd.AT, AnchorAction.CUT_SHORT),
        (Slots.SETTLED, JournalEnd.BEFORE, AnchorAction.CUT_SHORT),
        (Slots.ONE, JournalEnd.BROKEN, AnchorAction.BROKEN),
    ],
)
def test_the_named_states(slots: Slots, end: JournalEnd, action: AnchorAction) -> None:
    assert judge(slots, end).action is action


def test_an_end_is_named_by_three_findings() -> None:
    found = {
        end_of(reaches=reaches, past=past, torn=torn)
        for reaches, past, torn in product([True, False], repeat=3)
    }
    assert found == set(JournalEnd) - {JournalEnd.BROKEN}


def test_the_documented_table_is_this_one() -> None:
    """docs/reference/journal-format.md lists every case, word for word."""
    listed = (Path(__file__).parents[3] / "docs/reference/journal-format.md").read_text()
    for case in CASES:
        slots = "; ".join(each.value for each in Slots if each in case.slots)
        ends = "; ".join(each.value for each in JournalEnd if each in case.ends)
        assert (
            f"| {case.letter} | {slots} | {ends} | {case.action.value} | {case.cause} |\n" in listed
        )
