"""
A spare launcher, started before there is a call for it, so that an approved command does not wait
for a process to start.

It is a launcher that has not received its call: it has no arguments, environment or folder, is in a
group of its own, and blocks on its pipe. It ends with its home and with this process, however that
ends. It is used for at most one call, and only if a launcher that is started now would be the same:
behind the same bubblewrap arguments, by the same process with the same rights and limits. Otherwise
it is ended, and a new one is started for the call. At most one is kept.
"""

import os
import signal
import threading
import weakref
from typing import NamedTuple

from holdfast.adapters.tools.shell.environment import environment_of
from holdfast.adapters.tools.shell.launcher import Waiting, spawn
from holdfast.adapters.tools.shell.processes import signal_group
from holdfast.adapters.tools.threads import THREADS
from holdfast.ids import CallId
from holdfast.ports.tools import CannotBind

NO_CALL = CallId(
    "spare".ljust(64, "-")
)  # names no call, and has room for any call's name: those are 28 characters long
_RIGHTS = (
    b"Umask",
    b"Uid",
    b"Gid",
    b"Groups",
    b"NoNewPrivs",
    b"Seccomp",
    b"Seccomp_filters",
    b"SigBlk",
    b"SigIgn",
    b"Cpus_allowed",
    b"Mems_allowed",
)
# Joined once, here: every command that starts waits until all of them are read.
_STATUS = "/proc/thread-self/status"
_FILES = tuple(
    f"/proc/thread-self/{name}" for name in ("limits", "cgroup", "oom_score_adj", "attr/current")
)
_KINDS = ("cgroup", "ipc", "mnt", "net", "pid_for_children", "time_for_children", "user", "uts")
_NAMESPACES = tuple(f"/proc/thread-self/ns/{kind}" for kind in _KINDS)


class _Kept(NamedTuple):
    waiting: Waiting
    prefix: tuple[str, ...]
    standing: tuple[object, ...]


class SpareLauncher:
    """One per open home. Any thread may use it."""

    def __init__(self) -> None:
        # Held while a spare is started: a caller that comes meanwhile waits for it, which is
        # shorter than starting another.
        self._lock = threading.Lock()
        self._kept: _Kept | None = None
        self._closed = False
        _ALL.add(self)

    def take(self, prefix: tuple[str, ...]) -> Waiting | None:
        """
        Return the spare for one call, or None if there is no spare that equals a new launcher.
        """
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return None
        if (kept.prefix, kept.standing) != (prefix, _standing()):
            _end(kept.waiting)
            return None
        return kept.waiting

    def make_soon(self, prefix: tuple[str, ...]) -> None:
        """Start a spare in a thread, for the next call like this one."""
        THREADS.begin(lambda: self.make(prefix))

    def make(self, prefix: tuple[str, ...]) -> None:
        """
        Start a spare unless there is one or the home is closed. If it cannot be started, there is
        none, and the next call reports the problem.
        """
        with self._lock:
            standing = _standing()
            if self._closed or self._kept is not None or standing is None:
                return
            try:
                self._kept = _Kept(spawn(prefix, environment_of(NO_CALL)), prefix, standing)
            except (CannotBind, OSError):
                return

    def close(self) -> None:
        """End the spare. No spare is started afterwards."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, None
        if kept is not None:
            _end(kept.waiting)

    def forget(self) -> None:
        """
        Forget the spare in a forked child. It belongs to the parent and ends with it. The child's
        copies of its pipes must not keep it alive, and the child must never use it.
        """
        self._lock = threading.Lock()
        kept, self._kept = self._kept, None
        if kept is not None:
            _let_go(kept.waiting)
            kept.waiting.process.returncode = 0  # not a child of this process, so never waited for


_ALL: "weakref.WeakSet[SpareLauncher]" = weakref.WeakSet()


def _forget_all() -> None:
    for each in tuple(_ALL):
        each.forget()


os.register_at_fork(after_in_child=_forget_all)


def _end(waiting: Waiting) -> None:
    """
    End a waiting launcher. It would exit by itself when its pipe closes, but bubblewrap in front of
    it or a hanging launcher might not, so it is killed.
    """
    _let_go(waiting)
    signal_group(waiting.process.pid, signal.SIGKILL)
    waiting.process.wait()


def _let_go(waiting: Waiting) -> None:
    os.close(waiting.go_write)
    os.close(waiting.status_read)
    if waiting.process.stdout is not None:
        waiting.process.stdout.close()


def _standing() -> tuple[object, ...] | None:
    """
    Return everything that a new process inherits besides its arguments: identity, capabilities,
    limits and namespaces.

    A program may give up rights after its first call, and an older spare would still have them.
    Return None if the system does not report them (macOS); there are no spares then.
    """
    try:
        status = [
            line
            for line in _bytes(_STATUS).splitlines()
            if line.startswith(b"Cap") or line.partition(b":")[0] in _RIGHTS
        ]
        spaces = [_space(each) for each in _NAMESPACES]
        root = os.stat("/")  # noqa: PTH116  this process's root
    except OSError:
        return None
    return (
        *status,
        *map(_shown, _FILES),
        *spaces,
        root.st_dev,
        root.st_ino,
        os.getpriority(os.PRIO_PROCESS, 0),
    )


def _space(path: str) -> str:
    """Return an empty text if the system has no such namespaces."""
    try:
        return os.readlink(path)  # noqa: PTH115  a Path costs more than the read
    except FileNotFoundError:
        return ""


def _shown(path: str) -> bytes:
    """Return empty bytes if the system has no such file or does not show it."""
    try:
        return _bytes(path)
    except OSError:
        return b""


def _bytes(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  a Path costs more than the read
        return file.read()
