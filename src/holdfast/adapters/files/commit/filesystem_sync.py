"""
One sync for many files: `syncfs`, where it promises what `fdatasync` on each of them does, and
costs less.

Sixty commits to as many journals are sixty flushes of the disk one by one, and one this way. It is
used where all of this holds: ext4 or xfs; a Linux that tells every error of it (5.17); all files on
the home's own filesystem; and little else that waits to be written, since it waits for that too. An
error says that some file of the filesystem could not be written, not which: each is asked by itself
then, and its own `fdatasync` tells.
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
)  # of the whole machine: more than a moment's work of any disk, and it is somebody else's
SLOW_SECONDS, _PAUSE_SECONDS = 0.1, 10.0  # after one that took that long, the next that long after


class FilesystemSync:
    """
    Used by one thread at a time: an error is told once to each open file description, and this is
    ours.
    """

    def __init__(self, folder: int, device: int, syncfs: Callable[[int], int]) -> None:
        self._folder, self._device, self._syncfs = folder, device, syncfs
        self._not_before = 0.0
        self._meminfo = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def open(cls, home: int, magic_of: MagicOf = filesystem_magic) -> "FilesystemSync | None":
        """
        Before the first write that it is to make durable: errors from before are not told. None:
        not here.
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
        """Whether these are all there is to wait for, as far as can be seen."""
        if (
            time.monotonic() < self._not_before
            or _dirty_kib(os.pread(self._meminfo, 1024, 0)) > DIRTY_KIB_MAX
        ):
            return False
        return all(os.fstat(fd).st_dev == self._device for fd in files)

    def sync(self) -> bool:
        """Everything written before this is durable; False: ask each file by itself."""
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
    """Written by anybody, and not on a disk yet; what can't be read counts as too much."""
    told = re.search(rb"^Dirty:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(told[1]) if told else DIRTY_KIB_MAX + 1
