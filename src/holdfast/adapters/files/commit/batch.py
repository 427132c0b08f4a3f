"""
The records that one commit adds: framed at once, so that later decisions of the same commit see the
records of earlier ones; written together; counted as kept when the anchor has moved.
"""

import os
from collections.abc import Sequence

from holdfast.adapters.files.commit.segment_writer import SegmentWriter
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.tail_repair import move_anchor, write_anchor
from holdfast.errors import InDoubt, Refused
from holdfast.journal.anchor import Anchor
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft, Record, body_of, check_drafts
from holdfast.limits import BATCH_BYTES_MAX


def checked_size(drafts: Sequence[Draft]) -> int:
    """Return an upper bound of the drafts' bytes. Raise Refused for drafts that can't be kept."""
    check_drafts(drafts)
    size = sum(map(len, map(body_of, drafts))) + 512 * len(drafts)
    if size > BATCH_BYTES_MAX:
        raise Refused(
            f"{len(drafts)} records of {size} bytes are more than one commit holds",
            code="too_large",
            hint=f"a commit holds at most {BATCH_BYTES_MAX} bytes",
        )
    return size


class Batch:
    """The caller holds the write lock, and has brought `fence` to the head."""

    def __init__(
        self,
        files: SessionFiles,
        folder: int,
        fence: Fence,
        anchor: Anchor,
        *,
        writer: str,
        now: int,
    ) -> None:
        self._files, self._folder, self._base, self._anchor = files, folder, fence, anchor
        self._writer, self.now = writer, max(now, fence.at)
        # Ahead of the durable position while lines are collected. After each flush it is the base
        # fence again.
        self._ahead = fence
        self.records: list[Record] = []
        self.durable = 0  # how many of the records are durable and anchored
        self._lines: list[bytes] = []
        self._bytes = 0
        self._closing = b""  # the closing line of the segment before, if a new one begins
        self._begins_segment = False
        self._may_use_reserve = False
        # The end of the decision before the last one: the anchor's two slots end one decision
        # apart.
        self._before_last: Anchor | None = None
        self._segment: SegmentWriter | None = None

    @property
    def is_pending(self) -> bool:
        """True if lines were framed and are not durable yet."""
        return bool(self._lines)

    def must_flush_before(self, size: int) -> bool:
        """
        Return True if drafts of that size belong to the next write. Segments end at the same
        places, whether appends were committed together or one by one.
        """
        return bool(self._lines) and (
            self._bytes + size > BATCH_BYTES_MAX or self._ahead.offset >= self._files.segment_bytes
        )

    def add(self, drafts: Sequence[Draft], size: int, epoch: int | None) -> None:
        """
        Frame the drafts of one decision, `size` bytes at most. They are one batch of records, which
        recovery keeps whole or not at all.
        """
        if not drafts:
            return
        if not self._lines:
            self._ahead = self._base.copy()
            if not self._files.has_room(self._ahead):
                self._begin_segment()
        else:
            self._before_last = self._files.anchor_at(self._ahead, 0, 0)
        # A participant's record carries the newest driver's epoch.
        carried = max(self._ahead.epoch, self._anchor.epoch) if epoch is None else epoch
        data, records = self._ahead.frame(drafts, at=self.now, epoch=carried, writer=self._writer)
        self._ahead.move_over(data, records[-1])
        self._lines.append(data)
        self.records += records
        self._bytes += size
        # A driver's records and the results of others report things that already happened.
        self._may_use_reserve |= epoch is not None or drafts[0].has_happened

    def _begin_segment(self) -> None:
        ahead = self._ahead
        if ahead.where != "closed":
            self._closing = ahead.close_segment(at=self.now, writer=self._writer)
        ahead.enter_next()
        self._lines.append(
            ahead.open_segment(
                generation=self._files.generation(), at=self.now, writer=self._writer
            )
        )
        self._begins_segment = True

    def flush(self) -> None:
        """
        Make the records durable and move the base fence. Raise NotSaved, InDoubt or Damaged; the
        base fence then stays where it was.
        """
        failure: OSError | None = None
        try:
            fd = self.write()
            if fd is not None:
                os.fdatasync(fd)
        except OSError as exc:
            failure = exc
        self.settle(failure)

    def write(self) -> int | None:
        """
        Write the collected lines. There are three cases:

        1. Nothing was framed. Return None.
        2. A new segment begins. It is created whole and synced here. Return None.
        3. The lines go to the end of the active segment. Return the descriptor that is to be synced
           before `settle`.
        """
        if not self._lines:
            return None
        segment = self._segment = SegmentWriter(
            self._files,
            self._folder,
            self._base,
            self._anchor,
            writer=self._writer,
            now=self.now,
            may_use_reserve=self._may_use_reserve,
        )
        data = b"".join(self._lines)
        if not self._begins_segment:
            return segment.write(data)
        if self._closing:
            segment.write_and_sync(self._closing)
        segment.create_next(self._ahead.number, data, closing=self._closing)
        return None

    def has_landed(self) -> bool:
        """After a sync that succeeded: check that the path shows the bytes that we wrote."""
        return self._segment is None or self._segment.has_landed()

    def settle(self, failure: OSError | None) -> None:
        """
        After the sync, which `failure` says went wrong: repair what is to be repaired, then move
        the anchor. Raise like `flush`.
        """
        if not self._lines:
            if failure is not None:
                raise failure
            return
        segment = self._segment
        if segment is not None and not self._begins_segment:
            segment.settle(failure)
        elif failure is not None:
            raise failure
        # Commit point: the records are durable. After a crash before this line, the next process
        # that opens the journal finds whole records past the anchor, makes them durable and keeps
        # them, or finds a torn tail and cuts it; nothing was acknowledged. From here on, a journal
        # without them is cut short.
        try:
            if self._before_last is not None:
                self._anchor = write_anchor(self._files, self._before_last, self._anchor)
            self._anchor = move_anchor(self._files, self._ahead, self._anchor)
        except OSError as exc:
            raise InDoubt(
                f"{self._files.session}: the anchor could not be written ({exc})", hint="reopen"
            ) from exc
        self._base.adopt(self._ahead)
        self._ahead = self._base
        self._files.must_rotate = False
        self.durable = len(self.records)
        self._closing, self._lines, self._bytes = b"", [], 0
        self._begins_segment, self._before_last, self._segment = False, None, None
