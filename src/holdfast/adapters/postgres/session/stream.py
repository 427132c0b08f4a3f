"""Hand over the verified records of a journal, from any record on, in bounded memory."""

from collections.abc import Callable

from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.session.position import Position
from holdfast.adapters.postgres.session.tail import Tail, broken, lines_from, missing
from holdfast.journal.record import Record
from holdfast.journal.segment import is_own


def load(wire: Wire, tail: Tail, fold: Callable[[Record], None], *, after: int) -> Position:
    """Verify and hand over the records after `after`; raise Untrusted at the first damage."""
    known = tail.head.seq  # before anything is read: another thread may move the tail meanwhile
    row = wire.one(
        "select number, first_seq from hf.segment where journal = %s and first_seq <= %s "
        "order by number desc limit 1",
        (tail.journal, after + 1),
    )
    if row is None:
        raise missing(tail.session, 0, max(1, known))
    position = Position(tail.keys, tail.session, tail.instance, number=row[0])
    position.segment_seq = row[1]
    for line in lines_from(wire, tail.journal, row[1]):
        record = position.feed(line)
        if record is None:
            raise broken(
                tail.session,
                position.head.seq,
                f"the record after {position.head.seq} does not verify",
            )
        if record.seq > after and not is_own(record):
            fold(record)
    if position.head.seq < known:
        raise missing(tail.session, position.head.seq, known)
    return position
