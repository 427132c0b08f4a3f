"""
Keep the result of a fold beside a journal, so that opening it again parses only newer records.

A snapshot is a cache (D9): deleting it changes nothing. A returned snapshot verifies under the key
of this instance; a forged, foreign or half-written one reads as None. The caller checks that it
belongs to this journal's past, because it knows the record that the snapshot claims to cover. A
store that has checked it while it opened the journal says so.
"""

from typing import NamedTuple, Protocol, cast

from holdfast.journal.record import Head


class Snapshot(NamedTuple):
    head: Head
    """The last record that it covers."""
    data: bytes
    is_past: bool = False
    """True if this opening has verified that this record is the journal's."""


class KeepsSnapshots(Protocol):
    """A journal may support this; a store without it is read from the first record."""

    async def keep_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the previous snapshot. Callers ignore failures."""
        ...

    async def read_snapshot(self) -> Snapshot | None: ...


def snapshots_of(journal: object) -> KeepsSnapshots | None:
    """
    Return the journal itself if it supports this. CPython 3.11 takes 55 microseconds for
    `isinstance` with a protocol, and every opening of a session asks.
    """
    has_both = hasattr(journal, "keep_snapshot") and hasattr(journal, "read_snapshot")
    return cast(KeepsSnapshots, journal) if has_both else None
