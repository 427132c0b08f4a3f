"""
Catch up to the head: with the write lock held, verify everything past a fence and make it durable
before it is handed on.

The anchor's slots and the journal's end are in one of the cases of journal/anchor_cases.py; each
case leads to one action here. Records count batch by batch: part of a batch at the end was never
acknowledged, and is cut like a torn line.
"""

import logging
import os
from typing import NamedTuple

from holdfast.adapters.files.paths import check_file, read_at, read_into_kept
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.tail_repair import (
    TornTail,
    VerifiedBytes,
    cut_torn_tail,
    make_durable,
)
from holdfast.journal.anchor import Anchor, CellReading
from holdfast.journal.anchor_cases import AnchorAction, Slots, end_of, judge
from holdfast.journal.fence import BatchEnd, Fed, Fence, SegmentPlace
from holdfast.journal.record import Record
from holdfast.journal.verify import Damage, doubtful, tail_is_torn
from holdfast.ports.journal_store import Check

_log = logging.getLogger("holdfast.files")


class Damaged(Exception):
    """The journal can't be trusted. The caller decides whether that is a takeover."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.detail)
        self.damage = damage


class _Found(NamedTuple):
    """Everything past a fence."""

    records: list[Record]
    pieces: list[VerifiedBytes]
    ends: tuple[BatchEnd, ...]  # the ends of the last two whole batches, oldest first
    tail: TornTail | None


class CaughtUp(NamedTuple):
    records: list[Record]
    anchor: Anchor


def catch_up(
    files: SessionFiles, folder: int, fence: Fence, check: Check, *, writer: str, now: int
) -> CaughtUp:
    """
    Move the fence to the head. Raise `Damaged` or an OSError; the fence then stays where it was.
    """
    reading = files.anchor.read_slots(files.keys)
    anchor = believable(reading, fence)
    if reading.slots is Slots.SETTLED and nothing_new(files, folder, fence, anchor, check):
        return CaughtUp([], anchor)
    # If the anchor is behind our own position, check every batch past the anchor again, so that the
    # slots end one batch apart.
    ahead = fence.copy() if fence.seq <= anchor.seq else fence_at(files, folder, anchor)
    found = read_on(files, folder, ahead, check, anchor)
    _check_anchor(ahead, anchor, found.records)
    _check_position(fence, ahead, found.records)
    past = [end for end in found.ends if end.record.seq > anchor.seq]
    case = judge(reading.slots, end_of(reaches=True, past=bool(past), torn=found.tail is not None))
    if case.action is AnchorAction.CUT_SHORT:
        if reading.missing is not None:
            raise reading.missing
        raise _cut_short(ahead, doubtful(reading.slots))
    if past:
        anchor = make_durable(files, folder, anchor, found.pieces, past)
    if reading.slots is not Slots.SETTLED:
        # Case E or F: make both slots readable again, durably, before anybody appends.
        files.anchor.sync()
    records = [record for record in found.records if record.seq > fence.seq]
    if found.tail is not None:
        repaired, anchor = cut_torn_tail(
            files, folder, ahead, anchor, found.tail, writer=writer, now=now
        )
        records.append(repaired)
    fence.adopt(ahead)
    return CaughtUp(records, anchor)


def believable(reading: CellReading, fence: Fence) -> Anchor:
    """
    Return the newest slot that verifies, or raise if none does. `catch_up` judges whether the two
    slots belong together. Hold the write lock; without it, the read may have met a writer.
    """
    if reading.anchor is None:
        if reading.missing is not None:
            raise reading.missing
        raise _cut_short(fence, "its anchor is missing or does not verify")
    return reading.anchor


def read_anchor(files: SessionFiles, fence: Fence) -> Anchor:
    """
    Read the anchor without the write lock. If the slots do not verify together, read them again
    under the lock; `catch_up` judges their case.
    """
    reading = files.anchor.read_slots_twice(files.keys)
    if reading.slots is not Slots.SETTLED:
        with files.locked():
            reading = files.anchor.read_slots(files.keys)
    return believable(reading, fence)


def fence_at(files: SessionFiles, folder: int, anchor: Anchor) -> Fence:
    """Return a fence at the anchor: verify its segment, record by record, from the header."""
    return read_to_anchor(files, folder, anchor).fence


class ReadSegment(NamedTuple):
    """A fence at the anchor, and the records of its segment that were verified one by one."""

    fence: Fence
    after: int  # the number of the record before the first of them
    records: list[Record]
    place: SegmentPlace | None = None  # from which they were verified, if not from the header


def read_to_anchor(
    files: SessionFiles, folder: int, anchor: Anchor, place: SegmentPlace | None = None
) -> ReadSegment:
    """
    Like `fence_at`. If the bytes up to `place` have its digest, the records start behind it. If
    they do not, the walk from the header finds out why.
    """
    fence = files.fence(anchor.segment)
    data = files.read_segment(folder, anchor.segment)
    if place is not None:
        ahead = files.fence(anchor.segment)
        ahead.feed(data[: data.find(b"\n") + 1])
        if ahead.skip_to(place, data):
            fed = ahead.feed(data[place.offset : anchor.length])
            if (ahead.offset, ahead.seq, ahead.mac) == (anchor.length, anchor.seq, anchor.mac):
                return ReadSegment(ahead, place.seq, fed.records, place)
    fed = fence.feed(data[: anchor.length])
    if fence.offset < anchor.length:
        cut = len(data) < anchor.length and not fed.bad_line
        what = (
            f"history ends after record {fence.seq}; record {anchor.seq} was acknowledged"
            if cut
            else "the line does not verify"
        )
        raise Damaged(
            Damage("cut_short" if cut else "broken", what, fence.seq, fence.number, fence.offset)
        )
    if (fence.seq, fence.mac) != (anchor.seq, anchor.mac):
        raise Damaged(
            Damage(
                "broken",
                f"record {fence.seq} is not the one the anchor names",
                fence.seq,
                fence.number,
                fence.offset,
            )
        )
    return ReadSegment(fence, fed.records[0].seq - 1, fed.records)


def unchanged_anchor(files: SessionFiles, folder: int, fence: Fence, check: Check) -> Anchor | None:
    """Return the anchor if nothing was added or changed since we had the lock, else None."""
    anchor = files.anchor.read(files.keys)
    if anchor is None or not nothing_new(files, folder, fence, anchor, check):
        return None
    return anchor


def nothing_new(
    files: SessionFiles, folder: int, fence: Fence, anchor: Anchor, check: Check
) -> bool:
    """Case A, the common one."""
    return (
        anchor.seq == fence.seq
        and anchor.mac == fence.mac
        and is_unchanged_since(files, folder, fence, check)
    )


def is_unchanged_since(files: SessionFiles, folder: int, fence: Fence, check: Check) -> bool:
    """
    Return True if the segment has the size that we know and, where `check` asks for it, the same
    bytes.

    A file that we did not have open before may be a copy, so its bytes are always compared.
    """
    named = files.named(fence.number)
    try:
        status = os.stat(named.path, dir_fd=files.home, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if status.st_size != fence.offset or os.access(
        named.next, os.F_OK, dir_fd=folder, follow_symlinks=False
    ):
        return False
    known = files.known(fence.number, status)
    if known is not None:
        check_file(status, named.name)
        if check is Check.SHORT:
            return True
    if _prefix_holds(files.active(folder, fence.number, status) if known is None else known, fence):
        return True
    files.let_go()  # otherwise it would count as known from now on
    return False


def _prefix_holds(fd: int, fence: Fence) -> bool:
    """Compare the prefix with one read and one hash: this is the cost of a reacquire."""
    view = read_into_kept(fd, fence.offset)
    return len(view) == fence.offset and fence.prefix_holds(view)


def read_on(files: SessionFiles, folder: int, fence: Fence, check: Check, anchor: Anchor) -> _Found:
    """
    Verify everything past the fence, across segments. The fence ends behind the last whole batch.
    """
    records: list[Record] = []
    pieces: list[VerifiedBytes] = []
    ends: tuple[BatchEnd, ...] = ()
    while True:
        data, size = _read_rest(files, folder, fence, check)
        has_next = files.has_segment(folder, fence.number + 1)
        closing = files.claimed_closing(folder, fence.number) if has_next else None
        before = fence.copy()
        fed = fence.feed(data if closing is None else data[: max(0, closing.length - fence.offset)])
        records += fed.records
        ends = (*ends, *fed.ends)[-2:]
        if fed.taken:
            pieces.append(VerifiedBytes(fence.number, before.offset, data[: fed.taken]))
        rest = data[fed.taken :]
        if closing is None:
            if has_next and rest:
                raise _broken(fence, "the line does not verify")
            stray = _read_stray(files, folder, fence) if has_next else None
            _check_end(before, fence, fed, rest, anchor, size)
            whole = (
                fed.taken
                if not fence.goes_on
                else (fed.ends[-1].offset - before.offset if fed.ends else 0)
            )
            if whole != fed.taken:
                records = (
                    [record for record in records if record.seq <= ends[-1].record.seq]
                    if ends
                    else []
                )
                pieces[-1] = pieces[-1]._replace(data=data[:whole])
                before.feed(data[:whole])
                fence.adopt(before)
            tail = TornTail(data[whole:], stray) if whole != len(data) or has_next else None
            return _Found(records, pieces, ends, tail)
        if fence.offset != closing.length:
            raise _broken(fence, f"the next segment says that it ends at byte {closing.length}")
        if not fence.may_be_followed_by(rest, closing):
            raise _broken(fence, "bytes stand where none may")
        fence.enter_next()
        check = Check.SHORT  # the prefix of a segment that we have just entered is empty


def _read_stray(files: SessionFiles, folder: int, fence: Fence) -> bytes:
    """
    Return the bytes of a last segment whose header is not whole. That is the torn start of a new
    segment, unless more is wrong.
    """
    stray = files.read_segment(folder, fence.number + 1)
    if files.has_segment(folder, fence.number + 2) or not tail_is_torn(stray):
        raise _broken(fence, "the line does not verify")
    return stray


def _read_rest(files: SessionFiles, folder: int, fence: Fence, check: Check) -> tuple[bytes, int]:
    """
    Return the bytes that follow the fence in its segment, and the segment's size. The segment is
    opened by its path: a byte-identical replacement is as good as the original.
    """
    try:
        fd = files.open_segment(folder, fence.number)
    except FileNotFoundError:
        raise _cut_short(fence, f"{files.name(fence.number)} is missing") from None
    try:
        size = os.fstat(fd).st_size
        if size < fence.offset:
            raise _cut_short(
                fence,
                f"{files.name(fence.number)} has {size} bytes; {fence.offset} were acknowledged",
            )
        is_known = files.is_known(fence.number, os.fstat(fd))
        if (check is Check.FENCE or not is_known) and not _prefix_holds(fd, fence):
            words = f"bytes up to record {fence.seq} were changed"
            raise Damaged(Damage("broken", words, fence.seq, fence.number, 0))
        return (
            read_at(fd, fence.offset, min(size - fence.offset, files.read_max))
            if size > fence.offset
            else b""
        ), size
    finally:
        os.close(fd)


def _check_end(
    before: Fence, fence: Fence, fed: Fed, rest: bytes, anchor: Anchor, size: int
) -> None:
    """
    Check that the last segment ends with a whole batch or with part of one. `before` is the
    position from which these bytes were read.
    """
    if (anchor.segment, anchor.length) > (fence.number, fence.offset):
        if (anchor.segment == fence.number and size >= anchor.length) or b"\n" in rest:
            raise _broken(fence, "the line does not verify")
        raise _cut_short(
            fence, f"history ends with record {fence.seq}; record {anchor.seq} was acknowledged"
        )
    begun = 0
    if fence.goes_on:
        if before.goes_on and not fed.ends:
            raise _cut_short(
                fence, "its last segment ends inside the batch that begins it"
            )  # a genuine segment appears whole
        begun = fence.offset - (fed.ends[-1].offset if fed.ends else before.offset)
    if (rest and fence.where != "middle") or not tail_is_torn(rest, begun=begun):
        raise _broken(fence, "the line does not verify")


def _check_anchor(fence: Fence, anchor: Anchor, records: list[Record]) -> None:
    if fence.seq < anchor.seq:
        raise _cut_short(
            fence, f"history ends with record {fence.seq}; record {anchor.seq} was acknowledged"
        )
    known = anchor.mac if fence.seq != anchor.seq else fence.mac
    named = next((record.mac for record in records if record.seq == anchor.seq), known)
    if named != anchor.mac:
        raise _broken(fence, f"record {anchor.seq} is not the one the anchor names")


def _check_position(fence: Fence, ahead: Fence, records: list[Record]) -> None:
    """If the anchor was behind our own position, check that the walk from the anchor passed it."""
    if ahead.seq < fence.seq:
        raise _cut_short(
            ahead, f"history ends with record {ahead.seq}; record {fence.seq} was acknowledged"
        )
    if any(record.seq == fence.seq and record.mac != fence.mac for record in records):
        raise _broken(fence, f"record {fence.seq} is not the one that was acknowledged")


def _broken(fence: Fence, why: str) -> Damaged:
    words = f"after record {fence.seq}: {why}"
    return Damaged(Damage("broken", words, fence.seq, fence.number, fence.offset))


def _cut_short(fence: Fence, why: str) -> Damaged:
    return Damaged(Damage("cut_short", why, fence.seq, fence.number, fence.offset))
