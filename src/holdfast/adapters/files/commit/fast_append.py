"""
The common case: a single append to a journal that has not changed since our last one.

It is the same commit as in commit/append_queue.py and commit/commit.py, without the steps that such
an append does not need. Any other case (records of other writers, a full segment, a replaced file)
is left to those modules before anything is decided or written. They also repair a failed write. The
append has two halves, so that an asynchronous caller's own thread decides and another thread waits
for the disk.
"""

import os
import threading
from typing import TYPE_CHECKING

from holdfast.adapters.files.commit.commit import Batch, Identity, check_drafts, identity
from holdfast.adapters.files.paths import write_all
from holdfast.adapters.files.session.catch_up import is_unchanged_since, move_anchor
from holdfast.adapters.files.session.locks import FolderLock
from holdfast.errors import InDoubt
from holdfast.journal.anchor import Anchor
from holdfast.journal.fence import Fence
from holdfast.journal.record import Record
from holdfast.ports.journal_store import Appended, Section

if TYPE_CHECKING:
    from holdfast.adapters.files.commit.append_queue import AppendQueue, Request


class _Deciding(threading.local):
    now = False


deciding = _Deciding()
"""Set in a thread while it is inside a caller's decision."""


class FastAppend:
    """
    One request, decided with the lock held. `complete` makes it durable. The creator of this object
    releases the lock.
    """

    __slots__ = (
        "_anchor",
        "_data",
        "_lane",
        "_now",
        "_records",
        "_request",
        "_wrote_to",
        "fd",
        "lock",
    )

    def __init__(
        self, lane: "AppendQueue", request: "Request", lock: FolderLock, anchor: Anchor, now: int
    ) -> None:
        self._lane, self._request, self.lock, self._anchor, self._now = (
            lane,
            request,
            lock,
            anchor,
            now,
        )
        self._data = b""
        self._wrote_to: Identity | None = None
        self.fd = lane.files.active_fd
        self._records: list[Record] = []

    @staticmethod
    def begin(
        lane: "AppendQueue", request: "Request", lock: FolderLock, *, at_once: bool
    ) -> "FastAppend | None":
        """
        Decide the request, with the lock held. Return None, with nothing decided, if this is not
        the common case. An error of the caller's decision becomes the request's error.
        """
        journal, files, host = request.journal, lane.files, lane.host
        fence = journal.fence
        if not host.check_alive(journal, at_once=at_once):
            return None
        journal.check_usable()
        if fence.where != "middle" or fence.offset >= files.segment_bytes or files.must_rotate:
            return None
        if request.since.seq != fence.seq and not journal.has_at_hand(request.since):
            return None
        anchor = files.anchor.read(files.keys)
        if (
            anchor is None
            or anchor.seq != fence.seq
            or anchor.mac != fence.mac
            or not is_unchanged_since(files, lock.fd, fence, request.check)
        ):
            return None
        alone = FastAppend(lane, request, lock, anchor, max(host.now_ms(), fence.at))
        try:
            alone._decide(fence)
        except Exception as exc:  # noqa: BLE001  the caller's own refusal
            lane.refused(request, exc)
        return alone

    def _decide(self, fence: Fence) -> None:
        request, lane = self._request, self._lane
        if request.epoch is not None:
            lane.check_epoch(request, self._anchor)
        if request.since != (fence.seq, fence.mac):
            request.before = request.journal.records_after(request.since)
        deciding.now = True
        try:
            drafts = request.decide(Section(tuple(request.before), self._now))
        finally:
            deciding.now = False
        if drafts:
            check_drafts(drafts)
            epoch = (
                max(fence.epoch, self._anchor.epoch) if request.epoch is None else request.epoch
            )  # a participant's record carries the newest driver's epoch
            self._data, self._records = fence.frame(
                drafts, at=self._now, epoch=epoch, writer=lane.host.writer
            )

    def complete(self) -> None:
        """
        Make the append durable and acknowledge it. On failure raise like `Batch.flush`; nothing is
        then acknowledged.
        """
        if self.owes_a_sync:
            failure: OSError | None = None
            try:
                if self.write():
                    os.fdatasync(self.fd)
            except OSError as exc:
                failure = exc
            if failure is not None or not self.has_landed():
                self.mend(failure)
        self.acknowledge()

    @property
    def owes_a_sync(self) -> bool:
        return bool(self._data) and self._request.error is None

    def write(self) -> bool:
        """
        Write the bytes, without a sync. Return False, with nothing written, if the file has
        changed.

        `begin` has just checked that the path names the descriptor's file. The size is checked
        again because the decision ran in between.
        """
        status, offset = os.fstat(self.fd), self._request.journal.fence.offset
        if status.st_size != offset or status.st_nlink != 1:
            return False
        self._wrote_to = identity(status)
        write_all(self.fd, self._data, offset)
        return True

    def has_landed(self) -> bool:
        """After the sync: check that the path shows the bytes that we wrote."""
        fence = self._request.journal.fence
        try:
            after = self._lane.files.stat_segment(fence.number)
        except OSError:
            return False  # the repair meets the same error
        return identity(after) == self._wrote_to and after.st_size == fence.offset + len(self._data)

    def mend(self, failure: OSError | None) -> None:
        """
        Repair an append whose write or sync failed, or whose bytes the path does not show. The
        append is durable when this returns; else it raises.
        """
        base, data, batch = self._request.journal.fence, self._data, self._as_batch()
        if self._wrote_to is None and failure is None:
            return batch.write_in_place(base, data)  # reports the change of the file
        if failure is not None:
            batch.recover(base, data, failure)
        return batch.look_again(base, data, self._wrote_to or (0, 0))

    def acknowledge(self) -> None:
        request = self._request
        if request.error is not None:
            return
        journal = request.journal
        if self._data:
            journal.fence.move_over(self._data, self._records[-1])
            try:
                move_anchor(self._lane.files, journal.fence, self._anchor)
            except OSError as exc:
                raise InDoubt(
                    f"{self._lane.files.session}: the anchor could not be written ({exc})",
                    hint="reopen",
                ) from exc
            journal.remember(self._records)
        request.result = Appended(journal.fence.head, (*request.before, *self._records))

    def _as_batch(self) -> Batch:
        lane = self._lane
        batch = Batch(
            lane.files,
            self.lock.fd,
            self._request.journal.fence,
            self._anchor,
            writer=lane.host.writer,
            now=self._now,
        )
        batch.may_use_reserve = self._request.epoch is not None
        return batch
