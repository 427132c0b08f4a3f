"""
One instance of one session on disk: its folder, segments, anchor and keys. The code that reads and
writes them is in session/catch_up.py and commit/commit.py.

Nothing here decides, and locks are only taken for the caller. A missing file is a result (None); an
unsafe one is refused.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.adapters.files.home.anchor_tables import AnchorCell
from holdfast.adapters.files.home.reserve import Reserve
from holdfast.adapters.files.paths import open_file, read_at, read_into_kept, walk
from holdfast.adapters.files.session.locks import (
    FolderLock,
    KeptFile,
    folder_lock,
    forked,
    keeps_too_many,
)
from holdfast.adapters.files.session.quarantine import Quarantine
from holdfast.errors import NewerVersion, NotSaved, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor import Anchor
from holdfast.journal.chain import KeyMissing, Keyring
from holdfast.journal.fence import Fence
from holdfast.journal.record import read_unverified
from holdfast.journal.segment import Previous, parse_segment_name, read_opened, segment_name
from holdfast.limits import BATCH_BYTES_MAX, KIB, LOCK_WAIT_SECONDS, SEGMENT_BYTES

HEADER_BYTES_MAX = 4 * KIB  # a segment's first line


class _Active(NamedTuple):
    """The active segment as we last had it open, under the write lock."""

    number: int
    device: int
    inode: int
    file: KeptFile


class Named(NamedTuple):
    """The names of a segment."""

    number: int
    path: str  # from the home
    name: str
    next: str  # the name of the segment after it


class SessionFiles:
    """
    Cheap to create. It holds one descriptor, the folder's, after it was locked for the first time.
    """

    def __init__(
        self,
        *,
        home: int,
        home_path: Path,
        parts: tuple[str, ...],
        session: SessionId,
        instance: InstanceId,
        keys: Keyring,
        anchor: AnchorCell,
        reserve: Reserve,
        generation: Callable[[], int],
        segment_bytes: int = SEGMENT_BYTES,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
    ) -> None:
        self.home, self.home_path, self.parts = home, home_path, parts
        self.session, self.instance = session, instance
        self.keys, self.anchor, self.reserve = keys, anchor, reserve
        self.generation = generation
        self.segment_bytes, self.lock_wait_seconds = segment_bytes, lock_wait_seconds
        self.quarantine = Quarantine(home, session)
        self._pid = os.getpid()
        self._path = "/".join(parts)
        self._lock: FolderLock | None = None
        self._active: _Active | None = None
        self._named = Named(0, "", "", "")  # the names of the segment asked for last
        # The folder that a driver's claim locks, kept from one drive to the next; see
        # session/claim.py. There is one, or two if two claims are released at once.
        self.driver_folders: list[KeptFile] = []
        # Set by a failed write or sync: the next commit starts a new segment.
        self.must_rotate = False

    # --- The write lock

    @contextlib.contextmanager
    def locked(self, wait_seconds: float | None = None) -> Iterator[int]:
        """
        Hold the write lock, and yield the descriptor of the folder that the path names meanwhile.
        """
        lock = self.acquire(wait_seconds)
        try:
            yield lock.fd
        finally:
            lock.release()

    def try_acquire(self) -> FolderLock | None:
        """
        Return the write lock if it is free and the folder is the one we know; else None. The caller
        then uses `acquire`. A lock that this very thread holds is not free.
        """
        lock = self._lock or self._open_lock()
        if not lock.try_acquire():
            return None
        try:
            now = os.stat(self._path, dir_fd=self.home, follow_symlinks=False)
            is_current = (now.st_dev, now.st_ino) == lock.identity
        except OSError:
            is_current = False
        if not is_current:
            lock.release()
            return None
        return lock

    def acquire(self, wait_seconds: float | None = None) -> FolderLock:
        if os.getpid() != self._pid:
            raise forked()
        while True:
            lock = self._lock or self._open_lock()
            lock.acquire(self.lock_wait_seconds if wait_seconds is None else wait_seconds)
            try:
                now = os.stat(self._path, dir_fd=self.home, follow_symlinks=False)
            except FileNotFoundError:
                lock.release()
                raise self.gone() from None
            except BaseException:
                lock.release()
                raise
            if (now.st_dev, now.st_ino) == lock.identity:
                return lock
            # The folder was removed and created again while we waited: our lock is on the removed
            # one.
            lock.release()
            self._lock = None

    def release_if_ours(self) -> None:
        """
        Release after an interrupt, which may have come between taking the lock and the step that
        releases it.
        """
        lock = self._lock
        if lock is not None and lock.is_ours:
            lock.release()

    def check_place(self, folder: int) -> None:
        """
        Check after a write that the path still names the folder that we wrote into. Otherwise
        nobody will find the written bytes.
        """
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(
                os.stat(self._path, dir_fd=self.home, follow_symlinks=False), os.fstat(folder)
            ):
                return
        raise NotSaved(
            f"{self.session}: its folder was replaced while it was written; the records went "
            "with the old one",
            hint="try again",
        )

    def _open_lock(self) -> FolderLock:
        try:
            with walk(self.home, *self.parts) as fd:
                self._lock = folder_lock(os.dup(fd), self.session)
        except FileNotFoundError:
            raise self.gone() from None
        os.set_inheritable(self._lock.fd, False)  # noqa: FBT003
        return self._lock

    def check_there(self) -> None:
        try:
            os.stat(self._path, dir_fd=self.home, follow_symlinks=False)
        except FileNotFoundError:
            raise self.gone() from None

    def gone(self) -> Refused:
        return Refused(
            f"{self.session} is gone: its folder was deleted",
            code="unknown",
            hint="`holdfast sessions list` shows them",
        )

    # --- Segments

    def name(self, number: int) -> str:
        return segment_name(self.instance, number)

    def numbers(self, folder: int) -> list[int]:
        """Return the numbers of the existing segments, sorted."""
        found = (parse_segment_name(name) for name in os.listdir(folder))
        return sorted(
            number for instance, number in filter(None, found) if instance == self.instance
        )

    def paths(self) -> Sequence[Path]:
        try:
            with walk(self.home, *self.parts) as fd:
                return [
                    self.home_path.joinpath(*self.parts, self.name(number))
                    for number in self.numbers(fd)
                ]
        except FileNotFoundError:
            return []

    def has_segment(self, folder: int, number: int) -> bool:
        """
        Return True also for a symlink to nowhere: the code that opens it refuses it, instead of
        passing by.
        """
        return os.access(self.name(number), os.F_OK, dir_fd=folder, follow_symlinks=False)

    def named(self, number: int) -> Named:
        named = self._named
        if named.number != number:
            name = self.name(number)
            named = self._named = Named(number, f"{self._path}/{name}", name, self.name(number + 1))
        return named

    def open_segment(self, folder: int, number: int, flags: int = os.O_RDONLY) -> int:
        return open_file(folder, self.name(number), flags)

    def stat_segment(self, number: int) -> os.stat_result:
        """Stat by the whole path, so that a replaced folder shows too."""
        return os.stat(self.named(number).path, dir_fd=self.home, follow_symlinks=False)

    def is_known(self, number: int, status: os.stat_result) -> bool:
        """Return True if this is the very file that we last checked and wrote."""
        return self.known(number, status) is not None

    def known(self, number: int, status: os.stat_result) -> int | None:
        """
        Return the descriptor of this file if it is the very one that we last checked and wrote.
        """
        active = self._active
        if (
            active is None
            or active.number != number
            or active.inode != status.st_ino
            or active.device != status.st_dev
        ):
            return None
        return active.file.fd

    def active(self, folder: int, number: int, status: os.stat_result) -> int:
        """
        Return a writable descriptor of the file that `status` describes. It is kept from one commit
        to the next.
        """
        known = self.known(number, status)
        if known is not None:
            return known
        self.let_go()
        fd = self.open_segment(folder, number, os.O_RDWR)
        opened = os.fstat(fd)
        self._active = _Active(number, opened.st_dev, opened.st_ino, KeptFile(fd))
        return fd

    def let_go(self) -> None:
        """Close the active segment's descriptor."""
        active, self._active = self._active, None
        if active is not None:
            active.file.close()

    def rest(self) -> None:
        """
        At a commit's end, with the lock held: a process with very many sessions keeps no
        descriptors for quiet ones.
        """
        if keeps_too_many():
            with contextlib.suppress(OSError):
                self.let_go()
            self._lock = None

    def close(self) -> None:
        """Close the descriptors. Nobody writes after this."""
        with contextlib.suppress(OSError):
            self.let_go()
        self._lock = None

    def read_segment(
        self, folder: int, number: int, length: int | None = None, *, start: int = 0
    ) -> bytes:
        """
        Return a whole segment, or its bytes from `start` up to its first `length` ones. Raise
        FileNotFoundError if it is absent.
        """
        fd = self.open_segment(folder, number)
        try:
            size = min(os.fstat(fd).st_size, self.read_max)
            end = size if length is None else min(size, length)
            return read_at(fd, start, max(0, end - start))
        finally:
            os.close(fd)

    def read_to_hash(self, folder: int, number: int) -> memoryview:
        """Like `read_segment`, in a buffer that stands until this thread's next call."""
        fd = self.open_segment(folder, number)
        try:
            return read_into_kept(fd, min(os.fstat(fd).st_size, self.read_max))
        finally:
            os.close(fd)

    @property
    def read_max(self) -> int:
        """
        More than any genuine segment can have: a segment is full at `segment_bytes`, and one batch
        may exceed that.
        """
        return max(self.segment_bytes, SEGMENT_BYTES) + 2 * BATCH_BYTES_MAX

    def claimed_closing(self, folder: int, number: int) -> Previous | None:
        """
        Return the end of segment `number` as the header of the next segment states it, or None
        without a next one. The chain has yet to confirm it.
        """
        try:
            first = self.read_segment(folder, number + 1, HEADER_BYTES_MAX)
        except FileNotFoundError:
            return None
        line, newline, _ = first.partition(b"\n")
        record = read_unverified(line + b"\n") if newline else None
        opened = read_opened(record.body) if record else None
        return opened.previous if opened else None

    def claimed_length(self, folder: int, number: int) -> int | None:
        closing = self.claimed_closing(folder, number)
        return closing.length if closing else None

    def verified_closing(self, folder: int, number: int) -> Previous | None:
        """
        Like `claimed_closing`, if the next segment's header has a valid mac. The header may belong
        to another history: the chain has yet to confirm it.
        """
        header = self.fence(number + 1)
        with contextlib.suppress(FileNotFoundError, KeyMissing, NewerVersion):
            first = self.read_segment(folder, number + 1, HEADER_BYTES_MAX)
            if header.feed(first[: first.find(b"\n") + 1]).records:
                return header.previous
        return None

    def temporary(self, number: int) -> str:
        return f".{self.name(number)}.{secrets.token_hex(8)}.tmp"

    # --- Fence and anchor

    def has_room(self, fence: Fence) -> bool:
        """Return True if the next records belong into the fence's segment."""
        return (
            fence.where == "middle" and fence.offset < self.segment_bytes and not self.must_rotate
        )

    def fence(self, number: int = 1) -> Fence:
        return Fence(self.keys, self.session, self.instance, number=number)

    def anchor_at(self, fence: Fence, counter: int, epoch: int) -> Anchor:
        return Anchor(
            fence.generation,
            counter,
            fence.number,
            fence.offset,
            fence.seq,
            fence.at,
            max(epoch, fence.epoch),
            fence.mac,
        )
