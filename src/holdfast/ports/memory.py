"""
What is remembered beyond a session: items, each of one circle (see
`holdfast.session.features.memory.items`), found by their words.

Not a cache: what `add` has returned from is durable, and nothing makes a lost item again. The store
is no judge: it narrows a search to the circle it is asked for, and whoever asked judges every item
again. What it gives back as an item was written by us, whole: a row that does not verify under the
home's key is never an item, is counted where it was met, and is listed as what it is.

Calls block, briefly; the runtime makes them in threads. Words are words: nothing in a query has a
meaning of its own.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.errors import Refused
from holdfast.secrecy import known
from holdfast.session.features.memory.items import Circle, MemoryItem


class CannotRecall(Exception):
    """
    There is no answer in time, or none at all; the message says why, for people. Whoever asked goes
    on without.
    """


def refuse_secret_item(item: MemoryItem) -> None:
    """
    Raise Refused for an item that holds a known secret: every `add` asks first, so that no way in
    can miss it (S1).
    """
    if known().holds(msgspec.json.encode(item)):
        raise Refused(
            "the text holds a known secret, and was not remembered",
            code="secret",
            hint="remember it without the secret",
        )


class Found(msgspec.Struct, frozen=True):
    items: tuple[MemoryItem, ...]
    unverified: int = 0  # rows that matched and are not ours


class MemoryRow(msgspec.Struct, frozen=True):
    """One row as it lies there; `item` None: it does not verify, and nothing in it is believed."""

    id: str
    item: MemoryItem | None


class Memory(Protocol):
    """The memory of one home. Threads may share it."""

    def is_empty(self) -> bool:
        """Nothing was ever remembered here. Quick; in doubt it says False."""
        ...

    def add(self, item: MemoryItem) -> bool:
        """
        Keep an item: durable on return. False when one of its id is there already, which stays as
        it is.

        Raises NotSaved when it was not kept, and Refused (`too_many`, `no_key`, `secret`) when it
        may not be.
        """
        ...

    def find(self, words: Sequence[str], circle: Circle, *, limit: int, seconds: float) -> Found:
        """
        Items of that circle that hold any of the words, best first. Raises CannotRecall, at the
        latest after `seconds`.
        """
        ...

    def get(self, memory: str) -> MemoryItem | None:
        """
        One item, whoever's it is; None when there is none, or what is there does not verify. Raises
        CannotRecall.
        """
        ...

    def forget(self, memory: str) -> bool:
        """
        Remove a row for good, one that does not verify too: durable on return. False when there is
        none. Raises NotSaved.
        """
        ...

    def rows(self, *, after: str | None = None, limit: int | None = None) -> Sequence[MemoryRow]:
        """Oldest first, after the row of that id; none when that is gone. Raises CannotRecall."""
        ...

    def close(self) -> None: ...
