"""
Whether only its owner can read what this process prints: what carries consent is printed nowhere
else.
"""

import os
import stat
import sys


def is_private() -> bool:
    """
    Standard output is a terminal, or a plain file of ours that nobody else can open. A pipe or a
    log may be read by anybody.
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
