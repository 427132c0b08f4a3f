"""
`verify` for a home in PostgreSQL: every record of one instance, one by one, by the walk that files
use too. Nothing changes, not even the seal.
"""

from collections.abc import Sequence

from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.session.head import HeadRow
from holdfast.adapters.postgres.session.tail import Tail, lines_from
from holdfast.errors import NewerVersion
from holdfast.journal.anchor import Anchor, CellReading
from holdfast.journal.anchor_cases import Slots
from holdfast.journal.chain import KeyMissing
from holdfast.journal.fence import Fence
from holdfast.journal.segment import Previous, segment_name
from holdfast.journal.verify import SegmentBytes, Verdict, Walked, unread, walk


def verify_rows(
    wire: Wire,
    tail: Tail,
    row: HeadRow | None,
    *,
    sealed: bool,
    first_mac: str | None,
    reading: CellReading | None,
) -> Verdict:
    try:
        found = _walked(wire, tail, row, first_mac=first_mac, reading=reading)
        if found.verdict == "holds" and row is not None and _is_beyond_head(wire, row.journal):
            found = found._replace(verdict="broken", detail="a row stands beyond the head")
    except (KeyMissing, NewerVersion) as exc:
        found = unread(str(exc))
    return found.of(tail.session, sealed=sealed)


def _is_beyond_head(wire: Wire, journal: int) -> bool:
    """Look in one statement: an append adds its rows and moves the head at once."""
    rows = wire.rows(
        "select 1 from hf.record r join hf.head h using (journal) "
        "where journal = %s and r.seq > h.seq limit 1",
        (journal,),
    )
    return bool(list(rows))


def _walked(
    wire: Wire,
    tail: Tail,
    row: HeadRow | None,
    *,
    first_mac: str | None,
    reading: CellReading | None,
) -> Walked:
    if row is None:
        return Walked("cut_short", 0, 0, None, None, "its head is missing")
    starts: Sequence[tuple[int, int]] = [
        (number, first)
        for number, first in wire.rows(
            "select number, first_seq from hf.segment where journal = %s and first_seq <= %s "
            "order by number",
            (row.journal, row.seq),
        )
    ]
    ends = [*(first - 1 for _, first in starts[1:]), row.seq]

    def segment(number: int, first: int, last: int) -> SegmentBytes:
        return SegmentBytes(
            number,
            segment_name(tail.instance, number),
            lambda offset: b"".join(lines_from(wire, row.journal, first, last))[offset:],
        )

    def closing(number: int) -> Previous | None:
        first = dict(starts).get(number + 1)
        header = Fence(tail.keys, tail.session, tail.instance, number=number + 1)
        line = next(lines_from(wire, row.journal, first, first), b"") if first else b""
        return header.previous if header.feed(line).records else None

    # Without an anchor of this node, the head's row is what was acknowledged.
    acknowledged = Anchor(1, 0, 0, 0, row.seq, 0, 0, row.mac)
    return walk(
        Fence(tail.keys, tail.session, tail.instance),
        [segment(number, first, last) for (number, first), last in zip(starts, ends, strict=True)],
        lambda: reading if reading is not None else CellReading(Slots.SETTLED, acknowledged),
        first_mac=first_mac,
        closing=closing,
        is_lost=lambda _: True,
    )
