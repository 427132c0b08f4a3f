"""
A process that exchanges two names of one folder, without end: `python link_flipper.py FOLDER NAME
OTHER`. It stops when its standard input closes.

The exchange is one system call, so at every moment both names are there: whoever looks sees the one
or the other, and never neither.
"""

import ctypes
import os
import select
import sys

_RENAME_EXCHANGE = 2
_CALLS_MAX = 50_000_000


def main(folder: str, name: str, other: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    first, second = name.encode(), other.encode()
    for count in range(_CALLS_MAX):
        if libc.renameat2(fd, first, fd, second, _RENAME_EXCHANGE) != 0:
            sys.exit(os.strerror(ctypes.get_errno()))
        if count == 0:
            sys.stdout.write("flipping\n")
            sys.stdout.flush()
        if count % 64 == 0 and select.select([0], [], [], 0)[0]:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
