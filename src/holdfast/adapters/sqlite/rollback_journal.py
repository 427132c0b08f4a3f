"""
The rollback journal beside a database. SQLite opens it by name whenever a transaction begins, and
`open` waits for the other end of a FIFO for ever. So we check the place before each use of a file.
"""

import os
import stat


def remove_if_not_plain(path: str) -> None:
    """For a cache. A folder stays, and raises `OSError`."""
    if _is_not_plain(_journal(path)):
        os.unlink(_journal(path))  # noqa: PTH108


def refuse_if_not_plain(path: str) -> None:
    """For a file that cannot be made again: a person has to see it."""
    if _is_not_plain(_journal(path)):
        import apsw

        raise apsw.CantOpenError(f"{os.path.basename(_journal(path))} is not a plain file")  # noqa: PTH119


def _journal(path: str) -> str:
    return f"{path}-journal"


def _is_not_plain(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
