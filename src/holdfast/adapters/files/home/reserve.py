"""
HOME/reserve: blocks set aside while the disk has room and given back when it is full, so that
things that already happened can still be recorded.

Only a driver's records, results that others record (a job's end) and quarantine may use it: they
hold outcomes of tools that were started. New messages are refused instead. After this process has
used the reserve, it refills it after a later commit, once the disk has room for more than the
reserve: records come first. A file of this name that is not a plain file of this user, or has a
second link, is neither filled nor emptied.
"""

import contextlib
import errno
import os
import threading

from holdfast.adapters.files.paths import open_file
from holdfast.errors import Refused
from holdfast.limits import BATCH_BYTES_MAX

RESERVE = "reserve"
RESERVE_BYTES = 2 * BATCH_BYTES_MAX  # the largest batch, and its copy in quarantine
_ROOM_TO_REFILL = 2  # times its size: as much is left for records as is set aside
FULL = {errno.ENOSPC, errno.EDQUOT}


class Reserve:
    def __init__(self, home: int, size: int = RESERVE_BYTES) -> None:
        self._home, self._size = home, size
        self._guard = threading.Lock()
        # True if this process used the reserve and has not refilled it since.
        self.is_spent = False

    def fill(self) -> None:
        """
        Set the blocks aside if they are not. A failure is not an error: the disk is already full.
        """
        with self._guard, contextlib.suppress(OSError, Refused):
            fd = open_file(self._home, RESERVE, os.O_RDWR | os.O_CREAT)
            try:
                if os.fstat(fd).st_blocks * 512 < self._size:
                    os.posix_fallocate(fd, 0, self._size)
                self.is_spent = False
            finally:
                os.close(fd)

    def free(self) -> bool:
        """Give the blocks back to the disk. Return False if there were none."""
        with self._guard:
            try:
                fd = open_file(self._home, RESERVE, os.O_RDWR)
            except (OSError, Refused):
                return False
            try:
                had = os.fstat(fd).st_blocks > 0
                os.ftruncate(fd, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            self.is_spent = True
            return had

    def refill_if_spent(self) -> None:
        """Blocks; call it in a thread that may wait."""
        if not self.is_spent:
            return
        with contextlib.suppress(OSError):
            room = os.fstatvfs(self._home)
            if room.f_bavail * room.f_frsize >= _ROOM_TO_REFILL * self._size:
                self.fill()
