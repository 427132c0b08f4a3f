"""
The bytes of one commit, put at the end of the active segment or into a new one. Otherwise nothing
is saved, and the caller knows it.

The caller holds the write lock. After a failed write or sync, the bytes go to quarantine, the
segment is cut back to its durable length and synced, and the journal continues in a new segment.
NotSaved is raised only after the cut is durable; before that the append is InDoubt. On a full disk
a driver's records and results that have happened may use the reserve. Only then are the same bytes
written again, on a fresh descriptor.
"""

import contextlib
import logging
import os

from holdfast.adapters.files.home.reserve import FULL
from holdfast.adapters.files.paths import Identity, create_whole, identity, read_at, write_all
from holdfast.adapters.files.session.catch_up import Damaged
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.quarantine import FAILED_BATCH
from holdfast.adapters.files.session.tail_repair import move_anchor
from holdfast.errors import InDoubt, NotSaved
from holdfast.journal.anchor import Anchor
from holdfast.journal.fence import Fence
from holdfast.journal.record import without_macs
from holdfast.journal.verify import Damage

_log = logging.getLogger("holdfast.files")
_REPLACED_MAX = 3  # replacements of a segment by a copy before we give up


class Replaced(Exception):
    """The path names another inode than the one we wrote to. Nothing may be acknowledged."""


class SegmentWriter:
    def __init__(
        self,
        files: SessionFiles,
        folder: int,
        base: Fence,
        anchor: Anchor,
        *,
        writer: str,
        now: int,
        may_use_reserve: bool,
    ) -> None:
        self._files, self._folder, self._base, self._anchor = files, folder, base, anchor
        self._writer, self._now, self._may_use_reserve = writer, now, may_use_reserve
        self._data = b""
        # The file that the bytes were written to; None until the write begins.
        self._wrote_to: Identity | None = None
        self._is_landed = False

    # --- In the active segment

    def write(self, data: bytes) -> int:
        """
        Write at the base fence, without a sync, and return the descriptor. Raise Damaged, with
        nothing written, if the file is not as we know it. Raise OSError for any other failure,
        which `settle` then handles.
        """
        files, base = self._files, self._base
        self._data, self._wrote_to, self._is_landed = data, None, False
        try:
            before = files.stat_segment(base.number)
            fd = files.known(base.number, before)
            if fd is None:
                self._check_prefix()
        except FileNotFoundError:
            raise self._removed() from None
        if before.st_size != base.offset:
            raise self._damaged("changed its size while it was locked")
        if fd is None:
            fd = files.active(self._folder, base.number, before)
        self._wrote_to = identity(before)
        write_all(fd, data, base.offset)
        return fd

    def has_landed(self) -> bool:
        try:
            after = self._files.stat_segment(self._base.number)
        except OSError:
            return False  # `settle` meets the same error
        self._is_landed = identity(
            after
        ) == self._wrote_to and after.st_size == self._base.offset + len(self._data)
        return self._is_landed

    def settle(self, failure: OSError | None) -> None:
        """
        Return once the written bytes are durable and the path shows them; else raise. There are
        four cases:

        1. The sync succeeded and the bytes are where they belong. Nothing is left to do.
        2. The write or the sync failed. The reserve makes the bytes durable, or they are cut.
        3. The file was replaced by a copy meanwhile. If the copy holds the bytes that we know, it
           is the journal now, and the bytes are written there unless it has them.
        4. The file has other bytes, or is gone. Raise Damaged.
        """
        if failure is None and (self._is_landed or self.has_landed()):
            return
        if failure is not None:
            if self._wrote_to is None:
                raise failure  # nothing was written yet
            self._recover(failure)
        try:
            self._check_after()
        except Replaced:
            if not self._copy_has_bytes():
                self.write_and_sync(self._data)

    def write_and_sync(self, data: bytes) -> None:
        for _ in range(_REPLACED_MAX):
            try:
                fd = self.write(data)
                os.fdatasync(fd)
            except OSError as exc:
                if self._wrote_to is None:
                    raise
                self._recover(exc)
            try:
                return self._check_after()
            except Replaced:
                if self._copy_has_bytes():
                    return None
        raise NotSaved(
            f"{self._files.session}: its segment is being replaced again and again",
            hint="stop the program that does it",
        )

    def _recover(self, failure: OSError) -> None:
        """Handle a failed write or sync: return if the reserve made it durable, else raise."""
        # Never use this descriptor again: it has reported its error, and a second sync on it could
        # claim success.
        with contextlib.suppress(OSError):
            self._files.let_go()
        if not self._retry_from_reserve(failure):
            self._undo(failure)

    def _check_after(self) -> None:
        files, base = self._files, self._base
        try:
            after = files.stat_segment(base.number)
        except FileNotFoundError:
            files.check_place(self._folder)
            raise self._removed() from None
        if identity(after) != self._wrote_to:
            files.check_place(self._folder)
            raise Replaced
        if after.st_size != base.offset + len(self._data):
            raise self._damaged("was changed while it was written")

    def _check_prefix(self) -> None:
        fd = self._files.open_segment(self._folder, self._base.number)
        try:
            if self._base.prefix_holds(read_at(fd, 0, self._base.offset)):
                return
        finally:
            os.close(fd)
        raise self._damaged("was replaced by other bytes", byte=0)

    def _damaged(self, what: str, byte: int | None = None) -> Damaged:
        base = self._base
        detail = f"{self._files.name(base.number)} {what}"
        at = base.offset if byte is None else byte
        return Damaged(Damage("broken", detail, base.seq, base.number, at))

    def _removed(self) -> Damaged:
        base = self._base
        detail = f"{self._files.name(base.number)} was removed while it was written"
        return Damaged(Damage("cut_short", detail, base.seq, base.number, base.offset))

    def _copy_has_bytes(self) -> bool:
        """
        Return True if the copy was made after our write; it is then synced. Return False if it was
        made before our write, so that we write again. Raise Damaged for any other content.
        """
        base, data = self._base, self._data
        fd = self._files.open_segment(self._folder, base.number, os.O_RDWR)
        try:
            status = os.fstat(fd)
            has_length = status.st_size == base.offset + len(data)
            rest = read_at(fd, base.offset, len(data)) if has_length else b""
            if not base.prefix_holds(read_at(fd, 0, base.offset)) or (
                rest != data and status.st_size != base.offset
            ):
                raise self._damaged("was replaced by other bytes", byte=0)
            if rest != data:
                return False
            os.fsync(fd)
            os.fsync(self._folder)
            name = self._files.name(base.number)
            now = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            return identity(now) == identity(status)
        finally:
            os.close(fd)

    def _retry_from_reserve(self, failure: OSError) -> bool:
        """
        Retry on a full disk, because these records report things that already happened. The failed
        bytes are durably cut before the same bytes are written again.
        """
        if failure.errno not in FULL or not self._may_use_reserve:
            return False
        base = self._base
        with contextlib.suppress(OSError):
            fd = self._files.open_segment(self._folder, base.number, os.O_RDWR)
            try:
                os.ftruncate(fd, base.offset)
                os.fsync(fd)
                if not self._files.reserve.free():
                    return False
                write_all(fd, self._data, base.offset)
                os.fdatasync(fd)
            finally:
                os.close(fd)
            _log.warning("%s: the disk is full; the reserve was used", self._files.session)
            return True
        return False

    def _undo(self, failure: OSError) -> None:
        """Cut the failed write and keep the batch in quarantine. Always raises."""
        files, base = self._files, self._base
        files.must_rotate = True
        try:
            kept = self._keep(files.name(base.number), base.offset, self._data)
            self._cut_back()
        except OSError as exc:
            raise InDoubt(
                f"{files.session}: a write failed ({failure}), and undoing it did too ({exc})",
                hint="open the session again: its journal shows whether it was written",
            ) from failure
        self._go_on_in_new_segment()
        raise self._not_saved("the write failed", failure, kept) from failure

    def _not_saved(self, what: str, failure: OSError, kept: str) -> NotSaved:
        return NotSaved(
            f"{self._files.session}: {what} ({failure}); nothing was saved; the batch is kept in "
            f"{kept}",
            hint="make room on the disk"
            if failure.errno in FULL
            else "look at the disk, then try again",
        )

    def _cut_back(self) -> None:
        """
        Cut durably, on a fresh descriptor: the old one has reported its error, and a second sync on
        it could claim success.
        """
        fd = self._files.open_segment(self._folder, self._base.number, os.O_RDWR)
        try:
            os.ftruncate(fd, self._base.offset)
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
        files = self._files
        if self._base.where == "start":
            return
        fresh = self._base.copy()
        fresh.enter_next()
        header = fresh.open_segment(
            generation=files.generation(), at=self._now, writer=self._writer, more=False
        )
        with contextlib.suppress(OSError):
            create_whole(
                self._folder,
                files.name(fresh.number),
                header,
                temporary=files.temporary(fresh.number),
            )
            move_anchor(files, fresh, self._anchor)
            files.must_rotate = False

    # --- In a new segment

    def create_next(self, number: int, data: bytes, *, closing: bytes) -> None:
        """
        Create the segment, whole and durable, or raise NotSaved or InDoubt. `closing` is the line
        that was written to the end of the segment before.
        """
        files = self._files
        name = files.name(number)
        try:
            create_whole(self._folder, name, data, temporary=files.temporary(number))
        except OSError as exc:
            if (
                exc.errno in FULL
                and self._may_use_reserve
                and not files.has_segment(self._folder, number)
                and files.reserve.free()
            ):
                with contextlib.suppress(OSError):
                    return create_whole(self._folder, name, data, temporary=files.temporary(number))
            self._undo_new_segment(name, data, closing, exc)

    def _undo_new_segment(self, name: str, data: bytes, closing: bytes, failure: OSError) -> None:
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
            if closing:
                self._cut_back()
        except OSError as exc:
            raise InDoubt(
                f"{self._files.session}: a new segment failed ({failure}), and undoing it did too "
                f"({exc})",
                hint="reopen",
            ) from failure
        raise self._not_saved("a new segment could not be made", failure, kept) from failure
