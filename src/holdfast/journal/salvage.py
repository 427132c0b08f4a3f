"""
What can still be said of lines past the damage of a journal: which of them somebody with the key
wrote, in this very life.

A record verifies after the mac of the line before it, whatever became of that line's own contents.
So one that does is genuine; but what stood between it and the last record that can be believed is
not known. It tells that something was begun, never that nothing was, and is never folded. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence

from holdfast.journal.record import Record, believe, read_unverified


def authentic_records_after(
    keys: Sequence[bytes], lines: Iterable[bytes], *, after: int
) -> Iterator[Record]:
    """
    Each once, as they lie. Rows of before that were copied to the end have numbers of before, and
    are left out.
    """
    previous: bytes | None = None
    seen: set[bytes] = set()
    for line in lines:
        found = _believed(keys, previous, line) if previous is not None else None
        if found is not None and found.seq > after and found.mac not in seen:
            seen.add(found.mac)
            yield found
        if (stands := read_unverified(line)) is not None:
            previous = stands.mac


def _believed(keys: Sequence[bytes], previous: bytes, line: bytes) -> Record | None:
    return next(
        (found for key in keys if (found := believe(key, previous, line)) is not None), None
    )
