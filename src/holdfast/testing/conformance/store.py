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

from holdfast.testing.conformance.appends import AppendSuite
from holdfast.testing.conformance.ends import EndsSuite
from holdfast.testing.conformance.home import HomeSuite
from holdfast.testing.conformance.outside import OutsideChangesSuite
from holdfast.testing.conformance.sessions import SessionsSuite
from holdfast.testing.journal_notes import (
    INSTANCE,
    LATER_INSTANCE,
    OPS,
    OTHER,
    create_session,
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
from holdfast.testing.worlds import StoreWorld

__all__ = [
    "INSTANCE",
    "LATER_INSTANCE",
    "OPS",
    "OTHER",
    "JournalStoreSuite",
    "create_session",
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


class JournalStoreSuite(AppendSuite, SessionsSuite, OutsideChangesSuite, HomeSuite, EndsSuite):
    """The contract of `ports/journal_store.py`."""

    @pytest.fixture
    def world(self) -> StoreWorld:
        raise NotImplementedError("bring a world")
