"""
Coming up to the head: with the write lock held, everything past a fence is verified, made durable, and only then handed on.

The cases, from the fence's position to the end of the last segment:

    A  nothing new                                       go on
    B  records that verify, up to the anchor             owned writes: handed on
    C  records that verify, past the anchor              rewritten in place, synced, anchored, then handed on
    D  half a batch past the anchor                      torn: quarantined; a new segment closes this one before it and says so
    E  a whole line that does not verify, a changed prefix, bytes behind a closing record    broken
    F  less than the anchor or the fence knows of        cut short
"""

import logging
import os
import threading
from typing import NamedTuple

from holdfast.adapters.files.paths import check_file, create_whole, read_at, write_and_close
from holdfast.adapters.files.quarantine import TORN_TAIL
from holdfast.adapters.files.reserve import FULL
from holdfast.adapters.files.session_files import SessionFiles
from holdfast.journal.anchor import Anchor
from holdfast.journal.fence import Fence
from holdfast.journal.record import Record
from holdfast.journal.segment import repaired_draft
from holdfast.journal.verify import Damage, tail_is_torn
from holdfast.limits import KIB, SEGMENT_BYTES
from holdfast.ports.journal_store import Check

_log = logging.getLogger("holdfast.files")


class Damaged(Exception):
    """The journal can't be believed; whoever asked says whether that is a takeover."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.detail)
        self.damage = damage


class _Piece(NamedTuple):
    """Verified bytes, and where they stand."""

    number: int
    offset: int
    data: bytes


class CaughtUp(NamedTuple):
    records: list[Record]
    anchor: Anchor


def catch_up(files: SessionFiles, folder: int, fence: Fence, check: Check, *, writer: str, now: int) -> CaughtUp:
    """Move the fence to the head. Raises `Damaged`, or an OSError; the fence then stays where it was."""
    anchor = read_anchor(files, fence)
    if nothing_new(files, folder, fence, anchor, check):
        return CaughtUp([], anchor)
    ahead = fence.copy()
    records, pieces, rest = read_on(files, folder, ahead, check, anchor)
    _check_anchor(ahead, anchor, records)
    if ahead.seq > anchor.seq:
        anchor = _make_durable(files, folder, ahead, anchor, pieces)
    if rest is not None:
        repaired, anchor = _cut_torn_tail(files, folder, ahead, anchor, rest, writer=writer, now=now)
        records.append(repaired)
    fence.adopt(ahead)
    return CaughtUp(records, anchor)


def nothing_new(files: SessionFiles, folder: int, fence: Fence, anchor: Anchor, check: Check) -> bool:
    """Case A, the common one."""
    return anchor.seq == fence.seq and anchor.mac == fence.mac and is_as_we_left_it(files, folder, fence, check)


def is_as_we_left_it(files: SessionFiles, folder: int, fence: Fence, check: Check) -> bool:
    """
    Is the segment's size what we know, and so, where asked for, every byte?

    A file that we did not have open before may be a copy, so its bytes are looked at whether asked for or not.
    """
    named = files.named(fence.number)
    try:
        status = os.stat(named.path, dir_fd=files.home, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if status.st_size != fence.offset or os.access(named.next, os.F_OK, dir_fd=folder, follow_symlinks=False):
        return False
    known = files.known(fence.number, status)
    if known is not None:
        check_file(status, named.name)
        if check is Check.SHORT:
            return True
    if _prefix_holds(files.active(folder, fence.number, status) if known is None else known, fence):
        return True
    files.let_go()  # or it would count as known from here on
    return False


_scratch = threading.local()


def _prefix_holds(fd: int, fence: Fence) -> bool:
    """One read into a buffer that is kept, one hash: what a reacquire costs."""
    buffer: bytearray = getattr(_scratch, "buffer", _EMPTY)
    if len(buffer) < fence.offset:
        buffer = _scratch.buffer = bytearray(max(fence.offset, SEGMENT_BYTES + 64 * KIB))
    view = memoryview(buffer)[: fence.offset]
    got = 0
    while got < fence.offset:
        more = os.preadv(fd, [view[got:]], got)
        if more == 0:
            return False
        got += more
    return fence.prefix_holds(view)


_EMPTY = bytearray()


def read_anchor(files: SessionFiles, fence: Fence) -> Anchor:
    # Twice, since without the lock a look may meet a writer in both slots.
    anchor = files.anchor.read(files.keys) or files.anchor.read(files.keys)
    if anchor is None:
        raise Damaged(Damage("cut_short", "its anchor is missing or does not verify", fence.seq, fence.number, fence.offset))
    return anchor


def read_on(files: SessionFiles, folder: int, fence: Fence, check: Check, anchor: Anchor) -> tuple[list[Record], list[_Piece], bytes | None]:
    """Verify everything past the fence, across segments. The last value is a torn tail, if there is one."""
    records: list[Record] = []
    pieces: list[_Piece] = []
    while True:
        data, size = _read_rest(files, folder, fence, check)
        has_next = files.has_segment(folder, fence.number + 1)
        length = files.claimed_length(folder, fence.number) if has_next else None
        counted = data if length is None else data[: max(0, length - fence.offset)]
        start = fence.offset
        if counted:
            fed = fence.feed(counted)
            records += fed.records
            if fed.taken:
                pieces.append(_Piece(fence.number, start, counted[: fed.taken]))
        rest = data[fence.offset - start :]
        if length is None:
            if has_next and not rest:
                # Its header is not whole: a torn birth of a segment, unless more than that is wrong.
                fence.enter_next()
                rest, size = _read_rest(files, folder, fence, Check.SHORT)
                has_next = files.has_segment(folder, fence.number + 1)
            return records, pieces, _judge_tail(fence, rest, size, anchor, has_next=has_next)
        if rest and not files.quarantine.holds_cut(files.name(fence.number), fence.offset, rest):
            raise _broken(fence, "bytes stand where none may")
        if fence.offset != length:
            raise _broken(fence, f"the next segment says that it ends at byte {length}")
        fence.enter_next()
        check = Check.SHORT  # the prefix of a segment we have just entered is empty


def _read_rest(files: SessionFiles, folder: int, fence: Fence, check: Check) -> tuple[bytes, int]:
    """What follows the fence in its segment, which is opened by its path: a byte-identical replacement is as good as the original."""
    try:
        fd = files.open_segment(folder, fence.number)
    except FileNotFoundError:
        if fence.where == "start" and fence.came_from_before:
            return b"", 0
        raise _cut_short(fence, f"{files.name(fence.number)} is missing") from None
    try:
        size = os.fstat(fd).st_size
        if size < fence.offset:
            raise _cut_short(fence, f"{files.name(fence.number)} has {size} bytes; {fence.offset} were acknowledged")
        is_known = files.is_known(fence.number, os.fstat(fd))
        if (check is Check.FENCE or not is_known) and not _prefix_holds(fd, fence):
            raise _broken(fence, "the bytes before it were changed", byte=0)
        return (read_at(fd, fence.offset, min(size - fence.offset, files.read_max)) if size > fence.offset else b""), size
    finally:
        os.close(fd)


def _judge_tail(fence: Fence, rest: bytes, size: int, anchor: Anchor, *, has_next: bool) -> bytes | None:
    """At the end of the last segment: a torn tail, or None if there is nothing more."""
    if has_next:
        raise _broken(fence, "the line does not verify")
    if (anchor.segment, anchor.length) > (fence.number, fence.offset):
        if anchor.segment == fence.number and size >= anchor.length:
            raise _broken(fence, "the line does not verify")
        if b"\n" in rest:
            raise _broken(fence, "the line does not verify")
        raise _cut_short(fence, f"history ends with record {fence.seq}; record {anchor.seq} was acknowledged")
    if not rest:
        return b"" if fence.where == "start" else None
    if fence.where == "closed" or not tail_is_torn(rest):
        raise _broken(fence, "the line does not verify")
    return rest


def _check_anchor(fence: Fence, anchor: Anchor, records: list[Record]) -> None:
    if fence.seq < anchor.seq:
        raise _cut_short(fence, f"history ends with record {fence.seq}; record {anchor.seq} was acknowledged")
    known = anchor.mac if fence.seq != anchor.seq else fence.mac
    named = next((record.mac for record in records if record.seq == anchor.seq), known)
    if named != anchor.mac:
        raise _broken(fence, f"record {anchor.seq} is not the one the anchor names")


def _make_durable(files: SessionFiles, folder: int, fence: Fence, anchor: Anchor, pieces: list[_Piece]) -> Anchor:
    """
    Case C: a peer wrote these and died before it could say so, and the sync may not have happened.

    Rewritten, since a failed sync may have marked pages clean that never reached the disk. A crash in here leads here again.
    """
    for piece in pieces:
        past = 0 if piece.number != anchor.segment else max(0, anchor.length - piece.offset)
        if piece.number < anchor.segment or past >= len(piece.data):
            continue
        fd = files.open_segment(folder, piece.number, os.O_RDWR)
        write_and_close(fd, piece.data[past:], piece.offset + past)
    if fence.number != anchor.segment:
        os.fsync(folder)
    return move_anchor(files, fence, anchor)


def move_anchor(files: SessionFiles, fence: Fence, anchor: Anchor, epoch: int = 0) -> Anchor:
    moved = files.anchor_at(fence, anchor.counter + 1, max(anchor.epoch, epoch))
    files.anchor.write(moved, files.keys)
    if moved.segment != anchor.segment:
        files.anchor.sync()
    return moved


def _cut_torn_tail(files: SessionFiles, folder: int, fence: Fence, anchor: Anchor, tail: bytes, *, writer: str, now: int) -> tuple[Record, Anchor]:
    """
    Case D. The tail is quarantined, then a new segment, whole or absent, closes the torn one before it and says what was cut.

    A crash before the new segment finds the same tail again; after it, the tail is what quarantine holds, and is ignored.
    """
    segment = files.name(fence.number)
    where = files.quarantine.keep_cut(TORN_TAIL, segment, fence.offset, tail)
    next_ = fence.copy()
    at = max(now, fence.at)
    replaces = fence.where == "start"
    if not replaces:
        next_.enter_next()
    header = next_.open_segment(generation=files.generation(), at=at, writer=writer)
    line, record = next_.write(repaired_draft(len(tail), where), at=at, epoch=next_.epoch, writer=writer)
    data = header + line
    try:
        create_whole(folder, files.name(next_.number), data, temporary=files.temporary(next_.number))
    except OSError as exc:
        if exc.errno not in FULL or not files.reserve.free():
            raise
        create_whole(folder, files.name(next_.number), data, temporary=files.temporary(next_.number))
    if not replaces:
        fd = files.open_segment(folder, fence.number, os.O_RDWR)
        try:
            os.ftruncate(fd, fence.offset)
            os.fsync(fd)
        finally:
            os.close(fd)
    fence.adopt(next_)
    _log.warning("%s: cut %d torn bytes off %s; kept in %s", files.session, len(tail), segment, where)
    return record, move_anchor(files, fence, anchor)


def _broken(fence: Fence, why: str, byte: int | None = None) -> Damaged:
    at = fence.offset if byte is None else byte
    return Damaged(Damage("broken", f"after record {fence.seq}: {why}", fence.seq, fence.number, at))


def _cut_short(fence: Fence, why: str) -> Damaged:
    return Damaged(Damage("cut_short", why, fence.seq, fence.number, fence.offset))
