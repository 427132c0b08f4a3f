"""
The driver's claim: `flock` on the folder `driver/` in the session's folder. The folder is created
by the claim and removed when the session is closed.

Between two drives of one process its descriptor is kept, unlocked, and others may lock it
meanwhile. Creating, finding and removing a folder costs more than all other steps of a claim.

After locking, and in every append of a driver, the path must still name the locked folder. The
epoch is one more than the larger of the anchor's claim and the head's. It is written to the
anchor's claim at once, so a later driver's epoch is higher even if this driver never wrote. No slot
moves.
"""

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from holdfast.adapters.files.paths import FOLDER_MODE, identity, open_folder, walk
from holdfast.adapters.files.session.catch_up import Damaged, catch_up, nothing_new
from holdfast.adapters.files.session.locks import (
    KeptFile,
    close_kept,
    keep_from_children,
    keeps_too_many,
)
from holdfast.ports.journal_store import Check

if TYPE_CHECKING:
    from holdfast.adapters.files.session.files import SessionFiles
    from holdfast.adapters.files.session.journal import FileJournal
    from holdfast.adapters.files.store import FileStore

DRIVER = "driver"
_TRIES = 100  # each failure means that another driver came and went between two of our calls


class WouldWait(Exception):
    """The claim has to wait, so it must run in a thread that may wait."""


class DriverClaim:
    """See `holdfast.ports.journal_store.Claim`."""

    def __init__(self, journal: "FileJournal", store: "FileStore", fd: int, epoch: int) -> None:
        self._journal, self._store, self._fd, self.epoch = journal, store, fd, epoch
        self._path = _path(journal.files)
        # An open descriptor names one folder for as long as it is open.
        self._locked = identity(os.fstat(fd))
        self._released = False
        journal.queue.claimed_epoch = self.living_epoch
        store.claims.add(self)

    def living_epoch(self) -> int | None:
        """Return our epoch while the path names the folder that we locked, else None."""
        if self._released:
            return None
        try:
            named = os.stat(self._path, dir_fd=self._journal.files.home, follow_symlinks=False)
        except OSError:
            return None
        return self.epoch if identity(named) == self._locked else None

    async def release(self) -> None:
        self.release_now()

    def release_now(self) -> None:
        """Release the claim without waiting."""
        if self._released:
            return
        self._released = True
        self._store.claims.discard(self)
        files = self._journal.files
        if self._journal.queue.claimed_epoch == self.living_epoch:
            self._journal.queue.claimed_epoch = lambda: None
        if keeps_too_many():
            _remove(files, self._fd)
        else:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            files.driver_folders.append(KeptFile(self._fd))


def try_claim(
    journal: "FileJournal", store: "FileStore", *, at_once: bool = False
) -> DriverClaim | None:
    """
    Claim the session, or return None if another driver has it. Never waits for another driver, even
    for one that is stopped while it holds the write lock.

    With `at_once`, do not wait for the write lock either. Raise `WouldWait`, with nothing claimed,
    if the lock is not free or the journal must be read first.
    """
    fd = _lock_driver_folder(journal.files)
    if fd is None:
        return None
    try:
        return DriverClaim(
            journal,
            store,
            fd,
            _next_epoch_at_once(journal, store) if at_once else _next_epoch(journal, store),
        )
    except Damaged as exc:
        close_kept(fd)
        raise journal.sealed_by(exc.damage, while_open=True) from None
    except BaseException:
        close_kept(fd)
        raise


def _next_epoch_at_once(journal: "FileJournal", store: "FileStore") -> int:
    files, fence = journal.files, journal.fence
    lock = files.try_acquire() if journal.sealed is None else None
    if lock is None:
        raise WouldWait
    try:
        if not store.check_alive(journal, at_once=True):
            raise WouldWait
        journal.check_usable()
        anchor = files.anchor.read(files.keys)
        if anchor is None or not nothing_new(files, lock.fd, fence, anchor, Check.SHORT):
            raise WouldWait
        epoch = max(anchor.epoch, fence.epoch) + 1
        files.anchor.claim(epoch, fence.generation, files.keys)
    finally:
        lock.release()
    return epoch


def _next_epoch(journal: "FileJournal", store: "FileStore") -> int:
    files, fence = journal.files, journal.fence
    journal.check_usable()
    with files.locked() as folder:
        store.check_alive(journal)
        caught = catch_up(
            files, folder, fence, Check.SHORT, writer=store.writer, now=store.now_ms()
        )
        journal.remember(caught.records)
        epoch = max(caught.anchor.epoch, fence.epoch) + 1
        files.anchor.claim(epoch, fence.generation, files.keys)
    return epoch


def remove_folder(files: "SessionFiles") -> None:
    """
    Clean up after a closed handle: remove the driver folder, unless another process has the claim
    now.
    """
    while (kept := _kept(files)) is not None:
        if _is_locked(kept):
            _remove(files, kept)
        else:
            close_kept(kept)


def _remove(files: "SessionFiles", fd: int) -> None:
    """
    Remove the driver folder, which we have locked. It is not synced: a folder that is back after a
    power cut does no harm.
    """
    with contextlib.suppress(OSError):
        if _is_current(files, fd):
            os.rmdir(_path(files), dir_fd=files.home)
    close_kept(fd)


def _kept(files: "SessionFiles") -> int | None:
    """Return the folder's descriptor from an earlier drive. The caller owns it from now on."""
    try:
        return files.driver_folders.pop().give()
    except IndexError:
        return None


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_driver_folder(files: "SessionFiles") -> int | None:
    """Return the descriptor that holds the claim, or None if another driver holds it."""
    while (kept := _kept(files)) is not None:
        if _is_locked(kept) and _is_current(files, kept):
            return kept
        close_kept(kept)  # claimed by another driver, or removed by one meanwhile
    for _ in range(_TRIES):
        try:
            with walk(files.home, *files.parts) as folder:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(
                        DRIVER, FOLDER_MODE, dir_fd=folder
                    )  # not synced: a claim does not outlive the machine
                fd = open_folder(folder, DRIVER)
        except FileNotFoundError:
            files.check_there()
            continue
        keep_from_children(fd)
        try:
            is_locked = _is_locked(fd)
        except OSError:
            close_kept(fd)
            raise
        if not is_locked:
            close_kept(fd)
            return None
        if _is_current(files, fd):
            return fd
        close_kept(fd)
    return None


def _is_current(files: "SessionFiles", fd: int) -> bool:
    try:
        now = os.stat(_path(files), dir_fd=files.home, follow_symlinks=False)
        return identity(now) == identity(os.fstat(fd))
    except OSError:
        return False


def _path(files: "SessionFiles") -> str:
    return "/".join((*files.parts, DRIVER))
