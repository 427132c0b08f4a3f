"""
One sync for many files: `syncfs`, where it gives the same guarantee as `fdatasync` on each file and
costs less.

Sixty commits to sixty journals need sixty disk flushes one by one, and one flush with `syncfs`. It
is used only if all of this holds:

- the filesystem is ext4 or xfs
- Linux is 5.17 or newer, which reports every error of `syncfs`
- all files are on the home's own filesystem
- few other dirty pages exist, because `syncfs` waits for those too

An error means that some file of the filesystem could not be written, without naming it. Each file
is then synced by its own `fdatasync`, which reports its own error.
"""

import ctypes
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.adapters.filesystems import MagicOf, filesystem_magic

_GOOD = frozenset({0xEF53, 0x58465342})  # ext4, xfs
_TELLS_ERRORS_SINCE = (5, 17)
DIRTY_KIB_MAX = (
    32 * 1024
)  # of the whole machine; more than this is other programs' data and takes long to write
# after a sync slower than 0.1 s, `syncfs` is not used for 10 s
SLOW_SECONDS, _PAUSE_SECONDS = 0.1, 10.0


class FilesystemSync:
    """
    One thread at a time may use it: the kernel reports an error once per open file description, and
    this object owns its own.
    """

    def __init__(self, folder: int, device: int, syncfs: Callable[[int], int]) -> None:
        self._folder, self._device, self._syncfs = folder, device, syncfs
        self._not_before = 0.0
        self._meminfo = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def open(cls, home: int, magic_of: MagicOf = filesystem_magic) -> "FilesystemSync | None":
        """
        Open it before the first write that it makes durable: earlier errors are not reported.
        Return None if the kernel or the filesystem does not qualify.
        """
        if _kernel() < _TELLS_ERRORS_SINCE or magic_of(home) not in _GOOD:
            return None
        with suppress(OSError, AttributeError):
            syncfs = ctypes.CDLL(None, use_errno=True).syncfs
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=home)
            try:
                return cls(folder, os.fstat(folder).st_dev, syncfs)
            except OSError:
                os.close(folder)
        return None

    def is_quick(self, files: Sequence[int]) -> bool:
        """Return True if these files seem to be all that `syncfs` would wait for."""
        if (
            time.monotonic() < self._not_before
            or _dirty_kib(os.pread(self._meminfo, 1024, 0)) > DIRTY_KIB_MAX
        ):
            return False
        return all(os.fstat(fd).st_dev == self._device for fd in files)

    def sync(self) -> bool:
        """Make all earlier writes durable. Return False if each file must be synced by itself."""
        started = time.monotonic()
        done = self._syncfs(self._folder) == 0
        ended = time.monotonic()
        if not done or ended - started > SLOW_SECONDS:
            self._not_before = ended + _PAUSE_SECONDS
        return done

    def close(self) -> None:
        os.close(self._folder)
        os.close(self._meminfo)


def _kernel() -> tuple[int, int]:
    told = re.match(r"(\d+)\.(\d+)", os.uname().release) if os.uname().sysname == "Linux" else None
    return (int(told[1]), int(told[2])) if told else (0, 0)


def _dirty_kib(meminfo: bytes) -> int:
    """
    Kilobytes that any program has written and that are not on disk yet. An unreadable value counts
    as too much.
    """
    told = re.search(rb"^Dirty:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(told[1]) if told else DIRTY_KIB_MAX + 1
