"""
`python -m bench.counted FILE WORDS...`: the command `holdfast WORDS...` in a process of its own,
which notes each of its syncs in FILE.

A reader of the file sees how many there were and how long they took, at any time and at no cost to
the process that it watches.
"""

import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_FORM = struct.Struct("=qd")  # how many, and their seconds together
_SCHEDULED = 2  # which clock of a process: as clock_getcpuclockid(3) names it


class Noted(NamedTuple):
    count: int
    seconds: float


def noted(file: Path) -> Noted:
    return Noted(*_FORM.unpack(file.read_bytes()))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, with its threads that have ended, finer than in ticks."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


def _watch(file: Path) -> None:
    file.write_bytes(_FORM.pack(0, 0.0))
    with file.open("r+b") as opened:
        shared = mmap.mmap(opened.fileno(), _FORM.size)
    lock = threading.Lock()

    def noting(real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            began = time.perf_counter()
            real(fd)
            took = time.perf_counter() - began
            with lock:
                count, seconds = _FORM.unpack(shared[:])
                shared[:] = _FORM.pack(count + 1, seconds + took)

        return sync

    os.fsync, os.fdatasync = noting(os.fsync), noting(os.fdatasync)


def main() -> None:
    _watch(Path(sys.argv[1]))
    sys.argv[:] = ["holdfast", *sys.argv[2:]]
    from holdfast.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
