"""
Open files and folders of a home, and refuse unsafe ones.

Every path is walked by descriptor from the home's own, never through a symlink. A file must be
regular, have one link, belong to this user, and be writable by nobody else. A refusal does not seal
anything: correct the path and continue. Nothing here follows, repairs or guesses.
"""

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import Busy, HoldfastError, NotSaved, ReadOnly, Refused
from holdfast.limits import KIB, SEGMENT_BYTES

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = (
    os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
)  # a FIFO in a file's place must not make us wait
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
FOLDER_MODE = 0o700
FILE_MODE = 0o600
_PLAIN = stat.S_IFREG | FILE_MODE
READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})

_SYNCED_FOLDERS_MAX = 1024  # channels in one home; with more, some are synced again

Identity = tuple[int, int]
"""The device and inode of a file or a folder."""


def identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def refused(path: str, why: str) -> Refused:
    return Refused(
        f"{path}: {why}",
        code="unsafe_path",
        hint="a home holds plain files of its owner; look who put this there",
    )


def disk_refused(doing: str, error: OSError) -> HoldfastError:
    """Translate an OSError after which nothing was kept."""
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return Busy(
            f"{doing}: too many open files", hint="close sessions, or raise the limit of open files"
        )
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NotSaved(f"{doing}: the disk is full", hint="make room on the disk")
    if error.errno in READ_ONLY:
        return ReadOnly(
            f"{doing}: it can't be written ({error})",
            hint="mount it for writing, or mend who may write it; looking at it works",
        )
    return NotSaved(f"{doing}: the disk refused ({error})", hint="look at the disk, then try again")


def open_folder(parent: int, name: str) -> int:
    """Return a folder's descriptor. Raise FileNotFoundError if it is absent."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=parent)
    except NotADirectoryError as exc:
        raise refused(name, "is a symlink or not a folder") from exc
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise refused(name, "is a symlink") from exc
        raise
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            raise refused(name, f"belongs to uid {status.st_uid}, not to us")  # noqa: TRY301
        if status.st_mode & _OTHERS_MAY_WRITE:
            raise refused(name, f"others may write in it (mode {stat.S_IMODE(status.st_mode):o})")  # noqa: TRY301
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def walk(root: int, *names: str) -> Iterator[int]:
    """Yield the descriptor of a folder some levels down, and close it afterwards."""
    fd = os.dup(root)
    try:
        for name in names:
            deeper = open_folder(fd, name)
            os.close(fd)
            fd = deeper
        yield fd
    finally:
        os.close(fd)


def make_folder(parent: int, name: str) -> None:
    """Make the folder exist durably, even if another process created it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, FOLDER_MODE, dir_fd=parent)
    # Sync an existing folder too: its creator may have died before the sync. Even for a clean
    # folder, the sync waits until the disk has emptied its cache.
    os.fsync(parent)


class SyncedFolders:
    """
    The folders of a home that this process has made durable. A further session in the same channel
    then needs no sync of the folders above it.
    """

    def __init__(self) -> None:
        self._synced: dict[tuple[str, ...], Identity] = {}

    def enter(self, parent: int, *parts: str) -> int:
        """
        Return the descriptor of a folder that exists durably; `parts` name it from the home. There
        are two cases:

        1. It is the very folder that was made durable here before. Nothing is synced.
        2. It is new here, or was replaced. Its parent is synced before it counts as durable.
        """
        known = self._synced.get(parts)
        if known is None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(parts[-1], FOLDER_MODE, dir_fd=parent)
        try:
            fd = open_folder(parent, parts[-1])
        except FileNotFoundError:
            if self._synced.pop(parts, None) is None:
                raise
            return self.enter(parent, *parts)
        found = identity(os.fstat(fd))
        if found != known:
            try:
                os.fsync(parent)
            except BaseException:
                os.close(fd)
                raise
            if len(self._synced) >= _SYNCED_FOLDERS_MAX:
                self._synced.clear()
            self._synced[parts] = found
        return fd


def open_file(folder: int, name: str, flags: int) -> int:
    """
    Return a checked file's descriptor. Raise FileNotFoundError if it is absent and not to be
    created.
    """
    try:
        fd = os.open(name, flags | _FILE, FILE_MODE, dir_fd=folder)
    except OSError as exc:
        if exc.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            raise refused(name, "is a symlink or not a regular file") from exc
        raise
    try:
        status = os.fstat(fd)
        if status.st_nlink == 2 and _drop_temporary_link(folder, name, status):  # noqa: PLR2004
            status = os.fstat(fd)
        check_file(status, name)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _drop_temporary_link(folder: int, name: str, status: os.stat_result) -> bool:
    """
    Remove the temporary name of this file, if it has one. A process that died between linking a
    file into place and removing its temporary name leaves both names.
    """
    for other in os.listdir(folder):
        if other.startswith(f".{name}.") and other.endswith(".tmp"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(other, dir_fd=folder, follow_symlinks=False), status):
                    os.unlink(other, dir_fd=folder)
                    return True
    return False


def check_file(status: os.stat_result, name: str) -> None:
    if status.st_mode == _PLAIN and status.st_nlink == 1 and status.st_uid == os.geteuid():
        return  # the state in which we create files
    if not stat.S_ISREG(status.st_mode):
        raise refused(name, "is not a regular file")
    if status.st_nlink != 1:
        raise refused(name, f"has {status.st_nlink} links")
    if status.st_uid != os.geteuid():
        raise refused(name, f"belongs to uid {status.st_uid}, not to us")
    if status.st_mode & _OTHERS_MAY_WRITE:
        raise refused(name, f"others may write it (mode {stat.S_IMODE(status.st_mode):o})")


def write_all(fd: int, data: bytes, offset: int) -> None:
    """
    Write all bytes with one write, or raise an error. `fd` must be readable too.

    The result of the call is not trusted: the bytes are read back and compared. A short write is
    never completed; it is a failed batch. The error says why the disk took no more, because a full
    disk is handled differently from a broken one.
    """
    written = os.pwrite(fd, data, offset)
    if written != len(data):
        os.pwrite(
            fd, data[written:], offset + written
        )  # only to learn the reason: a full disk raises ENOSPC now
        raise OSError(errno.EIO, f"a write of {len(data)} bytes took {written}")
    if (
        os.pread(fd, len(data), offset) != data and read_at(fd, offset, len(data)) != data
    ):  # a long one may take several reads
        raise OSError(errno.EIO, f"a write of {len(data)} bytes is not what can be read back")


def write_and_close(fd: int, data: bytes, offset: int = 0) -> None:
    """Write, sync and close. The bytes are durable when this returns."""
    try:
        write_all(fd, data, offset)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Make renames, creations and removals in this folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def create_whole(folder: int, name: str, data: bytes, *, temporary: str) -> None:
    """
    Create a file that is whole or absent, durably, and replace an existing one.

    A crash before the rename leaves the temporary name only. A crash after the folder's sync leaves
    the complete file.
    """
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | _FILE, FILE_MODE, dir_fd=folder)
    try:
        write_and_close(fd, data)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def create_exclusively(folder: int, name: str, data: bytes, *, temporary: str) -> bool:
    """Like `create_whole`, but never replace an existing file. Return False if there is one."""
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, FILE_MODE, dir_fd=folder)
    try:
        write_and_close(fd, data)
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)
    return True


def read_file(folder: int, name: str, *, bytes_max: int) -> bytes:
    fd = open_file(folder, name, os.O_RDONLY)
    try:
        return read_at(fd, 0, min(os.fstat(fd).st_size, bytes_max))
    finally:
        os.close(fd)


def read_at(fd: int, offset: int, length: int) -> bytes:
    """Return up to `length` bytes; fewer only at the end of the file."""
    first = os.pread(fd, length, offset)
    if len(first) == length or not first:
        return first
    parts = [first]
    got = len(first)
    while got < length and (more := os.pread(fd, length - got, offset + got)):
        parts.append(more)
        got += len(more)
    return b"".join(parts)


_kept = threading.local()
_KEPT_BYTES = SEGMENT_BYTES + 64 * KIB  # a full segment


def read_into_kept(fd: int, length: int) -> memoryview:
    """
    Read the first `length` bytes into a buffer that this thread keeps, for bytes that are hashed
    and not kept. They stand until the thread's next call. Fewer are returned if the file ends.
    """
    buffer: bytearray | None = getattr(_kept, "buffer", None)
    if length > _KEPT_BYTES:
        buffer = bytearray(length)
    elif buffer is None:
        buffer = _kept.buffer = bytearray(_KEPT_BYTES)
    view = memoryview(buffer)[:length]
    got = 0
    while got < length and (more := os.preadv(fd, [view[got:]], got)):
        got += more
    return view[:got]
