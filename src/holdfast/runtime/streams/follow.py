"""
Follow a session: every record after a cursor, once, in order; between them, pieces of text and
output as they come.

Records come from the journal alone, so a follower that was away misses nothing and gets nothing
twice. Pieces are hints and may be lost.
"""

from collections.abc import AsyncIterator

from holdfast.errors import Refused
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Record
from holdfast.runtime.cancellation import wait_for
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.streams.feed import Feed, Heard


async def follow_session(
    opened: OpenSessions, feed: Feed, session: SessionId, *, after: int | None
) -> AsyncIterator[Record | Heard]:
    async with opened.use(session) as ledger:
        watch = ledger.watch()
        cursor = ledger.state.seq if after is None else after
        try:
            with feed.listen(session, watch) as subscription:
                while True:
                    watch.clear()
                    if ledger.journal.sealed is None and not ledger.driving:
                        await ledger.catch_up()
                    if cursor == after:
                        _refuse_ahead(ledger, cursor)
                    for record in await _records_after(ledger, cursor):
                        cursor = record.seq
                        yield record
                    for piece in subscription.take():
                        yield piece
                    await wait_for(watch)
        finally:
            ledger.unwatch(watch)


def _refuse_ahead(ledger: Ledger, after: int) -> None:
    """
    Refuse a cursor that is ahead: it belongs to another instance. Waiting until this instance is as
    long would skip everything before that.
    """
    if after > ledger.state.seq:
        raise Refused(
            f"{ledger.session} has no record {after} yet in this instance; the last one is "
            f"{ledger.state.seq}",
            code="cursor_ahead",
            hint="follow from the beginning, with after=0",
        )


async def _records_after(ledger: Ledger, cursor: int) -> list[Record]:
    """Read from memory if the follower is close behind, else from the journal."""
    recent = list(ledger.recent)
    if cursor >= ledger.state.seq or (recent and recent[0].seq <= cursor + 1):
        return [record for record in recent if record.seq > cursor]
    found: list[Record] = []
    await ledger.journal.load(found.append, after=cursor)
    return found
