"""
The contract of every `JournalStore`, as one suite over a `World`. Subclass it, provide a fixture
`world`, and run it with pytest:

    class TestMyStore(JournalStoreSuite):
        @pytest.fixture
        def world(self): return MyWorld()

Each test is a sentence of the port's contract. Nothing here depends on files, only on records,
heads, claims and changes by other programs. The tests are in the files beside this one, by topic.
"""

import pytest

from holdfast.testing.conformance.appending import AppendingSuite
from holdfast.testing.conformance.ends import EndsSuite
from holdfast.testing.conformance.home import HomeSuite
from holdfast.testing.conformance.outside import OutsideHandsSuite
from holdfast.testing.conformance.sessions import SessionsSuite
from holdfast.testing.journal_notes import (
    LATER_LIFE,
    LIFE,
    OPS,
    OTHER,
    born,
    everything,
    home_state,
    note,
    nothing,
    say,
    says,
    says_drafts,
    text_of,
    texts,
)
from holdfast.testing.worlds import World

__all__ = [
    "LATER_LIFE",
    "LIFE",
    "OPS",
    "OTHER",
    "JournalStoreSuite",
    "born",
    "everything",
    "home_state",
    "note",
    "nothing",
    "say",
    "says",
    "says_drafts",
    "text_of",
    "texts",
]


class JournalStoreSuite(AppendingSuite, SessionsSuite, OutsideHandsSuite, HomeSuite, EndsSuite):
    """The contract of `ports/journal_store.py`."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError("bring a world")
