"""
Check whether only its owner can read this process's output. Output that carries consent is printed
only then.
"""

import os
import stat
import sys


def is_private() -> bool:
    """
    Return whether standard output is a terminal, or the user's plain file that nobody else can
    open. Others may read a pipe or a log.
    """
    try:
        fd = sys.stdout.fileno()
        status = os.fstat(fd)
    except (OSError, ValueError, AttributeError):
        return False
    if os.isatty(fd):
        return True
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.geteuid()
        and not stat.S_IMODE(status.st_mode) & 0o077
    )
