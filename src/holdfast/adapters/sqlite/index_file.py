"""
HOME/index.db as a file: opened at first use, replaced if it is broken or foreign, bypassed if it is
locked, unreadable or on a full disk.

While the file is bypassed, this process keeps its rows in memory, and they move to the file
afterwards. It is one file without a WAL: anyone may delete it at any time, and nothing is left that
a new file would conflict with. Every use checks that the path still names the file that we have
open. Nothing is synced: the rollback journal protects against a killed process, and after a reboot
the file is checked once.
"""

import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast.adapters.sqlite.database import (
    Identity,
    Layout,
    close,
    connect,
    create_file,
    remove_file,
    remove_odd_journal,
    transaction,
)

if TYPE_CHECKING:
    import apsw

T = TypeVar("T")

_log = logging.getLogger(__name__)
# Until the file is tried again, so that ten thousand uses do not each wait for it.
_BYPASS_SECONDS = 5.0


class IndexFile:
    """
    One home's file. Threads may share it; a forked child opens it again. `move_rows` copies the
    rows of the first connection to the second.
    """

    def __init__(
        self,
        path: Path,
        layout: Layout,
        move_rows: "Callable[[apsw.Connection, apsw.Connection], None]",
    ) -> None:
        # A symlink may lead to the folder, never to the file itself.
        self._path = str(path.parent.resolve() / path.name)
        self._layout, self._move_rows = layout, move_rows
        self._guard = threading.RLock()
        self._db: apsw.Connection | None = None
        # The identity of `_db`'s file, as the path named it at opening, and the process that opened
        # it.
        self._file: Identity | None = None
        self._pid = os.getpid()
        # In memory. It exists while the file is bypassed, and its rows move to the file afterwards.
        self._memory: apsw.Connection | None = None
        self._bypassed_until = 0.0
        self._closed = False

    def use(self, work: "Callable[[apsw.Connection], T]", otherwise: T) -> T:
        """
        Run `work` on the file. Replace a broken file once. After a second error, or any other
        error, run `work` in memory. Return `otherwise` if the index is closed.
        """
        import apsw

        broken = (
            apsw.CorruptError,
            apsw.NotADBError,
            apsw.SQLError,
            apsw.TooBigError,
            apsw.ConstraintError,
            UnicodeError,
        )
        with self._guard:
            for is_last in (False, True):
                if self._closed:
                    return otherwise
                try:
                    return work(self._open())
                except (apsw.Error, OSError, UnicodeError) as exc:
                    if isinstance(exc, broken) and not is_last:
                        _log.warning("the index is broken and is made anew: %s", exc)
                        self._close_file()
                        remove_file(self._path)
                    else:
                        _log.warning("the index is bypassed for %g s: %s", _BYPASS_SECONDS, exc)
                        self._bypass()
            return work(self._open())

    def close(self) -> None:
        with self._guard:
            self._closed = True
            if self._pid != os.getpid():
                self._leave_to_parent()
            self._close_file()
            self._memory = None

    def _bypass(self) -> None:
        self._close_file()
        self._bypassed_until = time.monotonic() + _BYPASS_SECONDS
        if self._memory is None:
            self._memory = _connect(":memory:", self._layout)

    def _open(self) -> "apsw.Connection":
        if self._pid != os.getpid():
            self._leave_to_parent()
        if self._memory is not None and time.monotonic() < self._bypassed_until:
            return self._memory
        remove_odd_journal(self._path)
        if self._db is None or self._file != self._named():
            self._close_file()
            self._db = self._open_file()
        if self._memory is not None:
            with transaction(self._db):
                self._move_rows(self._memory, self._db)
            memory, self._memory = self._memory, None
            close(memory)
        return self._db

    def _open_file(self) -> "apsw.Connection":
        self._file = self._named()
        if self._file is None:
            create_file(self._path)
            self._file = self._named()
        return _connect(self._path, self._layout)

    def _named(self) -> Identity | None:
        """
        Return the identity of the file that the path names. Anything that is not a plain file of
        this user is removed; a folder raises.
        """
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return None
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid():
            return status.st_dev, status.st_ino
        os.unlink(self._path)  # noqa: PTH108
        return None

    def _close_file(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            close(db)

    def _leave_to_parent(self) -> None:
        """
        Keep the parent's connections open and unused: closing them in a forked child would harm the
        parent's.
        """
        _OF_PARENTS.extend(db for db in (self._db, self._memory) if db is not None)
        self._db = self._memory = None
        self._pid = os.getpid()


_OF_PARENTS: "list[apsw.Connection]" = []


def _connect(path: str, layout: Layout) -> "apsw.Connection":
    db = connect(path, layout)
    try:
        boot = _boot_id()
        known = db.execute("SELECT id FROM boot").fetchall()
        if known != [(boot,)]:
            if known:
                _check_after_reboot(db)
            with transaction(db):
                db.execute("DELETE FROM boot")
                db.execute("INSERT INTO boot VALUES (?)", (boot,))
    except BaseException:
        close(db)
        raise
    return db


def _check_after_reboot(db: "apsw.Connection") -> None:
    """
    Check the file once. Nothing is synced, so a power cut may have left pages of different times;
    SQLite finds most of that, and the macs find the rest.
    """
    import apsw

    found = db.execute("PRAGMA integrity_check(1)").fetchall()
    if found != [("ok",)]:
        raise apsw.CorruptError(f"after a reboot: {found[0][0]}")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        return "unknown"
