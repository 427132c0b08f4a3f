"""
The plumbing of every SQLite file in a home: connect, check whose file it is, create the schema, run
a transaction. The index, the search and the memory use it.

A file counts only with our application id and the expected version. An empty file gets the schema.
Any other file raises `apsw.NotADBError`; the caller decides whether to replace or refuse it.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import apsw

Identity = tuple[int, int]
"""A file's device and inode."""

_SUFFIXES = ("", "-journal", "-wal", "-shm")


class Layout(NamedTuple):
    """The form of one kind of file."""

    application: int  # any other number under our name is another program's file
    version: int
    schema: str
    pragmas: str  # of every connection
    busy_ms: int  # how long a statement waits for another process
    page_bytes: int = 4096
    value_bytes_max: int | None = None


def connect(path: str, layout: Layout) -> "apsw.Connection":
    """Connect to an existing file, or to `:memory:`, and create the schema where it is empty."""
    import apsw

    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        db.set_busy_timeout(layout.busy_ms)
        if layout.value_bytes_max is not None:
            db.limit(apsw.SQLITE_LIMIT_LENGTH, layout.value_bytes_max)
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        db.execute(
            f"PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY; {layout.pragmas}"
        ).fetchall()
        if not _is_ours(db, layout):
            db.execute(f"PRAGMA page_size = {layout.page_bytes}")
            with transaction(db):
                if not _is_ours(db, layout):  # no other process was faster
                    db.execute(layout.schema)
                    db.pragma("application_id", layout.application)
                    db.pragma("user_version", layout.version)
    except BaseException:
        close(db)
        raise
    return db


def _is_ours(db: "apsw.Connection", layout: Layout) -> bool:
    """Return False for an empty file. Raise NotADBError for a foreign one."""
    import apsw

    application, version = db.pragma("application_id"), db.pragma("user_version")
    if (application, version) == (layout.application, layout.version):
        return True
    if application or version or db.execute("SELECT 1 FROM sqlite_schema").fetchall():
        raise apsw.NotADBError(f"it is of another program or version ({application:#x}, {version})")
    return False


def close(db: "apsw.Connection") -> None:
    db.close(True)  # noqa: FBT003  even if a statement is open


@contextlib.contextmanager
def transaction(db: "apsw.Connection") -> Iterator[None]:
    """
    Take the write lock at the start. Two transactions that ask for it later would block each other
    for good.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # after a full disk, SQLite has rolled back already
            db.execute("ROLLBACK")
        raise


# --- The file


def create_file(path: str) -> None:
    """Create an empty file that only its owner can read. An existing one stays."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def remove_file(path: str) -> None:
    """Remove a file that can be made again, with everything that SQLite keeps beside it."""
    for suffix in _SUFFIXES:
        with contextlib.suppress(OSError):
            os.unlink(path + suffix)  # noqa: PTH108


def identity_of(path: str) -> Identity | None:
    """Return the identity of the file that the path names, without following a link."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


# SQLite opens the rollback journal by name whenever a transaction begins, and `open` waits for the
# other end of a FIFO for ever. So the place is checked before each use of a file.


def remove_odd_journal(path: str) -> None:
    """For a cache. A folder stays, and raises `OSError`."""
    if _is_odd(f"{path}-journal"):
        os.unlink(f"{path}-journal")  # noqa: PTH108


def refuse_odd_journal(path: str) -> None:
    """For a file that cannot be made again: a person has to see it."""
    if _is_odd(f"{path}-journal"):
        import apsw

        raise apsw.CantOpenError(f"{Path(path).name}-journal is not a plain file")


def _is_odd(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
