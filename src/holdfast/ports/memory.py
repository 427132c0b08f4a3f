"""
Memory beyond a session: items, each with one audience and boundary (see
`holdfast.session.features.memory.items`), found by their words.

Memory is not a cache: an item is durable when `add` returns, and a lost item cannot be rebuilt. The
store does not authorise: it narrows a search to the given reader set, and the caller checks every
item again. Every returned item was written with the home's key and is complete. A row that does not
verify is never an item; it is counted, and listed as unverified.

Calls block briefly; the runtime makes them in threads. Words are plain words: a query has no
syntax.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.errors import Refused
from holdfast.secrecy import known
from holdfast.session.features.memory.items import MemoryItem, ReaderSet


class CannotRecall(Exception):
    """
    There is no answer in time, or none at all. The message gives the reason, for people. The caller
    continues without the answer.
    """


def refuse_secret_item(item: MemoryItem) -> None:
    """
    Raise Refused for an item that holds a known secret. Every `add` calls this first, so that no
    path can skip the check (S1).
    """
    if known().holds(msgspec.json.encode(item)):
        raise Refused(
            "the text holds a known secret, and was not remembered",
            code="secret",
            hint="remember it without the secret",
        )


class MemoryMatches(msgspec.Struct, frozen=True):
    items: tuple[MemoryItem, ...]
    unverified: int = 0  # rows that matched and do not verify


class MemoryRow(msgspec.Struct, frozen=True):
    """One stored row. If `item` is None, the row does not verify, and nothing in it is believed."""

    id: str
    item: MemoryItem | None


class Memory(Protocol):
    """The memory of one home. Threads may share it."""

    def is_empty(self) -> bool:
        """Whether nothing was ever remembered here. Quick; in doubt it returns False."""
        ...

    def add(self, item: MemoryItem) -> bool:
        """
        Keep an item: durable on return. Return False if one with its id exists already; that one
        stays as it is.

        Raise NotSaved if it was not kept, and Refused (`too_many`, `no_key`, `secret`) if it may
        not be.
        """
        ...

    def find(
        self, words: Sequence[str], reader_set: ReaderSet, *, limit: int, seconds: float
    ) -> MemoryMatches:
        """
        Items of that reader set that hold any of the words, best first. Raise CannotRecall, at the
        latest after `seconds`.
        """
        ...

    def get(self, memory: str) -> MemoryItem | None:
        """
        One item of any reader set; None if there is none, or its row does not verify. Raise
        CannotRecall.
        """
        ...

    def forget(self, memory: str) -> bool:
        """
        Remove a row permanently, also one that does not verify: durable on return. Return False if
        there is none. Raise NotSaved.
        """
        ...

    def rows(self, *, after: str | None = None, limit: int | None = None) -> Sequence[MemoryRow]:
        """
        Rows after the row of that id, oldest first; empty if that row is gone. Raise CannotRecall.
        """
        ...

    def close(self) -> None: ...
