"""
One commit: frame the drafts, write once, sync once, move the anchor. Otherwise nothing is saved,
and the caller knows it.

The caller holds the write lock and has caught up the fence. After a failed write or sync, the batch
goes to quarantine, the segment is cut back to its durable length and synced, and the journal
continues in a new segment. NotSaved is raised only after the cut is durable; before that the append
is InDoubt. On a full disk a driver's records may use the reserve. Only then are the same bytes
written again, on a fresh descriptor.
"""

import contextlib
import logging
import os
from collections.abc import Sequence

from holdfast.adapters.files.home.reserve import FULL
from holdfast.adapters.files.paths import create_whole, read_at, write_all
from holdfast.adapters.files.session.catch_up import Damaged, move_anchor, write_anchor
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.quarantine import FAILED_BATCH
from holdfast.errors import InDoubt, NotSaved, Refused
from holdfast.journal.anchor import Anchor
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft, Record, check_draft, without_macs
from holdfast.journal.verify import Damage
from holdfast.limits import BATCH_BYTES_MAX

_log = logging.getLogger("holdfast.files")
_REPLACED_MAX = 3  # replacements of a segment by a copy before we give up


Identity = tuple[int, int]
"""A file's device and inode."""


def identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


class Replaced(Exception):
    """The path names another inode than the one we wrote to. Nothing may be acknowledged."""


def check_drafts(drafts: Sequence[Draft]) -> int:
    """Return an upper bound of the drafts' bytes. Raise Refused for drafts that can't be kept."""
    size = 0
    for draft in drafts:
        check_draft(draft)
        size += len(draft.body) + 512
    if size > BATCH_BYTES_MAX:
        raise Refused(
            f"{len(drafts)} records of {size} bytes are more than one commit holds",
            code="too_large",
            hint=f"a commit holds at most {BATCH_BYTES_MAX} bytes",
        )
    return size


class Batch:
    """
    The records that one commit adds.

    They are framed at once, so that later decisions of the same commit see the records of earlier
    ones.
    """

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
        # Ahead of the durable position while a batch is collected. After each flush it is the base
        # fence again.
        self.fence = fence
        self.records: list[Record] = []
        self.may_use_reserve = False
        self._closing = b""
        self._lines: list[bytes] = []
        self._bytes = 0
        self._new_segment = False
        # The end of the decision before the last one: the anchor's two slots end one decision
        # apart.
        self._before_last: Anchor | None = None

    def add(self, drafts: list[Draft], epoch: int | None) -> None:
        """
        Frame all drafts or none. The drafts of one decision are one batch of records, which
        recovery keeps whole or not at all.
        """
        if not drafts:
            return
        size = check_drafts(drafts)
        if self._bytes + size > BATCH_BYTES_MAX or self.fence.offset >= self._files.segment_bytes:
            # Segments end at the same places, whether appends were committed together or one by
            # one.
            self.flush()
        if not self._lines:
            self.fence = self._base.copy()
            self._start_segment_if_full()
        else:
            self._before_last = self._files.anchor_at(self.fence, 0, 0)
        carried = (
            max(self.fence.epoch, self._anchor.epoch) if epoch is None else epoch
        )  # a participant's record carries the newest driver's epoch
        for left, draft in enumerate(drafts, start=1 - len(drafts)):
            line, record = self.fence.write(
                draft, at=self.now, epoch=carried, writer=self._writer, more=left < 0
            )
            self._lines.append(line)
            self.records.append(record)
        self._bytes += size
        self.may_use_reserve |= epoch is not None

    def _start_segment_if_full(self) -> None:
        if self.fence.where != "closed":
            if self.fence.offset < self._files.segment_bytes and not self._files.must_rotate:
                return
            self._closing = self.fence.close_segment(at=self.now, writer=self._writer)
        self.fence.enter_next()
        self._lines.append(
            self.fence.open_segment(
                generation=self._files.generation(), at=self.now, writer=self._writer
            )
        )
        self._new_segment = True

    def flush(self) -> None:
        """
        Make the records durable and move the base fence. Raise NotSaved, InDoubt or Damaged; the
        base fence then stays where it was.
        """
        if not self._lines:
            return
        data = b"".join(self._lines)
        if self._new_segment:
            if self._closing:
                self.write_in_place(self._base, self._closing)
            self._write_new_segment(data)
        else:
            self.write_in_place(self._base, data)
        try:
            # Commit point: the records are durable. After a crash before the anchor is moved, the
            # next process that opens the journal keeps them too.
            if self._before_last is not None:
                self._anchor = write_anchor(self._files, self._before_last, self._anchor)
            self._anchor = move_anchor(self._files, self.fence, self._anchor)
        except OSError as exc:
            raise InDoubt(
                f"{self._files.session}: the anchor could not be written ({exc})", hint="reopen"
            ) from exc
        self._base.adopt(self.fence)
        self.fence = self._base
        self._files.must_rotate = False
        self._closing, self._lines, self._bytes, self._new_segment, self._before_last = (
            b"",
            [],
            0,
            False,
            None,
        )

    def write_in_place(self, base: Fence, data: bytes) -> None:
        for _ in range(_REPLACED_MAX):
            try:
                return self._write_once(base, data)
            except Replaced:
                # A copy took the file's place. If it holds the bytes that we know, it is the
                # journal now.
                if self._copy_has(base, data):
                    return None
        raise NotSaved(
            f"{self._files.session}: its segment is being replaced again and again",
            hint="stop the program that does it",
        )

    def _write_once(self, base: Fence, data: bytes) -> None:
        """
        Write and sync. Path and descriptor name the same file, of the expected size, before and
        after.
        """
        files, name = self._files, self._files.name(base.number)
        try:
            before = files.stat_segment(base.number)
            if not files.is_known(base.number, before):
                self._check_prefix(base)
        except FileNotFoundError:
            raise self._removed(base, name) from None
        if before.st_size != base.offset:
            raise Damaged(
                Damage(
                    "broken",
                    f"{name} changed its size while it was locked",
                    base.seq,
                    base.number,
                    base.offset,
                )
            )
        fd = files.active(self._folder, base.number, before)
        try:
            write_all(fd, data, base.offset)
            os.fdatasync(fd)
        except OSError as exc:
            self.recover(base, data, exc)
        self._check_after(base, data, identity(before))

    def recover(self, base: Fence, data: bytes, failure: OSError) -> None:
        """Handle a failed write or sync: return if the reserve made it durable, else raise."""
        # Never use this descriptor again: it has reported its error, and a second sync on it could
        # claim success.
        with contextlib.suppress(OSError):
            self._files.let_go()
        if not self._retry_from_reserve(base, data, failure):
            self._undo(base, data, failure)

    def look_again(self, base: Fence, data: bytes, wrote_to: Identity) -> None:
        """
        Check a synced write that the path does not show. Return if the bytes are in a copy that
        took the file's place, or after writing them there; else raise.
        """
        try:
            self._check_after(base, data, wrote_to)
        except Replaced:
            if not self._copy_has(base, data):
                self.write_in_place(base, data)

    def _check_after(self, base: Fence, data: bytes, wrote_to: Identity) -> None:
        files, name = self._files, self._files.name(base.number)
        try:
            after = files.stat_segment(base.number)
        except FileNotFoundError:
            files.check_place(self._folder)
            raise self._removed(base, name) from None
        if identity(after) != wrote_to:
            files.check_place(self._folder)
            raise Replaced
        if after.st_size != base.offset + len(data):
            raise Damaged(
                Damage(
                    "broken",
                    f"{name} was changed while it was written",
                    base.seq,
                    base.number,
                    base.offset,
                )
            )

    def _check_prefix(self, base: Fence) -> None:
        fd = self._files.open_segment(self._folder, base.number)
        try:
            if base.prefix_holds(read_at(fd, 0, base.offset)):
                return
        finally:
            os.close(fd)
        name = self._files.name(base.number)
        raise Damaged(
            Damage("broken", f"{name} was replaced by other bytes", base.seq, base.number, 0)
        )

    def _removed(self, base: Fence, name: str) -> Damaged:
        return Damaged(
            Damage(
                "cut_short",
                f"{name} was removed while it was written",
                base.seq,
                base.number,
                base.offset,
            )
        )

    def _copy_has(self, base: Fence, data: bytes) -> bool:
        """
        Return True if the copy was made after our write; it is then synced. Return False if it was
        made before our write, so that we write again. Raise Damaged for any other content.
        """
        fd = self._files.open_segment(self._folder, base.number, os.O_RDWR)
        try:
            status, name = os.fstat(fd), self._files.name(base.number)
            rest = (
                read_at(fd, base.offset, len(data))
                if status.st_size == base.offset + len(data)
                else b""
            )
            if not base.prefix_holds(read_at(fd, 0, base.offset)) or (
                rest != data and status.st_size != base.offset
            ):
                raise Damaged(
                    Damage(
                        "broken", f"{name} was replaced by other bytes", base.seq, base.number, 0
                    )
                )
            if rest != data:
                return False
            os.fsync(fd)
            os.fsync(self._folder)
            now = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            return (now.st_ino, now.st_dev) == (status.st_ino, status.st_dev)
        finally:
            os.close(fd)

    def _retry_from_reserve(self, base: Fence, data: bytes, failure: OSError) -> bool:
        """
        Retry on a full disk, because a driver's records report things that already happened. The
        failed bytes are durably cut before the same bytes are written again.
        """
        if failure.errno not in FULL or not self.may_use_reserve:
            return False
        with contextlib.suppress(OSError):
            fd = self._files.open_segment(self._folder, base.number, os.O_RDWR)
            try:
                os.ftruncate(fd, base.offset)
                os.fsync(fd)
                if not self._files.reserve.free():
                    return False
                write_all(fd, data, base.offset)
                os.fdatasync(fd)
            finally:
                os.close(fd)
            _log.warning("%s: the disk is full; the reserve was used", self._files.session)
            return True
        return False

    def _undo(self, base: Fence, data: bytes, failure: OSError) -> None:
        """Cut the failed write and keep the batch in quarantine. Always raises."""
        files, name = self._files, self._files.name(base.number)
        files.must_rotate = True
        try:
            kept = self._keep(name, base.offset, data)
            self._cut_back(base)
        except OSError as exc:
            raise InDoubt(
                f"{files.session}: a write failed ({failure}), and undoing it did too ({exc})",
                hint="reopen: what is found then is the truth",
            ) from failure
        self._go_on_in_new_segment()
        raise NotSaved(
            f"{files.session}: the write failed ({failure}); nothing was saved; the batch is kept "
            f"in {kept}",
            hint="make room on the disk"
            if failure.errno in FULL
            else "look at the disk, then try again",
        ) from failure

    def _cut_back(self, base: Fence) -> None:
        """
        Cut durably, on a fresh descriptor: the old one has reported its error, and a second sync on
        it could claim success.
        """
        fd = self._files.open_segment(self._folder, base.number, os.O_RDWR)
        try:
            os.ftruncate(fd, base.offset)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _keep(self, name: str, offset: int, data: bytes) -> str:
        """
        Keep a failed batch for people to read. Its macs are removed, so that it can't be put in the
        place of a saved batch.
        """
        data = without_macs(data)
        try:
            return self._files.quarantine.keep_cut(FAILED_BATCH, name, offset, data)
        except OSError as exc:
            if exc.errno not in FULL or not self._files.reserve.free():
                raise
            return self._files.quarantine.keep_cut(FAILED_BATCH, name, offset, data)

    def _go_on_in_new_segment(self) -> None:
        """
        Continue in a new segment, so that nobody appends where a write failed. If the disk has no
        room for it, `must_rotate` makes the next commit try again.
        """
        if self._base.where == "start":
            return
        fresh = self._base.copy()
        fresh.enter_next()
        header = fresh.open_segment(
            generation=self._files.generation(), at=self.now, writer=self._writer, more=False
        )
        with contextlib.suppress(OSError):
            name = self._files.name(fresh.number)
            create_whole(self._folder, name, header, temporary=self._files.temporary(fresh.number))
            move_anchor(self._files, fresh, self._anchor)
            self._files.must_rotate = False

    def _write_new_segment(self, data: bytes) -> None:
        files, number = self._files, self.fence.number
        name = files.name(number)
        try:
            create_whole(self._folder, name, data, temporary=files.temporary(number))
        except OSError as exc:
            if (
                exc.errno in FULL
                and self.may_use_reserve
                and not files.has_segment(self._folder, number)
                and files.reserve.free()
            ):
                with contextlib.suppress(OSError):
                    return create_whole(self._folder, name, data, temporary=files.temporary(number))
            self._undo_new_segment(name, data, exc)

    def _undo_new_segment(self, name: str, data: bytes, failure: OSError) -> None:
        """
        Remove the new segment. Always raises.

        The rename may have happened even if the folder's sync failed. The closing record is cut
        too, because its batch was not saved.
        """
        try:
            kept = self._keep(name, 0, data)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)
            os.fsync(self._folder)
            if self._closing:
                self._cut_back(self._base)
        except OSError as exc:
            raise InDoubt(
                f"{self._files.session}: a new segment failed ({failure}), and undoing it did too "
                f"({exc})",
                hint="reopen",
            ) from failure
        raise NotSaved(
            f"{self._files.session}: a new segment could not be made ({failure}); nothing was "
            f"saved; the batch is kept in {kept}",
            hint="make room on the disk"
            if failure.errno in FULL
            else "look at the disk, then try again",
        ) from failure
