"""
The commit: the one way in which records get into a journal. With the write lock held it takes one
or more appends through these steps:

1. `begin` brings every handle to the head, and lets each append decide in turn.
2. `write` puts all framed lines into the segment with one call.
3. The caller syncs, here or in another thread.
4. `settle` checks that the bytes are where they belong, or repairs them, and moves the anchor.
5. `settle` acknowledges: handles move, and each append gets its outcome.

There are three cases for step 1:

1. The journal is as we left it, and the segment has room. This is the common case. Nothing is read,
   so the event loop's own thread may begin such a commit.
2. Something came since: records of others, a torn tail, a replaced file, a full segment. It takes
   reads or further writes, in a thread that may wait.
3. The session or the home can't be written at all. Nothing is decided.
"""

import threading
import weakref
from typing import TYPE_CHECKING

from holdfast.adapters.files.commit.batch import Batch, checked_size
from holdfast.adapters.files.commit.queued_append import QueuedAppend
from holdfast.adapters.files.paths import disk_refused
from holdfast.adapters.files.session.catch_up import Damaged, catch_up, unchanged_anchor
from holdfast.adapters.files.session.locks import FolderLock
from holdfast.errors import Fenced, InvariantBroken
from holdfast.journal.anchor import Anchor
from holdfast.journal.record import Head
from holdfast.ports.journal_store import Appended, Section

if TYPE_CHECKING:
    from holdfast.adapters.files.commit.append_queue import AppendQueue


class _Deciding(threading.local):
    now = False


deciding = _Deciding()
"""Set in a thread while it is inside a caller's decision."""


class Commit:
    """The creator of this object holds the lock, and releases it."""

    __slots__ = ("_batch", "_before", "_files", "_host", "_queue", "_requests", "lock")

    def __init__(
        self, queue: "AppendQueue", requests: list[QueuedAppend], lock: FolderLock
    ) -> None:
        self._queue, self._files, self._host = queue, queue.files, queue.host
        self._requests, self.lock = requests, lock
        self._batch: Batch | None = None
        # The head before this commit. Set with the batch.
        self._before: Head

    def begin(self, *, at_once: bool) -> bool:
        """
        Decide every append. With `at_once`, return False with nothing decided unless this is case 1
        of the module. An error of a caller's decision becomes that append's error.
        """
        requests = self._requests = [each for each in self._requests if each.is_usable()]
        if not requests:
            return True
        first = requests[0].journal
        if not self._host.check_alive(first, at_once=at_once):
            return False
        newest = self._queue.newest()
        for request in requests:
            request.journal.move_up_to(newest)
        now = self._host.now_ms()
        if at_once:
            anchor = self._anchor_at_once()
            if anchor is None:
                return False
        else:
            anchor = self._catch_up(now)
        self._before = first.fence.head
        self._batch = batch = Batch(
            self._files,
            self.lock.fd,
            first.fence,
            anchor,
            writer=self._host.writer,
            now=now,
        )
        for request in requests:
            self._decide(batch, request, anchor)
        return True

    def _anchor_at_once(self) -> Anchor | None:
        """Return the anchor in case 1 of the module, else None."""
        files, (request, *others) = self._files, self._requests
        fence = request.journal.fence
        if others or not files.has_room(fence) or not request.journal.has_at_hand(request.since):
            return None
        return unchanged_anchor(files, self.lock.fd, fence, request.check)

    def _catch_up(self, now: int) -> Anchor:
        anchor: Anchor | None = None
        for request in self._requests:
            caught = catch_up(
                self._files,
                self.lock.fd,
                request.journal.fence,
                request.check,
                writer=self._host.writer,
                now=now,
            )
            if caught.records:
                request.journal.remember(caught.records)
            anchor = caught.anchor
        if anchor is None:
            raise InvariantBroken("a commit without appends was to catch up")
        return anchor

    def _decide(self, batch: Batch, request: QueuedAppend, anchor: Anchor) -> None:
        deciding.now = True
        try:
            if request.epoch is not None:
                self._check_epoch(request.epoch, anchor)
            request.before = request.journal.records_after(request.since)
            if batch.durable:  # the handle is past records that the batch has too
                head = self._before.seq
                request.before = [each for each in request.before if each.seq <= head]
            drafts = request.decide(Section((*request.before, *batch.records), batch.now))
            size = checked_size(drafts)
        except Damaged:
            raise
        except Exception as exc:  # noqa: BLE001  a refusal, delivered after this commit
            request.error = (
                disk_refused(self._files.session, exc) if isinstance(exc, OSError) else exc
            )
        else:
            if batch.must_flush_before(size):
                batch.flush()
                self._acknowledge()
            batch.add(drafts, size, request.epoch)
        finally:
            deciding.now = False
        request.upto = len(batch.records)

    def _check_epoch(self, epoch: int, anchor: Anchor) -> None:
        if epoch != self._queue.claimed_epoch() or epoch < anchor.epoch:
            raise Fenced(
                f"{self._files.session}: epoch {epoch} does not drive it any more (it is "
                f"{anchor.epoch})",
                hint="stop this driver; another one goes on",
            )

    @property
    def owes_a_sync(self) -> bool:
        return self._batch is not None and self._batch.is_pending

    def write(self) -> int | None:
        """See `Batch.write`."""
        return self._batch.write() if self._batch is not None else None

    def has_landed(self) -> bool:
        """See `Batch.has_landed`."""
        return self._batch is None or self._batch.has_landed()

    def settle(self, failure: OSError | None) -> None:
        """
        Repair a write or sync that failed, if there was one. Move the anchor and acknowledge. Raise
        if the records are not durable; nothing is then acknowledged.
        """
        if self._batch is not None:
            self._batch.settle(failure)
        self._acknowledge()

    def complete(self) -> None:
        """Write, sync and settle in this thread."""
        if self._batch is not None:
            self._batch.flush()
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Give every append its outcome whose records, and all before them, are durable."""
        batch = self._batch
        if batch is None:
            return
        first = self._requests[0].journal
        self._queue.newest = weakref.ref(first)
        durable = batch.records[: batch.durable]
        for request in self._requests:
            journal = request.journal
            if journal is not first and journal.fence.seq < first.fence.seq:
                journal.fence = first.fence.copy()
            journal.remember(durable)
            if request.is_settled or request.upto > len(durable):
                continue
            request.is_settled = True
            if request.error is None:
                ours = durable[: request.upto]
                head = Head(ours[-1].seq, ours[-1].mac) if ours else self._before
                request.result = Appended(head, (*request.before, *ours))
