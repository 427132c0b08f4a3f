"""
Find the authentic records after the damage of a journal: those written with the key, in this
instance.

A record verifies after the mac of the line before it, even if that line's own contents are lost. So
a record that verifies is genuine. The records between it and the last trusted record are unknown.
It proves that something was begun, never that nothing was, and it is never folded. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence

from holdfast.journal.record import Record, believe, read_unverified


def authentic_records_after(
    keys: Sequence[bytes], lines: Iterable[bytes], *, after: int
) -> Iterator[Record]:
    """
    Yield each authentic record once, in file order. Skip copies of earlier rows at the end: their
    numbers are not greater than `after`.
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
