"""
HOME/index.db: the rows that can be listed without opening journals, in SQLite. See
`holdfast.ports.index`.

It is a cache: a broken or foreign file is replaced. A locked or unreadable file, or one on a full
disk, is bypassed: this process keeps its rows in memory until the file takes them. Callers notice
either case only through the result of `stale`. A row counts only with its mac; see `index_rows`.

It is one file without a WAL: anyone may delete it at any time, and nothing is left that a new file
would conflict with. Every use checks that the path still names the file that we have open. Nothing
is synced: the rollback journal protects against a killed process, and after a reboot the file is
checked once.
"""

import contextlib
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from blake3 import blake3

from holdfast.adapters.sqlite.index_rows import (
    COLUMNS,
    PACKED_BYTES_MAX,
    Values,
    row_of,
    standing_of,
    values_of,
    verifies,
)
from holdfast.adapters.sqlite.rollback_journal import remove_if_not_plain
from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.limits import KIB, MIB
from holdfast.ports.index import IndexRow, Standing

if TYPE_CHECKING:
    import apsw

T = TypeVar("T")

_log = logging.getLogger(__name__)

_APPLICATION = 0x484F4C44  # "HOLD": any other database under our name is foreign
_VERSION = 5
_SCHEMA = f"""
    CREATE TABLE boot (id TEXT NOT NULL);
    CREATE TABLE sessions (
        session TEXT NOT NULL UNIQUE, instance TEXT NOT NULL, seq INTEGER NOT NULL, owes INTEGER NOT NULL, waiting INTEGER NOT NULL,
        expires_at INTEGER NOT NULL, remind_at INTEGER NOT NULL, awaits BLOB NOT NULL, rest BLOB NOT NULL, prompts BLOB NOT NULL, mac BLOB NOT NULL);
    CREATE INDEX sessions_waiting ON sessions (session) WHERE waiting;
    CREATE INDEX sessions_expiring ON sessions (expires_at, session) WHERE expires_at;
    CREATE INDEX sessions_reminding ON sessions (remind_at, session) WHERE remind_at;
    CREATE TABLE approvals (approval TEXT PRIMARY KEY, session TEXT NOT NULL, mac BLOB NOT NULL) WITHOUT ROWID;
    PRAGMA application_id = {_APPLICATION};
    PRAGMA user_version = {_VERSION};
"""
_PUT = f"""
    INSERT INTO sessions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (session) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in COLUMNS.split(", ")[1:])}
"""  # noqa: S608  names of ours
_PUT_UNLESS_BEHIND = (
    _PUT + "WHERE excluded.instance <> sessions.instance OR excluded.seq >= sessions.seq"
)
_PUT_APPROVAL = "INSERT OR REPLACE INTO approvals VALUES (?, ?, ?)"
_ROW = f"SELECT {COLUMNS} FROM sessions"  # noqa: S608  names of ours
_PAGE = _ROW + " WHERE session > ? {} ORDER BY session LIMIT ?"
_PAGE_OF_ALL, _PAGE_OF_WAITING = _PAGE.format(""), _PAGE.format("AND waiting")
_GET = _ROW + " WHERE session = ?"
_PAGE_BY_TIME = (
    _ROW + " WHERE {0} AND ({0}, session) > (?, ?) AND {0} <= ? ORDER BY {0}, session LIMIT ?"
)
_PAGES_BY_TIME = {name: _PAGE_BY_TIME.format(name) for name in ("expires_at", "remind_at")}
_PLACES = {name: COLUMNS.split(", ").index(name) for name in _PAGES_BY_TIME}
_EVER = 2**62
_LAST_NAME = "\U0010ffff"  # after any session's
_PAGE_BYTES = (
    8 * KIB
    # Rows with prompts have from half a KiB to a few KiB. Pages of SQLite's usual size would leave
    # more space empty.
)
_PAGE_ROWS = (
    256  # read at once; between pages no lock is held, so a slow reader of a list stops nobody
)
_BUSY_MS = (
    # `put` is called in the middle of a turn; a file that is locked longer than this is bypassed
    200
)
_BYPASS_SECONDS = (
    5.0  # until the file is tried again, so that ten thousand uses do not each wait for it
)


class SqliteIndex:
    """The index of one home. Threads may share it; a forked child opens the file again."""

    def __init__(self, path: Path, keys: Callable[[], Sequence[bytes]]) -> None:
        # A symlink may lead to the folder, never to the file itself.
        self._path = str(path.parent.resolve() / path.name)
        # Returns the current keys, the newest first: only rows under the newest count.
        self._keys = keys
        self._guard = threading.RLock()
        self._db: apsw.Connection | None = None
        # The identity of `_db`'s file, as the path named it at opening, and the process that opened
        # it.
        self._file: tuple[int, int] | None = None
        self._pid = os.getpid()
        # In memory. It exists while the file is bypassed, and its rows move to the file afterwards.
        self._spare: apsw.Connection | None = None
        self._bypassed_until = 0.0
        self._closed = False

    # --- The port

    def put(self, row: IndexRow, approvals: Sequence[ApprovalId] = ()) -> None:
        values = values_of(row, self._keys()[0])
        if values is None:
            _log.warning(
                "the index keeps no row for %s: it is larger than %d bytes",
                row.session,
                PACKED_BYTES_MAX,
            )
        places = [self._place_of(approval, row.session) for approval in approvals]

        def work(db: "apsw.Connection") -> None:
            with (
                _transaction(db) if places else contextlib.nullcontext()
            ):  # one statement is a transaction by itself
                if values is not None:
                    self._put(db, values)
                for place in places:
                    _run(db, _PUT_APPROVAL, place)

        self._use(work, None)

    def _put(self, db: "apsw.Connection", values: Values) -> None:
        """If two processes put a row, the one with the higher seq wins, in any order."""
        db.execute(_PUT_UNLESS_BEHIND, values)
        if db.changes() == 0 and not verifies(
            db.execute(_GET, values[:1]).fetchall()[0], self._keys()[0]
        ):
            db.execute(_PUT, values)

    def put_approval(self, approval: ApprovalId, session: SessionId) -> None:
        self._use(lambda db: _run(db, _PUT_APPROVAL, self._place_of(approval, session)), None)

    def forget(self, session: SessionId) -> None:
        def work(db: "apsw.Connection") -> None:
            db.execute("DELETE FROM sessions WHERE session = ?", (session,))
            db.execute("DELETE FROM approvals WHERE session = ?", (session,))

        self._use(work, None)

    def get(self, session: SessionId) -> IndexRow | None:
        found = self._fetch(_GET, (session,))
        return self._believed(found[0]) if found else None

    def rows(
        self,
        *,
        after: SessionId | None = None,
        limit: int | None = None,
        only_waiting: bool = False,
    ) -> Iterator[IndexRow]:
        left = limit
        for page in (
            self._pages(_PAGE_OF_WAITING if only_waiting else _PAGE_OF_ALL, after or "")
            if limit != 0
            else ()
        ):
            for found in page:
                row = self._believed(found)
                if row is None:
                    continue
                yield row
                left = None if left is None else left - 1
                if left == 0:
                    return

    def survey(self) -> Iterator[Sequence[Standing]]:
        for page in self._pages(_PAGE_OF_ALL, ""):
            newest = self._keys()[0]
            yield [
                standing_of(found)
                for found in page
                if verifies(found, newest) or self._verifies(found)
            ]

    def _pages(self, query: str, after: str) -> Iterator[list[tuple[Any, ...]]]:
        """
        No lock is held between two pages. Rows out of order are left out: the file is then broken
        in a way that SQLite does not notice.
        """
        last = after
        while page := self._fetch(query, (last, _PAGE_ROWS)):
            in_order: list[tuple[Any, ...]] = []
            for found in page:
                if isinstance(found[0], str) and found[0] > last:
                    last = found[0]
                    in_order.append(found)
            yield in_order
            if len(page) < _PAGE_ROWS or not in_order:
                return

    def session_of(self, approval: ApprovalId) -> SessionId | None:
        found = self._fetch("SELECT session, mac FROM approvals WHERE approval = ?", (approval,))
        if not found or self._approval_mac(approval, str(found[0][0])) != found[0][1]:
            return None
        return SessionId(found[0][0])

    def stale(self, heads: Sequence[tuple[SessionId, InstanceId, int]]) -> Sequence[SessionId]:
        known = {
            found[0]: (found[1], found[2])
            for page in self._pages(_PAGE_OF_ALL, "")
            for found in page
            if self._verifies(found)
        }
        return [
            session
            for session, instance, seq in heads
            if not _reaches(known.get(session), instance, seq)
        ]

    def next_reminder(self, *, after: int) -> int | None:
        return next(
            (remind_at for remind_at, _ in self._by_time("remind_at", after, _EVER, rows=1)), None
        )

    def reminding(self, *, after: int, until: int) -> Sequence[SessionId]:
        return [session for _, session in self._by_time("remind_at", after, until, rows=_PAGE_ROWS)]

    def next_expiry(self, *, after: int) -> int | None:
        return next(
            (expires_at for expires_at, _ in self._by_time("expires_at", after, _EVER, rows=1)),
            None,
        )

    def _by_time(
        self, column: str, after: int, until: int, *, rows: int
    ) -> Iterator[tuple[int, SessionId]]:
        """
        Yield rows in the order of that column. A row that does not verify wakes nobody; the next
        check for stale rows opens its session.
        """
        last: tuple[float, str] = (after, _LAST_NAME)
        place = _PLACES[column]
        while page := self._fetch(_PAGES_BY_TIME[column], (*last, until, rows)):
            for found in page:
                if self._verifies(found):
                    yield found[place], SessionId(found[0])
            at, name = page[-1][place], page[-1][0]
            if (
                len(page) < rows
                or not (isinstance(at, int | float) and isinstance(name, str))
                or (at, name) <= last
            ):
                return  # the end, or a file that is broken in a way that SQLite does not notice
            last = (at, name)

    def close(self) -> None:
        with self._guard:
            self._closed = True
            if self._pid != os.getpid():
                self._leave_to_parent()
            self._drop()
            self._spare = None

    # --- Verification

    def _believed(self, found: Sequence[Any]) -> IndexRow | None:
        if not self._verifies(found):
            return None
        try:
            return row_of(found)
        except msgspec.MsgspecError:  # genuine, of another version of this program
            return None

    def _verifies(self, found: Sequence[Any]) -> bool:
        newest, *older = self._keys()
        if verifies(found, newest):
            return True
        # rows from before a rotation need no warning
        if not any(verifies(found, key) for key in older):
            _log.warning("the index has a row for %r that is not ours", found[0])
        return False

    def _place_of(self, approval: ApprovalId, session: SessionId) -> tuple[str, str, bytes]:
        return approval, session, self._approval_mac(approval, session)

    def _approval_mac(self, approval: str, session: str) -> bytes:
        name = approval.encode()
        return blake3(
            b"approval %d:%s%s" % (len(name), name, session.encode()), key=self._keys()[0]
        ).digest()

    # --- The file

    def _fetch(self, query: str, values: tuple[str | float, ...]) -> list[tuple[Any, ...]]:
        if any(isinstance(each, str) and not _is_text(each) for each in values):
            return []  # half a character: no row has it, and the file is not broken
        return self._use(lambda db: db.execute(query, values).fetchall(), [])

    def _use(self, work: "Callable[[apsw.Connection], T]", otherwise: T) -> T:
        """
        Run `work` on the file. Replace a broken file once. After a second error, or any other
        error, run `work` in memory.
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
                        self._remove()
                    else:
                        _log.warning("the index is bypassed for %g s: %s", _BYPASS_SECONDS, exc)
                        self._bypass()
            return work(self._open())

    def _bypass(self) -> None:
        self._drop()
        self._bypassed_until = time.monotonic() + _BYPASS_SECONDS
        if self._spare is None:
            self._spare = _connect(":memory:")

    def _open(self) -> "apsw.Connection":
        if self._pid != os.getpid():
            self._leave_to_parent()
        if self._spare is not None and time.monotonic() < self._bypassed_until:
            return self._spare
        remove_if_not_plain(self._path)
        if self._db is None or self._file != self._named():
            self._drop()
            self._db = self._open_file()
        if self._spare is not None:
            self._empty_spare(self._spare, self._db)
        return self._db

    def _open_file(self) -> "apsw.Connection":
        self._file = self._named()
        if self._file is None:
            with contextlib.suppress(FileExistsError):
                os.close(
                    os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
                )
            self._file = self._named()
        return _connect(self._path)

    def _empty_spare(self, spare: "apsw.Connection", db: "apsw.Connection") -> None:
        with _transaction(db):
            for values in spare.execute("SELECT * FROM sessions").fetchall():
                self._put(db, cast(Values, values))
            for values in spare.execute("SELECT * FROM approvals").fetchall():
                _run(db, _PUT_APPROVAL, values)
        self._spare = None
        spare.close(True)  # noqa: FBT003

    def _named(self) -> tuple[int, int] | None:
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

    def _remove(self) -> None:
        self._drop()
        for suffix in ("", "-journal", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.unlink(self._path + suffix)  # noqa: PTH108

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close(True)  # noqa: FBT003

    def _leave_to_parent(self) -> None:
        """
        Keep the parent's connections open and unused: closing them in a forked child would harm the
        parent's.
        """
        _OF_PARENTS.extend(db for db in (self._db, self._spare) if db is not None)
        self._db = self._spare = None
        self._pid = os.getpid()


_OF_PARENTS: "list[apsw.Connection]" = []


def _connect(path: str) -> "apsw.Connection":
    """Connect to a whole index file. Raise NotADBError for any other file."""
    import apsw

    db = apsw.Connection(
        path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    )  # `:memory:` does not count as a path here
    try:
        db.set_busy_timeout(_BUSY_MS)
        db.limit(apsw.SQLITE_LIMIT_LENGTH, PACKED_BYTES_MAX + MIB)
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        # The rollback journal is kept between writes: removing a file waits for a running sync, and
        # there often is one.
        db.execute(
            "PRAGMA trusted_schema = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY; "
            "PRAGMA journal_mode = PERSIST"
        ).fetchall()
        boot = _boot_id()
        if not _is_ours(db):
            _make(db, boot)
        elif db.execute("SELECT id FROM boot").fetchall() != [(boot,)]:
            _check_after_reboot(db, boot)
    except BaseException:
        db.close(True)  # noqa: FBT003
        raise
    return db


def _is_ours(db: "apsw.Connection") -> bool:
    """Return False for an empty file. Raise NotADBError for a foreign one."""
    import apsw

    application, version = db.pragma("application_id"), db.pragma("user_version")
    if (application, version) == (_APPLICATION, _VERSION):
        return True
    if application or version or db.execute("SELECT 1 FROM sqlite_schema").fetchall():
        raise apsw.NotADBError(f"it is of another program or version ({application:#x}, {version})")
    return False


def _make(db: "apsw.Connection", boot: str) -> None:
    db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    with _transaction(db):
        if not _is_ours(db):  # no other process was faster
            db.execute(_SCHEMA)
            db.execute("INSERT INTO boot VALUES (?)", (boot,))


def _check_after_reboot(db: "apsw.Connection", boot: str) -> None:
    """
    Check the file once. Nothing is synced, so a power cut may have left pages of different times;
    SQLite finds most of that, and the macs find the rest.
    """
    import apsw

    found = db.execute("PRAGMA integrity_check(1)").fetchall()
    if found != [("ok",)]:
        raise apsw.CorruptError(f"after a reboot: {found[0][0]}")
    with _transaction(db):
        db.execute("DELETE FROM boot")
        db.execute("INSERT INTO boot VALUES (?)", (boot,))


@contextlib.contextmanager
def _transaction(db: "apsw.Connection") -> Iterator[None]:
    """
    Take the write lock at the start. Two transactions that ask for it later would block each other
    for good.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _run(db: "apsw.Connection", query: str, values: tuple[Any, ...]) -> None:
    db.execute(query, values)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        return "unknown"


def _reaches(known: tuple[str, int] | None, instance: InstanceId, seq: int) -> bool:
    return known is not None and known[0] == instance and known[1] >= seq


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
