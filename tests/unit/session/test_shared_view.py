"""
The weight of the shared view: as the model counted, where it saw all of it; estimated where it did
not; unknown where nobody ever counted.
"""

import msgspec
import pytest
from proof.scenarios.teller import Teller

from holdfast.ids import TurnId
from holdfast.session.events import Compacted
from holdfast.session.evolve.view import _summarised, joined
from holdfast.session.state import View, ViewEntry
from holdfast.session.view.messages import AssistantMessage
from holdfast.session.view.sizes import chars, estimated_tokens

SAID = (AssistantMessage("x" * 400),)
ENTRY = ViewEntry(TurnId("t1"), SAID)


def view_of(*entries: ViewEntry, tokens: int = 0, compactions: int = 0) -> View:
    view = View()
    for each in entries:
        view = msgspec.structs.replace(
            view, entries=view.entries.add(each), chars=view.chars + chars(each.messages)
        )
    return msgspec.structs.replace(view, tokens=tokens, compactions=compactions)


@pytest.mark.parametrize(
    ("counted", "base", "shared", "tokens"),
    [
        (70, view_of(), view_of(), 70),
        (70, view_of(ENTRY), view_of(ENTRY, tokens=50), 70),
        (
            70,
            view_of(),
            view_of(ENTRY, tokens=50),
            50 + estimated_tokens(chars(SAID)),
        ),  # another turn joined meanwhile
        (
            70,
            view_of(ENTRY),
            view_of(ENTRY, tokens=50, compactions=1),
            50 + estimated_tokens(chars(SAID)),
        ),
        (0, view_of(), view_of(tokens=50), 50 + estimated_tokens(chars(SAID))),
        (0, view_of(), view_of(), 0),
        (70, view_of(), view_of(ENTRY), 0),
    ],
)
def test_a_turn_that_joins_brings_what_its_model_counted_if_it_saw_all_of_it(
    counted: int, base: View, shared: View, tokens: int
) -> None:
    teller = Teller()
    teller.tell(("submit x", "go"))
    turn = msgspec.structs.replace(teller.pure.state.turns[TurnId("t1")], tokens=counted, base=base)
    after = joined(shared, turn, ENTRY)
    assert (after.tokens, after.chars, len(after.entries)) == (
        tokens,
        shared.chars + 400,
        len(shared.entries) + 1,
    )


def test_a_summary_weighs_what_it_says_and_what_it_leaves() -> None:
    event = Compacted(summary="short", turns=1, tokens_before=90, tokens_after=40, trigger="bound")
    after = _summarised(view_of(ENTRY, ENTRY, tokens=100, compactions=3), event)
    assert (after.summary, after.chars, after.compactions, after.tokens, len(after.entries)) == (
        "short",
        5 + chars(SAID),
        4,
        50,
        1,
    )
