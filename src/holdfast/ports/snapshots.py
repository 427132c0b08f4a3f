"""
Keeping a fold's result beside a journal, so that opening it again parses only what came since.

A cache (D9): deleting it changes nothing, and what a keeper gives back verifies under the key of
this very life: a forged, foreign or half-written one is None. Whether it is of this journal's past
is checked by the caller, who knows the record it claims to stand for.
"""

from typing import NamedTuple, Protocol, runtime_checkable

from holdfast.journal.record import Head


class Snapshot(NamedTuple):
    head: Head
    """The last record that it covers."""
    data: bytes


@runtime_checkable
class KeepsSnapshots(Protocol):
    """A journal may be one; a store without this is opened from its first record."""

    async def keep_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the one before. Failing is nobody's problem."""
        ...

    async def read_snapshot(self) -> Snapshot | None: ...
