"""
What a journal's bytes are worth: the verdicts, and the one place that may call a tail torn.

    holds       every record verifies, up to the end
    torn_tail   so it does, then half a batch follows that nobody was told of
    broken      a whole line does not verify, or bytes stand where none may
    cut_short   history that was acknowledged is missing
    unreadable  the key, the permission or the program to judge it is missing

Pure: readers of bytes come in, a verdict goes out; nothing is changed, not even the seal.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast.ids import SessionId
from holdfast.journal.anchor import Anchor
from holdfast.journal.chain import KeyMissing
from holdfast.journal.fence import Fence
from holdfast.journal.record import Record
from holdfast.limits import BATCH_BYTES_MAX

VerdictName = Literal["holds", "torn_tail", "broken", "cut_short", "unreadable"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One session's, with the field names of `holdfast verify --json`."""

    session: SessionId
    verdict: VerdictName
    records: int
    at_seq: int | None
    segment: str | None
    byte: int | None
    sealed: bool
    detail: str | None


class Damage(NamedTuple):
    """Where and how a journal stops being believable."""

    verdict: Literal["broken", "cut_short"]
    detail: str
    at_seq: int  # the last record that verified
    number: int  # segment
    byte: int


def tail_is_torn(tail: bytes) -> bool:
    """
    Is this rest of the last segment, all of it past the anchor, half a batch that a crash left?

    A crash leaves a line without its end, or blocks that were never filled; a whole line that does not verify is somebody's work.
    """
    if len(tail) > BATCH_BYTES_MAX:
        return False
    return b"\n" not in tail or b"\0" in tail


class SegmentBytes(NamedTuple):
    """One segment to be walked: its number, its name for people, and how to read it from an offset."""

    number: int
    name: str
    read: Callable[[int], bytes]


class Walked(NamedTuple):
    verdict: VerdictName
    records: int
    fence: Fence
    segment: str | None
    byte: int | None
    detail: str | None


def walk(
    fence: Fence,
    segments: Sequence[SegmentBytes],
    read_anchor: Callable[[], Anchor | None],
    *,
    first_mac: str | None,
    claimed_length: Callable[[int], int | None],
    excess_is_known: Callable[[int, int, bytes], bool],
    is_lost: Callable[[int], bool],
) -> Walked:
    """
    Every record of every segment, one by one, from the journal's first byte.

    `claimed_length(number)` is what the next segment's header says of this one, if that header is somebody's with the key; the chain has yet to confirm it.
    `excess_is_known(number, length, bytes)` says whether bytes past a closed segment's length are the batch that was put in quarantine.
    `is_lost(generation)` says whether a key that we lack was one of ours; a header that names any other is changed.
    `segments` may grow while the last of them is read: a writer at work beside us goes on in a new one.
    The anchor is read after the last segment, so that such a writer never makes it lead.
    """
    seen = _Seen(first_mac)
    name: str | None = None
    for position, segment in enumerate(segments, start=1):
        name = segment.name
        if position > 1:
            fence.enter_next()
        if segment.number != fence.number:
            return Walked("cut_short", seen.count, fence, name, 0, f"segment {fence.number} is missing")
        data = segment.read(0)
        is_last = position == len(segments)
        length = None if is_last else claimed_length(segment.number)
        try:
            seen.take(fence.feed(data if length is None else data[:length]).records, fence)
        except KeyMissing as exc:
            if is_lost(exc.generation):
                return Walked("unreadable", seen.count, fence, name, 0, str(exc))
            return Walked("broken", seen.count, fence, name, 0, f"its header names a key that never was ({exc})")
        rest = data[fence.offset :]
        if seen.wrong_first:
            return Walked("broken", 0, fence, name, 0, "its first record is not the one the home's journal names")
        if length is not None and fence.offset != length:
            return _ended_early(fence, seen, name, data, length)
        is_excess = not is_last and bool(rest) and not excess_is_known(fence.number, fence.offset, rest)
        if is_excess and length is not None:
            return Walked("broken", seen.count, fence, name, length, "bytes follow the segment's end")
        if is_last or is_excess or fence.where == "start":
            return _judge_end(fence, seen, name, rest, read_anchor(), is_last=is_last)
    return Walked("cut_short", 0, fence, name, None, "it has no segment")


class _Seen:
    """What was counted on the way."""

    def __init__(self, first_mac: str | None) -> None:
        self.count = 0
        self.wrong_first = False
        self._first_mac = first_mac
        self.macs: dict[int, tuple[int, bytes]] = {}

    def take(self, records: list[Record], fence: Fence) -> None:
        if records and records[0].seq == 1 and self._first_mac is not None:
            self.wrong_first = records[0].mac.hex() != self._first_mac
        self.count += len(records)
        # Of the last two segments: the anchor is in one of them unless history is missing.
        self.macs = {seq: known for seq, known in self.macs.items() if known[0] >= fence.number - 1}
        self.macs |= {record.seq: (fence.number, record.mac) for record in records}


def _ended_early(fence: Fence, seen: _Seen, name: str, data: bytes, length: int) -> Walked:
    if len(data) < length and b"\n" not in data[fence.offset :]:
        return Walked("cut_short", seen.count, fence, name, fence.offset, f"{len(data)} of {length} bytes are left")
    return Walked("broken", seen.count, fence, name, fence.offset, f"the line after record {fence.seq} does not verify")


def _judge_end(fence: Fence, seen: _Seen, name: str, rest: bytes, anchor: Anchor | None, *, is_last: bool) -> Walked:
    broken = Walked("broken", seen.count, fence, name, fence.offset, f"the line after record {fence.seq} does not verify")
    if anchor is None:
        return Walked("cut_short", seen.count, fence, name, None, "its anchor is missing or does not verify")
    if (anchor.segment, anchor.length) > (fence.number, fence.offset):
        reaches = anchor.segment == fence.number and fence.offset + len(rest) >= anchor.length
        if reaches or b"\n" in rest:
            return broken
        why = f"history ends with record {fence.seq}; record {anchor.seq} was acknowledged"
        return Walked("cut_short", seen.count, fence, name, fence.offset, why)
    if fence.seq < anchor.seq:  # where the last segment's header is not whole, its place says nothing of the one before
        why = f"history ends with record {fence.seq}; record {anchor.seq} was acknowledged"
        return Walked("cut_short", seen.count, fence, name, fence.offset, why)
    known = seen.macs.get(anchor.seq)
    if known is not None and known[1] != anchor.mac:
        return Walked("broken", seen.count, fence, name, fence.offset, f"record {anchor.seq} is not the one the anchor names")
    if is_last and not rest and fence.where != "start":
        return Walked("holds", seen.count, fence, name, None, None)
    if not is_last or fence.where == "closed" or not tail_is_torn(rest):
        return broken
    why = f"{len(rest)} bytes of a batch that was never acknowledged"
    return Walked("torn_tail", seen.count, fence, name, fence.offset, why)
