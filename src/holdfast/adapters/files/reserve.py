"""
HOME/reserve: blocks set aside while the disk has room, given back when it has none, so that what already happened can still be written down.

Only a driver's records and what goes to quarantine may use it: outcomes of tools that were started. New messages are refused instead.
What bears its name and is no plain file of ours, or has another name too, is somebody's, and is neither filled nor emptied.
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
FULL = {errno.ENOSPC, errno.EDQUOT}


class Reserve:
    def __init__(self, home: int, size: int = RESERVE_BYTES) -> None:
        self._home, self._size = home, size
        self._guard = threading.Lock()
        self._spent = False

    def fill(self) -> None:
        """Set the blocks aside if they are not. Failing is no error: the disk is full already."""
        with self._guard, contextlib.suppress(OSError, Refused):
            fd = open_file(self._home, RESERVE, os.O_RDWR | os.O_CREAT)
            try:
                if os.fstat(fd).st_blocks * 512 < self._size:
                    os.posix_fallocate(fd, 0, self._size)
                self._spent = False
            finally:
                os.close(fd)

    def free(self) -> bool:
        """Give the blocks back to the disk; False if there were none."""
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
            self._spent = True
            return had

    def refill_if_spent(self) -> None:
        if self._spent:
            self.fill()
