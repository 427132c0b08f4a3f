"""
The end of a journal that a dead process left: make its whole batches durable, cut the part of a
batch, and move the anchor. The caller holds the write lock and has verified every byte.
"""

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.adapters.files.home.reserve import FULL
from holdfast.adapters.files.paths import create_whole, write_and_close
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.quarantine import TORN_TAIL
from holdfast.journal.anchor import Anchor
from holdfast.journal.fence import BatchEnd, Fence
from holdfast.journal.record import Record
from holdfast.journal.segment import repaired_draft

_log = logging.getLogger("holdfast.files")


class VerifiedBytes(NamedTuple):
    """Verified bytes and their position."""

    number: int
    offset: int
    data: bytes


class TornTail(NamedTuple):
    """
    Part of a batch that a crash left: the bytes past the last whole batch of its segment, and the
    bytes of a next segment whose header is not whole.
    """

    cut: bytes
    stray: bytes | None = None  # None if there is no such next segment


def make_durable(
    files: SessionFiles,
    folder: int,
    anchor: Anchor,
    pieces: list[VerifiedBytes],
    past: Sequence[BatchEnd],
) -> Anchor:
    """
    Make durable the records of a peer that died before it acknowledged them: its sync may not have
    happened.

    The bytes are rewritten, because a failed sync may have marked pages clean that never reached
    the disk. A crash in here leads here again. The slots end one batch apart: if the newer slot
    covered several batches, wiping it would cut all of them but the first.
    """
    for piece in pieces:
        skipped = 0 if piece.number != anchor.segment else max(0, anchor.length - piece.offset)
        if piece.number < anchor.segment or skipped >= len(piece.data):
            continue
        fd = files.open_segment(folder, piece.number, os.O_RDWR)
        write_and_close(fd, piece.data[skipped:], piece.offset + skipped)
    if past[-1].number != anchor.segment:
        os.fsync(folder)
    for end in past:
        generation, number, offset, record = end
        place = Anchor(
            generation, 0, number, offset, record.seq, record.at, record.epoch, record.mac
        )
        anchor = write_anchor(files, place, anchor)
    return anchor


def move_anchor(files: SessionFiles, fence: Fence, anchor: Anchor) -> Anchor:
    """Move the anchor over one batch, which is durable and ends at the fence."""
    return _write_slot(files, files.anchor_at(fence, anchor.counter + 1, anchor.epoch), anchor)


def write_anchor(files: SessionFiles, place: Anchor, anchor: Anchor) -> Anchor:
    """Write this position into the next slot."""
    epoch = max(anchor.epoch, place.epoch)
    return _write_slot(files, place._replace(counter=anchor.counter + 1, epoch=epoch), anchor)


def _write_slot(files: SessionFiles, moved: Anchor, before: Anchor) -> Anchor:
    files.anchor.write(moved, files.keys)
    if moved.segment != before.segment:
        files.anchor.sync()
    return moved


def cut_torn_tail(
    files: SessionFiles,
    folder: int,
    fence: Fence,
    anchor: Anchor,
    tail: TornTail,
    *,
    writer: str,
    now: int,
) -> tuple[Record, Anchor]:
    """
    Cut the part of a batch that a crash left. The steps are, in this order:

    1. Quarantine the bytes.
    2. Create a new segment, whole or absent. Its header closes the torn segment before the cut,
       names the cut bytes by length and digest, and its first record reports the cut.
    3. Truncate the torn segment.

    A crash before step 2 finds the same bytes again. After step 2 the header says that these bytes
    do not count.
    """
    segment, beside = files.name(fence.number), files.name(fence.number + 1)
    where = files.quarantine.keep_cut(TORN_TAIL, segment, fence.offset, tail.cut)
    if tail.stray:
        where = files.quarantine.keep_cut(TORN_TAIL, beside, 0, tail.stray)
    if tail.cut:
        _sync_segment(
            files, folder, fence.number
        )  # a power cut must leave the bytes that the header names, or they look forged
    next_ = fence.copy()
    at = max(now, fence.at)
    next_.enter_next(ignored=tail.cut)
    header = next_.open_segment(generation=files.generation(), at=at, writer=writer)
    cut = len(tail.cut) + len(tail.stray or b"")
    line, record = next_.write(repaired_draft(cut, where), at=at, epoch=next_.epoch, writer=writer)
    try:
        create_whole(folder, beside, header + line, temporary=files.temporary(next_.number))
    except OSError as exc:
        if exc.errno not in FULL or not files.reserve.free():
            raise
        create_whole(folder, beside, header + line, temporary=files.temporary(next_.number))
    if tail.cut:
        _sync_segment(files, folder, fence.number, cut_to=fence.offset)
    fence.adopt(next_)
    _log.warning("%s: cut %d torn bytes off %s; kept in %s", files.session, cut, segment, where)
    return record, move_anchor(files, fence, anchor)


def _sync_segment(files: SessionFiles, folder: int, number: int, cut_to: int | None = None) -> None:
    fd = files.open_segment(folder, number, os.O_RDWR)
    try:
        if cut_to is not None:
            os.ftruncate(fd, cut_to)
        os.fsync(fd)
    finally:
        os.close(fd)
