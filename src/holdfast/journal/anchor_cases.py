"""
Every state of the two anchor slots and the journal's end, with the one legal cause of each.

A writer writes and syncs a batch, then moves one slot over it, then acknowledges it. A writer that
stops at any point leaves one of the legal cases below. A state without a legal cause is a change by
another program, and counts as cut short or broken. The end is judged against the newest slot that
verifies, with the write lock held. Exactly one case matches any combination. Pure.
"""

from enum import Enum
from typing import NamedTuple


class Slots(Enum):
    """The state of the two slots of a cell together."""

    SETTLED = "both verify, one apart"
    # the other slot is zeroed, torn, copied from its neighbour, or made with a missing key
    ONE = "one verifies"
    APART = "both verify, not one apart"
    NONE = "none verifies"  # or no claim verifies


class JournalEnd(Enum):
    """The journal's end, compared with the newest slot that verifies."""

    BEFORE = "before the slot"
    AT = "at the slot"
    TORN = "at the slot, then part of a batch"
    PAST = "whole batches past the slot"
    PAST_TORN = "whole batches past the slot, then part of one"
    BROKEN = "a whole line that does not verify"


class AnchorAction(Enum):
    GO_ON = "go on"
    MOVE = "make the batches durable, move the slots over them"
    CUT = "keep the part in quarantine, cut it, say so"
    MOVE_AND_CUT = "move, then cut"
    CUT_SHORT = "seal: cut short"
    BROKEN = "seal: broken"


class AnchorCase(NamedTuple):
    letter: str
    slots: frozenset[Slots]
    ends: frozenset[JournalEnd]
    action: AnchorAction
    cause: str


_ANY_SLOTS = frozenset(Slots)
_READABLE = frozenset({Slots.SETTLED, Slots.ONE})

CASES = (
    AnchorCase(
        "A",
        frozenset({Slots.SETTLED}),
        frozenset({JournalEnd.AT}),
        AnchorAction.GO_ON,
        "a clean stop; a new session; a claim without a record",
    ),
    AnchorCase(
        "B",
        frozenset({Slots.SETTLED}),
        frozenset({JournalEnd.TORN}),
        AnchorAction.CUT,
        "a crash in mid append",
    ),
    AnchorCase(
        "C",
        frozenset({Slots.SETTLED}),
        frozenset({JournalEnd.PAST}),
        AnchorAction.MOVE,
        "a crash between the sync and the slot; a slot that could not be written; a power cut "
        "before the anchor's sync",
    ),
    AnchorCase(
        "D",
        frozenset({Slots.SETTLED}),
        frozenset({JournalEnd.PAST_TORN}),
        AnchorAction.MOVE_AND_CUT,
        "a power cut before the anchor's sync, in mid append",
    ),
    AnchorCase(
        "E",
        frozenset({Slots.ONE}),
        frozenset({JournalEnd.PAST}),
        AnchorAction.MOVE,
        "a crash in mid write of the slot, once or again; a slot that was written in part",
    ),
    AnchorCase(
        "F",
        frozenset({Slots.ONE}),
        frozenset({JournalEnd.PAST_TORN}),
        AnchorAction.MOVE_AND_CUT,
        "a power cut that tore the slot, in mid append",
    ),
    AnchorCase(
        "G",
        frozenset({Slots.ONE}),
        frozenset({JournalEnd.AT, JournalEnd.TORN}),
        AnchorAction.CUT_SHORT,
        "none: a slot is written only over a whole batch that is durable",
    ),
    AnchorCase(
        "H",
        _READABLE,
        frozenset({JournalEnd.BEFORE}),
        AnchorAction.CUT_SHORT,
        "none: the anchor never leads",
    ),
    AnchorCase(
        "I",
        frozenset({Slots.APART, Slots.NONE}),
        frozenset(JournalEnd) - {JournalEnd.BROKEN},
        AnchorAction.CUT_SHORT,
        "none: the slots are written in turn, and creation writes both",
    ),
    AnchorCase(
        "J",
        _ANY_SLOTS,
        frozenset({JournalEnd.BROKEN}),
        AnchorAction.BROKEN,
        "none: a crash leaves no whole line that does not verify",
    ),
)


def judge(slots: Slots, end: JournalEnd) -> AnchorCase:
    """Return the one case that matches this state."""
    return next(case for case in CASES if slots in case.slots and end in case.ends)


def end_of(*, reaches: bool, past: bool, torn: bool) -> JournalEnd:
    """
    Name the end of a journal. `reaches`: the journal goes at least up to the slot. `past`: at least
    one whole batch follows the slot. `torn`: part of a batch stands at the end.
    """
    if not reaches:
        return JournalEnd.BEFORE
    if past:
        return JournalEnd.PAST_TORN if torn else JournalEnd.PAST
    return JournalEnd.TORN if torn else JournalEnd.AT
