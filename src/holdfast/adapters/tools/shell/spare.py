"""
A spare launcher: started before there is a call for it, so that an approved command does not wait
for a process to start.

It is a launcher like any other that has not been told its call: no arguments, no environment and no
folder of one, in a group of its own, blocked on its pipe. It ends with its home, and with this
process, however that ends. It is used for one call at most, and only where a launcher that is
started now would be the same: behind the same words of bubblewrap, by the same process with the
same rights and bounds. Else it is ended, and a new one is started for the call. One is kept at
most.
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
)  # names no call, and has room for the name of any: ours are 28 long
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
# Joined here, once: every command that starts waits for all of them to be read.
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
    """One per open home; any thread may use it."""

    def __init__(self) -> None:
        # held while one is started: who comes meanwhile waits for it, which is shorter than
        # starting another
        self._lock = threading.Lock()
        self._kept: _Kept | None = None
        self._closed = False
        _ALL.add(self)

    def take(self, prefix: tuple[str, ...]) -> Waiting | None:
        """The spare, for one call; None where there is none that would be the same as a new one."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return None
        if (kept.prefix, kept.standing) != (prefix, _standing()):
            _end(kept.waiting)
            return None
        return kept.waiting

    def make_soon(self, prefix: tuple[str, ...]) -> None:
        """In a thread of its own time, for the next call like this one."""
        THREADS.begin(lambda: self.make(prefix))

    def make(self, prefix: tuple[str, ...]) -> None:
        """
        Unless there is one, or the home is closed. If it can't be started there is none, and the
        next call says what is wrong.
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
        """There is none when this returns, and never one again."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, None
        if kept is not None:
            _end(kept.waiting)

    def forget(self) -> None:
        """
        In a forked child. The spare is its parent's, and ends with it: our copies of its pipes must
        not keep it alive, nor may we ever use it.
        """
        self._lock = threading.Lock()
        kept, self._kept = self._kept, None
        if kept is not None:
            _let_go(kept.waiting)
            kept.waiting.process.returncode = 0  # not ours to wait for


_ALL: "weakref.WeakSet[SpareLauncher]" = weakref.WeakSet()


def _forget_all() -> None:
    for each in tuple(_ALL):
        each.forget()


os.register_at_fork(after_in_child=_forget_all)


def _end(waiting: Waiting) -> None:
    """
    It sees its pipe close and would go by itself; bubblewrap in front of it, and one that hangs,
    are not waited for.
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
    What a process that is started now inherits from us, beside what it is given: identity,
    capabilities, bounds, namespaces.

    A program may give up rights after its first call; a spare of before would still have them. None
    where the system does not tell (macOS): no spares there.
    """
    try:
        status = [
            line
            for line in _bytes(_STATUS).splitlines()
            if line.startswith(b"Cap") or line.partition(b":")[0] in _RIGHTS
        ]
        spaces = [_space(each) for each in _NAMESPACES]
        root = os.stat("/")  # noqa: PTH116  what / is to us
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
    """Empty where the system has no such namespaces."""
    try:
        return os.readlink(path)  # noqa: PTH115  a Path costs more than the read
    except FileNotFoundError:
        return ""


def _shown(path: str) -> bytes:
    """Empty where the system has no such file, or does not show it."""
    try:
        return _bytes(path)
    except OSError:
        return b""


def _bytes(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  a Path costs more than the read
        return file.read()
