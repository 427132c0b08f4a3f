"""
Verify a journal at opening: closed segments by the digest that the server computes, the active
segment record by record, and the node's anchor.

A closed segment's SHA-256 stands in the next segment's header, under that header's mac. So the
server only says a hash that it could not choose, and 32 bytes travel for each segment.
"""

from typing import NamedTuple

from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.session.position import Position, missing_key
from holdfast.adapters.postgres.session.tail import Tail, broken, lines_from, missing
from holdfast.errors import CutShort, Untrusted
from holdfast.journal.anchor import CellReading
from holdfast.journal.anchor_cases import AnchorAction, end_of, judge
from holdfast.journal.chain import KeyMissing
from holdfast.journal.fence import Fence
from holdfast.journal.record import Record, read_unverified
from holdfast.journal.segment import SegmentOpened, read_opened

_SEGMENTS = (
    "select s.number, s.first_seq, (select line from hf.record r where r.journal = s.journal "
    "and r.seq = s.first_seq), case when s.first_seq < %(active)s then (select sha256(string_agg("
    "r.line, ''::bytea order by r.seq)) from hf.record r where r.journal = s.journal "
    "and r.seq >= s.first_seq and r.seq < s.next_seq) end from (select journal, number, first_seq, "
    "lead(first_seq) over (order by number) as next_seq from hf.segment "
    "where journal = %(journal)s and first_seq <= %(active)s) s order by s.number"
)


class HeadRow(NamedTuple):
    journal: int
    seq: int
    mac: bytes
    epoch: int
    segment_seq: int
    sealed: bool
    ended: bool


def head_row(wire: Wire, session: str, instance: str) -> HeadRow | None:
    row = wire.one(
        "select journal, seq, mac, epoch, segment_seq, sealed, ended from hf.head "
        "where session = %s and instance = %s",
        (session, instance),
    )
    return HeadRow(*row) if row is not None else None


def verify_to_head(
    wire: Wire, tail: Tail, row: HeadRow, *, first_mac: str | None, reading: CellReading | None
) -> Untrusted | None:
    """Bring the tail to the head's row. Return the damage, if any; the tail then ends before it."""
    try:
        position, records = _walk(wire, tail, row, first_mac)
    except Untrusted as exc:
        return exc
    tail.adopt(position, records)
    tail.epoch = max(tail.epoch, row.epoch)
    return _compare(wire, tail, reading) if reading is not None else None


def _walk(
    wire: Wire, tail: Tail, row: HeadRow, first_mac: str | None
) -> tuple[Position, list[Record]]:
    segments = wire.rows(_SEGMENTS, {"journal": row.journal, "active": row.segment_seq})
    if [each[0] for each in segments] != list(range(1, len(segments) + 1)) or not segments:
        raise missing(tail.session, 0, row.seq)
    digest: bytes | None = None
    for number, first_seq, header, sha256 in segments:
        opened = _check_header(tail, number, first_seq, header, first_mac)
        if opened is not None:
            starts = segments[number - 2][1]
            _check_closed(wire, tail, row.journal, opened, digest, range(starts, first_seq))
        digest = sha256
    number, first_seq = segments[-1][:2]
    position = Position(tail.keys, tail.session, tail.instance, number=number)
    position.segment_seq = first_seq
    records: list[Record] = []
    for line in lines_from(wire, row.journal, first_seq, row.seq):
        record = position.feed(line)
        if record is None:
            tail.adopt(position, records)
            raise broken(
                tail.session,
                position.head.seq,
                f"the record after {position.head.seq} does not verify",
            )
        records.append(record)
    if position.head.seq < row.seq or position.fence.goes_on:
        tail.adopt(position, records)
        raise missing(tail.session, position.head.seq, row.seq)
    if position.head.mac != row.mac:
        raise broken(tail.session, position.head.seq, "the head's row names another record")
    return position, records


def _check_header(
    tail: Tail,
    number: int,
    first_seq: int,
    header: bytes | None,
    first_mac: str | None,
) -> SegmentOpened | None:
    """Return the verified header; None for the first segment."""
    fence = Fence(tail.keys, tail.session, tail.instance, number=number)
    try:
        fed = fence.feed(header) if header is not None else None
    except KeyMissing as exc:
        raise missing_key(exc.generation) from exc
    if fed is None or not fed.records or fed.records[0].seq != first_seq:
        raise broken(tail.session, first_seq - 1, f"the header of segment {number} does not verify")
    record = fed.records[0]
    if number == 1:
        if first_mac is not None and record.mac.hex() != first_mac:
            raise broken(
                tail.session, 0, "its first record is not the one that the home's journal names"
            )
        return None
    opened = read_opened(record.body)
    if opened is None or opened.previous is None:
        raise broken(tail.session, 0, f"segment {number - 1} was changed")
    return opened


def _check_closed(
    wire: Wire,
    tail: Tail,
    journal: int,
    opened: SegmentOpened,
    digest: bytes | None,
    seqs: range,
) -> None:
    """
    Compare a closed segment with the next one's header: by the server's digest, or record by record
    if the header has none, because a home of files wrote it.
    """
    previous, number = opened.previous, opened.number - 1
    if previous is not None and previous.sha256 is not None:
        holds = digest is not None and previous.sha256 == digest.hex()
    else:
        position = Position(tail.keys, tail.session, tail.instance, number=number)
        lines = lines_from(wire, journal, seqs.start, seqs.stop - 1)
        holds = all(position.feed(line) is not None for line in lines)
        holds = holds and position.closes_as(previous)
    if not holds:
        raise broken(tail.session, 0, f"segment {number} was changed")


def _compare(wire: Wire, tail: Tail, reading: CellReading) -> Untrusted | None:
    """Judge the node's anchor against the head, by the cases of anchor_cases.py."""
    anchor, head = reading.anchor, tail.head
    if anchor is None:
        return _gone_back(tail, "its anchor in the node's folder does not verify")
    end = end_of(reaches=head.seq >= anchor.seq, past=head.seq > anchor.seq, torn=False)
    if judge(reading.slots, end).action is AnchorAction.CUT_SHORT:
        return (
            missing(tail.session, head.seq, anchor.seq)
            if head.seq < anchor.seq
            else _gone_back(
                tail, "a slot of its anchor is missing, and so is the batch that it named"
            )
        )
    if head.seq == anchor.seq:
        same = head.mac == anchor.mac
    else:
        row = wire.one(
            "select line from hf.record where journal = %s and seq = %s", (tail.journal, anchor.seq)
        )
        stands = read_unverified(row[0]) if row is not None else None
        same = stands is not None and stands.mac == anchor.mac
    if not same:
        return _gone_back(tail, f"record {anchor.seq} is not the one that this node knew")
    return None


def _gone_back(tail: Tail, detail: str) -> CutShort:
    return CutShort(
        f"{tail.session}: {detail}",
        at_seq=tail.head.seq,
        hint="nothing was written; was the database restored or replaced?",
    )
