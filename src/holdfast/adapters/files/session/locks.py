"""
The write lock: `flock` on the session folder's own descriptor, and a lock between the threads of
this process above it.

There is no lock file to delete. The kernel drops the lock when its owner dies; nothing here ever
breaks a lock by age, pid or clock. In a process, one `FolderLock` stands for one folder, identified
by device and inode and not by its path. Descriptors are close-on-exec and closed in forked
children; those are refused. The holder of a lock is looked up in /proc, for messages to people
only.
"""

import contextlib
import fcntl
import os
import resource
import threading
import time
import weakref
from pathlib import Path

from holdfast.errors import Busy, InvariantBroken, Refused

_POLL_SECONDS_MIN = 0.00005
_POLL_SECONDS_MAX = (
    0.005  # a killed owner is noticed within this time; a hundred waiters still cost nothing
)

_FEW = 64  # descriptors that any process may have

_guard = threading.Lock()
_folders: "weakref.WeakValueDictionary[tuple[int, int], FolderLock]" = weakref.WeakValueDictionary()
_descriptors: set[int] = set()


def _close_in_child() -> None:
    # The child shares the parent's open files. If they stayed open, they would keep alive a lock
    # that its owner has lost.
    for fd in _descriptors:
        with contextlib.suppress(OSError):
            os.close(fd)
    _descriptors.clear()
    _folders.clear()


os.register_at_fork(after_in_child=_close_in_child)


def keep_from_children(fd: int) -> None:
    _descriptors.add(fd)


def close_kept(fd: int) -> None:
    _descriptors.discard(fd)
    os.close(fd)


class KeptFile:
    """
    A descriptor that stays open from one commit to the next. It is closed in forked children and
    when no object refers to it.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        keep_from_children(fd)
        self._closing = weakref.finalize(self, _close_quietly, fd, os.getpid())

    def close(self) -> None:
        if self._closing.detach() is not None:
            close_kept(self.fd)

    def give(self) -> int:
        """Return the descriptor. The caller closes it from now on."""
        self._closing.detach()
        return self.fd


def keeps_too_many() -> bool:
    """
    Return True if the sessions keep more than a quarter of the descriptors that this process may
    have.
    """
    return (
        len(_descriptors) > _FEW
        and len(_descriptors) > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
    )


class FolderLock:
    """
    The lock of one folder in this process. One thread holds it at a time; it is not reentrant.
    """

    def __init__(self, fd: int, name: str) -> None:
        self.fd, self.name = fd, name
        status = os.fstat(fd)
        self.identity = (status.st_dev, status.st_ino)
        self._pid = os.getpid()
        self._thread_lock = threading.Lock()
        self._owner: int | None = None
        self._since = 0.0
        keep_from_children(fd)
        weakref.finalize(self, _close_quietly, fd, self._pid)

    def acquire(self, timeout_seconds: float) -> None:
        """Wait for the lock. Raise `Busy` with the holder and for how long we saw it held."""
        if os.getpid() != self._pid:
            raise forked()
        if self.is_ours:
            raise InvariantBroken(f"{self.name}: this thread already holds the write lock")
        if not self._thread_lock.acquire(timeout=timeout_seconds):
            held = time.monotonic() - self._since
            raise self._busy(f"pid {self._pid} (this process)", held)
        try:
            self._flock(timeout_seconds)
        except BaseException:
            self._thread_lock.release()
            raise
        self._owner, self._since = threading.get_ident(), time.monotonic()

    def try_acquire(self) -> bool:
        """Take the lock without waiting. Return False if it is held."""
        if os.getpid() != self._pid:
            raise forked()
        if not self._thread_lock.acquire(blocking=False):
            return False
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as exc:
            self._thread_lock.release()
            if isinstance(exc, BlockingIOError):
                return False
            raise
        self._owner, self._since = threading.get_ident(), time.monotonic()
        return True

    @property
    def is_ours(self) -> bool:
        """Return True if this very thread holds the lock."""
        return self._owner == threading.get_ident()

    def hand_over(self) -> None:
        """Let another thread continue with the lock and release it."""
        self._owner = None

    def _flock(self, timeout_seconds: float) -> None:
        start, pause = time.monotonic(), _POLL_SECONDS_MIN
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = time.monotonic() - start
                if waited >= timeout_seconds:
                    raise self._busy(holder_of(self.fd), waited) from None
                time.sleep(min(pause, timeout_seconds - waited))
                pause = min(pause * 2, _POLL_SECONDS_MAX)
            else:
                return

    def release(self) -> None:
        self._owner = None
        try:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        finally:
            self._thread_lock.release()

    def _busy(self, holder: str | None, seconds: float) -> Busy:
        who = holder or "another process"
        return Busy(
            f"{self.name} is being written by {who} for {seconds:.0f} s or more",
            holder=who,
            held_seconds=seconds,
            hint="try again; a living writer is never robbed of the lock",
        )


def folder_lock(fd: int, name: str) -> FolderLock:
    """Return the one lock of this folder in this process. Takes ownership of the descriptor."""
    status = os.fstat(fd)
    identity = (status.st_dev, status.st_ino)
    with _guard:
        known = _folders.get(identity)
        if known is not None:
            os.close(fd)
            return known
        made = _folders[identity] = FolderLock(fd, name)
        return made


def _close_quietly(fd: int, pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            close_kept(fd)


def forked() -> Refused:
    return Refused(
        "this process was forked from the one that opened the home, and may not write to it",
        code="forked",
        hint="open the home anew in the child",
    )


def holder_of(fd: int) -> str | None:
    """
    Return the holder as the kernel reports it now, like `pid 4711 (holdfast send)`. A stopped
    holder is marked, because it will not release the lock by itself.
    """
    status = os.fstat(fd)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and "->" not in fields and wanted in fields:
                pid = fields[fields.index(wanted) - 1]
                return f"pid {pid}{_command_of(pid)}{', stopped' if _is_stopped(pid) else ''}"
    return None


def _command_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        text = " ".join(Path(word.decode(errors="replace")).name for word in words[:4] if word)
        return f" ({text[:80]})" if text else ""
    return ""


def _is_stopped(pid: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    return False
