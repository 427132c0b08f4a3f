"""One page of a session's records, for readers that go on from a cursor."""

from contextlib import suppress

from holdfast.journal.record import Record
from holdfast.limits import RECORD_PAGE_BYTES
from holdfast.runtime.ledger.ledger import Ledger


class _PageFull(Exception):
    """Ends the reading of a journal."""


async def page_of_records(ledger: Ledger, after: int) -> list[Record]:
    """Read verified records after a cursor, up to a page. Empty at the head."""
    found: list[Record] = []
    size = 0

    def fold(record: Record) -> None:
        nonlocal size
        found.append(record)
        size += len(record.body)
        if size >= RECORD_PAGE_BYTES:
            raise _PageFull

    with suppress(_PageFull):
        await ledger.journal.load(fold, after=after)
    return found
