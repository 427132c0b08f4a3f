"""
Verify a journal's bytes: the verdicts, and the one place that may call a tail torn.

    holds       every record verifies, up to the end
    torn_tail   every record verifies; then part of a batch follows that was never acknowledged
    broken      a whole line does not verify, or bytes stand where none may
    cut_short   history that was acknowledged is missing
    unreadable  the key, the permission or the program to judge it is missing

Pure: readers of bytes come in, a verdict goes out. Nothing is changed, not even the seal.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast.ids import SessionId
from holdfast.journal.anchor import CellReading
from holdfast.journal.anchor_cases import AnchorAction, JournalEnd, Slots, end_of, judge
from holdfast.journal.chain import KeyMissing
from holdfast.journal.fence import BatchEnd, Fed, Fence
from holdfast.journal.segment import Previous
from holdfast.limits import BATCH_BYTES_MAX

VerdictName = Literal["holds", "torn_tail", "broken", "cut_short", "unreadable"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one session, with the field names of `holdfast verify --json`."""

    session: SessionId
    verdict: VerdictName
    records: int
    at_seq: int | None
    segment: str | None
    byte: int | None
    sealed: bool
    detail: str | None


class Damage(NamedTuple):
    """The point at which a journal stops verifying, and the reason."""

    verdict: Literal["broken", "cut_short"]
    detail: str
    at_seq: int  # the last record that verified
    number: int  # segment
    byte: int


def tail_is_torn(rest: bytes, *, begun: int = 0) -> bool:
    """
    Check whether this rest of the last segment is half a batch that a crash left. All of it is past
    the anchor. `begun` bytes of that batch verify before it.

    A crash leaves a line without its end, or blocks that were never filled. A whole line that does
    not verify is a change by another program.
    """
    if begun + len(rest) > BATCH_BYTES_MAX:
        return False
    return b"\n" not in rest or b"\0" in rest


class SegmentBytes(NamedTuple):
    """One segment to be walked: its number, its display name, and how to read it from an offset."""

    number: int
    name: str
    read: Callable[[int], bytes]


class Walked(NamedTuple):
    verdict: VerdictName
    records: int
    at_seq: int  # the last record that verified; for a torn tail, the last one before it
    segment: str | None
    byte: int | None
    detail: str | None

    def of(self, session: SessionId, *, sealed: bool) -> Verdict:
        return Verdict(
            session=session,
            verdict=self.verdict,
            records=self.records,
            at_seq=self.at_seq or None,
            segment=self.segment,
            byte=self.byte,
            sealed=sealed,
            detail=self.detail,
        )


def unread(why: str, verdict: VerdictName = "unreadable") -> Walked:
    """Return the result if no record was read."""
    return Walked(verdict, 0, 0, None, None, why)


def walk(
    fence: Fence,
    segments: Sequence[SegmentBytes],
    reading: Callable[[], CellReading],
    *,
    first_mac: str | None,
    closing: Callable[[int], Previous | None],
    is_lost: Callable[[int], bool],
) -> Walked:
    """
    Verify every record of every segment, one by one, from the journal's first byte.

    - `closing(number)` describes this segment as the next segment's header does, if that header was
      written with the key. The chain has yet to confirm it.
    - `is_lost(generation)` returns whether a missing key once belonged to this home. A header that
      names any other key was changed.
    - `segments` may grow while the last of them is read: a concurrent writer continues in a new
      one.

    The anchor is read after the last segment, with the write lock held. So a concurrent writer
    never makes the anchor lead.
    """
    seen = _Seen(first_mac)
    name: str | None = None
    for position, segment in enumerate(segments, start=1):
        name = segment.name
        if position > 1:
            fence.enter_next()
        if segment.number != fence.number:
            return seen.judged("cut_short", name, 0, f"segment {fence.number} is missing")
        data = segment.read(0)
        is_last = position == len(segments)
        previous = None if is_last else closing(segment.number)
        try:
            seen.take(fence.feed(data if previous is None else data[: previous.length]), fence)
        except KeyMissing as exc:
            if is_lost(exc.generation):
                return seen.judged("unreadable", name, 0, str(exc))
            return seen.judged("broken", name, 0, f"its header names a key that never was ({exc})")
        rest = data[fence.offset :]
        if seen.wrong_first:
            return Walked(
                "broken",
                0,
                fence.seq,
                name,
                0,
                "its first record is not the one the home's journal names",
            )
        if previous is not None:
            if fence.offset != previous.length:
                return _ended_early(fence, seen, name, data, previous.length)
            if not fence.may_be_followed_by(rest, previous):
                return seen.judged(
                    "broken", name, previous.length, "bytes follow the segment's end"
                )
        elif is_last or rest or fence.where == "start":
            return _judge_end(fence, seen, name, rest, reading(), is_last=is_last)
    return Walked("cut_short", 0, 0, name, None, "it has no segment")


class _Seen:
    """The counts and positions collected during a walk."""

    def __init__(self, first_mac: str | None) -> None:
        self.count = 0
        self.wrong_first = False
        self._first_mac = first_mac
        self.macs: dict[int, tuple[int, bytes]] = {}
        # The last record that verified, and the end of the last whole batch.
        self.last_seq = 0
        self.end: BatchEnd | None = None

    def take(self, fed: Fed, fence: Fence) -> None:
        records = fed.records
        if records and records[0].seq == 1 and self._first_mac is not None:
            self.wrong_first = records[0].mac.hex() != self._first_mac
        self.count += len(records)
        self.last_seq = fence.seq
        if fed.ends:
            self.end = fed.ends[-1]
        # Keep the macs of the last two segments: the anchor is in one of them unless history is
        # missing.
        self.macs = {seq: known for seq, known in self.macs.items() if known[0] >= fence.number - 1}
        self.macs |= {record.seq: (fence.number, record.mac) for record in records}

    @property
    def seq(self) -> int:
        return self.end.record.seq if self.end is not None else 0

    def judged(
        self, verdict: VerdictName, name: str | None, byte: int | None, detail: str | None
    ) -> Walked:
        if verdict == "torn_tail":  # records of an incomplete batch are part of the tail
            return Walked(
                verdict, self.count - (self.last_seq - self.seq), self.seq, name, byte, detail
            )
        return Walked(verdict, self.count, self.last_seq, name, byte, detail)


def _ended_early(fence: Fence, seen: _Seen, name: str, data: bytes, length: int) -> Walked:
    if len(data) < length and b"\n" not in data[fence.offset :]:
        return seen.judged(
            "cut_short", name, fence.offset, f"{len(data)} of {length} bytes are left"
        )
    return seen.judged(
        "broken", name, fence.offset, f"the line after record {fence.seq} does not verify"
    )


def _judge_end(
    fence: Fence, seen: _Seen, name: str, rest: bytes, reading: CellReading, *, is_last: bool
) -> Walked:
    """
    Judge the end of the last segment, or the point where the next one is not believed. See
    anchor_cases.py.
    """
    broken = seen.judged(
        "broken", name, fence.offset, f"the line after record {fence.seq} does not verify"
    )
    anchor = reading.anchor
    if anchor is None:
        return seen.judged("cut_short", name, None, "its anchor is missing or does not verify")
    cut_short = seen.judged(
        "cut_short",
        name,
        fence.offset,
        f"history ends with record {seen.seq}; record {anchor.seq} was acknowledged",
    )
    if (anchor.segment, anchor.length) > (fence.number, fence.offset):
        reaches = anchor.segment == fence.number and fence.offset + len(rest) >= anchor.length
        return broken if reaches or b"\n" in rest else cut_short
    known = seen.macs.get(anchor.seq)
    if known is not None and known[1] != anchor.mac:
        return seen.judged(
            "broken", name, fence.offset, f"record {anchor.seq} is not the one the anchor names"
        )
    tail = _tail(fence, seen, rest, is_last=is_last)
    if tail is None:
        return broken
    # If the last segment's header is not whole, its offset cannot be compared with the segment
    # before, so compare record numbers.
    end = end_of(
        reaches=seen.seq >= anchor.seq,
        past=seen.seq > anchor.seq,
        torn=tail > 0 or fence.where == "start",
    )
    match judge(reading.slots, end).action:
        case AnchorAction.GO_ON | AnchorAction.MOVE:
            return seen.judged("holds", name, None, None)
        case AnchorAction.CUT | AnchorAction.MOVE_AND_CUT:
            start = fence.offset + len(rest) - tail
            return seen.judged(
                "torn_tail", name, start, f"{tail} bytes of a batch that was never acknowledged"
            )
        case AnchorAction.CUT_SHORT | AnchorAction.BROKEN:
            return (
                cut_short
                if end is JournalEnd.BEFORE
                else seen.judged("cut_short", name, fence.offset, doubtful(reading.slots))
            )


def _tail(fence: Fence, seen: _Seen, rest: bytes, *, is_last: bool) -> int | None:
    """
    Return how many bytes of an incomplete batch stand at the end of this segment. Return None if a
    crash cannot have left them.
    """
    begun = 0
    if fence.goes_on and fence.where != "start":
        if seen.end is None or seen.end.number != fence.number:
            return None  # a segment appears whole, together with the batch that begins it
        begun = fence.offset - seen.end.offset
    if not is_last or (rest and fence.where == "closed") or not tail_is_torn(rest, begun=begun):
        return None
    return begun + len(rest)


def doubtful(slots: Slots) -> str:
    """Explain why a cell is not trusted."""
    if slots is Slots.APART:
        return "the two slots of its anchor do not belong together"
    return "a slot of its anchor is missing, and so is the batch that it named"
