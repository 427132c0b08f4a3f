"""
HOME/index.db: the rows that can be listed without opening journals, in SQLite. See
`holdfast.ports.index`.

It is a cache: index_file.py replaces a broken file and bypasses an unusable one. Callers notice
either case only through the result of `stale`. A row counts only with its mac; see `index_rows`.
"""

import contextlib
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from holdfast.adapters.sqlite.database import Layout, transaction
from holdfast.adapters.sqlite.index_file import IndexFile
from holdfast.adapters.sqlite.index_rows import (
    COLUMNS,
    PACKED_BYTES_MAX,
    RowKeys,
    Values,
    reaches,
    standing_of,
    values_of,
    verifies,
)
from holdfast.ids import ApprovalId, SessionId
from holdfast.limits import KIB, MIB
from holdfast.ports.index import IndexRow, Standing
from holdfast.ports.journal_store import Heads

if TYPE_CHECKING:
    import apsw

_log = logging.getLogger(__name__)

_SCHEMA = """
    CREATE TABLE boot (id TEXT NOT NULL);
    CREATE TABLE sessions (
        session TEXT NOT NULL UNIQUE, instance TEXT NOT NULL, seq INTEGER NOT NULL,
        owes INTEGER NOT NULL, waiting INTEGER NOT NULL, expires_at INTEGER NOT NULL,
        remind_at INTEGER NOT NULL, running INTEGER NOT NULL, awaits BLOB NOT NULL,
        rest BLOB NOT NULL, prompts BLOB NOT NULL, mac BLOB NOT NULL);
    CREATE INDEX sessions_waiting ON sessions (session) WHERE waiting;
    CREATE INDEX sessions_owing ON sessions (session) WHERE owes;
    CREATE INDEX sessions_running ON sessions (session) WHERE running;
    CREATE INDEX sessions_awaiting ON sessions (session) WHERE length(awaits);
    CREATE INDEX sessions_expiring ON sessions (expires_at, session) WHERE expires_at;
    CREATE INDEX sessions_reminding ON sessions (remind_at, session) WHERE remind_at;
    CREATE TABLE approvals (
        approval TEXT PRIMARY KEY, session TEXT NOT NULL, mac BLOB NOT NULL) WITHOUT ROWID;
"""
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS.split(", ")[1:])
_PUT = f"""
    INSERT INTO sessions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (session) DO UPDATE SET {_CHANGES}
"""  # noqa: S608  names of ours
_PUT_UNLESS_BEHIND = (
    _PUT + "WHERE excluded.instance <> sessions.instance OR excluded.seq >= sessions.seq"
)
_PUT_APPROVAL = "INSERT OR REPLACE INTO approvals VALUES (?, ?, ?)"
_ROW = f"SELECT {COLUMNS} FROM sessions"  # noqa: S608  names of ours
_PAGE = _ROW + " WHERE session > ? {} ORDER BY session LIMIT ?"
_PAGE_OF_ALL, _PAGE_OF_WAITING = _PAGE.format(""), _PAGE.format("AND waiting")
_PAGE_OF_RUNNING = _PAGE.format("AND running")
_DUE = """
    SELECT session FROM sessions WHERE owes
    UNION SELECT session FROM sessions WHERE length(awaits)
    UNION SELECT session FROM sessions WHERE expires_at AND expires_at <= ?
    UNION SELECT session FROM sessions WHERE remind_at AND remind_at <= ?
    ORDER BY 1
"""
_GET = _ROW + " WHERE session = ?"
_PAGE_BY_TIME = (
    _ROW + " WHERE {0} AND ({0}, session) > (?, ?) AND {0} <= ? ORDER BY {0}, session LIMIT ?"
)
_PAGES_BY_TIME = {name: _PAGE_BY_TIME.format(name) for name in ("expires_at", "remind_at")}
_PLACES = {name: COLUMNS.split(", ").index(name) for name in _PAGES_BY_TIME}
_EVER = 2**62
_LAST_NAME = "\U0010ffff"  # after any session's
_PAGE_ROWS = (
    256  # read at once; between pages no lock is held, so a slow reader of a list stops nobody
)
LAYOUT = Layout(
    application=0x484F4C44,  # "HOLD"
    version=9,
    schema=_SCHEMA,
    # The rollback journal is kept between writes: removing a file waits for a running sync, and
    # there often is one.
    pragmas="PRAGMA synchronous = OFF; PRAGMA journal_mode = PERSIST",
    # `put` is called in the middle of a turn; a file that is locked longer than this is bypassed.
    busy_ms=200,
    # Rows with prompts have from half a KiB to a few KiB. Pages of SQLite's usual size would leave
    # more space empty.
    page_bytes=8 * KIB,
    value_bytes_max=PACKED_BYTES_MAX + MIB,
)


class SqliteIndex:
    """The index of one home. Threads may share it; a forked child opens the file again."""

    def __init__(
        self, path: Path, keys: Callable[[], Sequence[bytes]], *, layout: Layout = LAYOUT
    ) -> None:
        self._file = IndexFile(path, layout, self._move_rows)
        self._keys = RowKeys(keys)

    # --- The port

    async def put(self, row: IndexRow, approvals: Sequence[ApprovalId] = ()) -> None:
        values = values_of(row, self._keys.newest)
        if values is None:
            _log.warning(
                "the index keeps no row for %s: it is larger than %d bytes",
                row.session,
                PACKED_BYTES_MAX,
            )
        places = [self._place_of(approval, row.session) for approval in approvals]

        def work(db: "apsw.Connection") -> None:
            with (
                transaction(db) if places else contextlib.nullcontext()
            ):  # one statement is a transaction by itself
                if values is not None:
                    self._put(db, values)
                for place in places:
                    _run(db, _PUT_APPROVAL, place)

        self._file.use(work, None)

    def _put(self, db: "apsw.Connection", values: Values) -> None:
        """If two processes put a row, the one with the higher seq wins, in any order."""
        db.execute(_PUT_UNLESS_BEHIND, values)
        if db.changes() == 0 and not verifies(
            db.execute(_GET, values[:1]).fetchall()[0], self._keys.newest
        ):
            db.execute(_PUT, values)

    async def put_approval(self, approval: ApprovalId, session: SessionId) -> None:
        self._file.use(lambda db: _run(db, _PUT_APPROVAL, self._place_of(approval, session)), None)

    async def forget(self, session: SessionId) -> None:
        def work(db: "apsw.Connection") -> None:
            db.execute("DELETE FROM sessions WHERE session = ?", (session,))
            db.execute("DELETE FROM approvals WHERE session = ?", (session,))

        self._file.use(work, None)

    async def get(self, session: SessionId) -> IndexRow | None:
        found = self._fetch(_GET, (session,))
        return self._keys.believed(found[0]) if found else None

    async def get_many(self, sessions: Sequence[SessionId]) -> Mapping[SessionId, IndexRow]:
        rows = [await self.get(session) for session in sessions]
        return {row.session: row for row in rows if row is not None}

    async def rows(
        self,
        *,
        after: SessionId | None = None,
        limit: int | None = None,
        only_waiting: bool = False,
    ) -> AsyncIterator[IndexRow]:
        left = limit
        for page in (
            self._pages(_PAGE_OF_WAITING if only_waiting else _PAGE_OF_ALL, after or "")
            if limit != 0
            else ()
        ):
            for found in page:
                row = self._keys.believed(found)
                if row is None:
                    continue
                yield row
                left = None if left is None else left - 1
                if left == 0:
                    return

    async def prompting(self) -> AsyncIterator[Sequence[Standing]]:
        for page in self._pages(_PAGE_OF_WAITING, ""):
            yield self._standing(page)

    async def due(self, *, until: int) -> AsyncIterator[Sequence[Standing]]:
        names = [name for (name,) in self._fetch(_DUE, (until, until)) if isinstance(name, str)]
        for start in range(0, len(names), _PAGE_ROWS):
            yield self._standing(
                found
                for name in names[start : start + _PAGE_ROWS]
                for found in self._fetch(_GET, (name,))
            )

    def _standing(self, page: Iterable[tuple[Any, ...]]) -> list[Standing]:
        return [standing_of(found) for found in self._keys.verified(page)]

    async def with_jobs(self) -> AsyncIterator[IndexRow]:
        for page in self._pages(_PAGE_OF_RUNNING, ""):
            for found in page:
                if (row := self._keys.believed(found)) is not None:
                    yield row

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

    async def session_of(self, approval: ApprovalId) -> SessionId | None:
        found = self._fetch("SELECT session, mac FROM approvals WHERE approval = ?", (approval,))
        if not found or self._keys.approval_mac(approval, str(found[0][0])) != found[0][1]:
            return None
        return SessionId(found[0][0])

    async def behind(self, heads: Callable[[], Awaitable[Heads]]) -> Sequence[SessionId]:
        return await self.stale(await heads())

    async def stale(self, heads: Heads) -> Sequence[SessionId]:
        known = {
            found[0]: (found[1], found[2])
            for page in self._pages(_PAGE_OF_ALL, "")
            for found in page
            if self._keys.verifies(found)
        }
        return [
            session
            for session, instance, seq in heads
            if not reaches(known.get(session), instance, seq)
        ]

    async def next_reminder(self, *, after: int) -> int | None:
        return next(
            (remind_at for remind_at, _ in self._by_time("remind_at", after, _EVER, rows=1)), None
        )

    async def reminding(self, *, after: int, until: int) -> Sequence[SessionId]:
        return [session for _, session in self._by_time("remind_at", after, until, rows=_PAGE_ROWS)]

    async def next_expiry(self, *, after: int) -> int | None:
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
                if self._keys.verifies(found):
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
        self._file.close()

    def _place_of(self, approval: ApprovalId, session: SessionId) -> tuple[str, str, bytes]:
        return approval, session, self._keys.approval_mac(approval, session)

    # --- Rows
    def _fetch(self, query: str, values: tuple[str | float, ...]) -> list[tuple[Any, ...]]:
        if any(isinstance(each, str) and not _is_text(each) for each in values):
            return []  # half a character: no row has it, and the file is not broken
        return self._file.use(lambda db: db.execute(query, values).fetchall(), [])

    def _move_rows(self, memory: "apsw.Connection", db: "apsw.Connection") -> None:
        for values in memory.execute("SELECT * FROM sessions").fetchall():
            self._put(db, cast(Values, values))
        for values in memory.execute("SELECT * FROM approvals").fetchall():
            _run(db, _PUT_APPROVAL, values)


def _run(db: "apsw.Connection", query: str, values: tuple[Any, ...]) -> None:
    db.execute(query, values)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
