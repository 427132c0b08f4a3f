"""
HOME/search.db: full-text search over messages, in SQLite's FTS5. See `holdfast.ports.search`.

It is a cache: a broken or foreign file is created again. If no file can be written (a read-only
mount, a full disk), this process keeps the rows in memory. A row counts only with a mac under the
newest key, and so does the note that a session was read. Rows written before a key rotation, or
changed by somebody else, are read from the journal again.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from holdfast.adapters.sqlite.database import (
    Layout,
    close,
    connect,
    remove_file,
    remove_odd_journal,
    transaction,
)
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.ports.search import Hit, SearchedText

if TYPE_CHECKING:
    import apsw

_SCHEMA = """
    CREATE TABLE said (
        id INTEGER PRIMARY KEY, session TEXT NOT NULL, turn TEXT NOT NULL, at INTEGER NOT NULL,
        body BLOB NOT NULL, mac BLOB NOT NULL);
    CREATE INDEX said_turn ON said (session, turn);
    CREATE INDEX said_at ON said (at);
    CREATE VIRTUAL TABLE words USING fts5 (
        text, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
    CREATE TABLE through (
        session TEXT PRIMARY KEY, instance TEXT NOT NULL, seq INTEGER NOT NULL,
        mac BLOB NOT NULL) WITHOUT ROWID;
"""
_LAYOUT = Layout(
    application=0x484F4C53,  # "HOLS"
    version=2,
    schema=_SCHEMA,
    pragmas="PRAGMA synchronous = OFF",
    busy_ms=5000,
)
_FIND = """
    SELECT said.id, said.at, said.body, said.mac FROM words JOIN said ON said.id = words.rowid
    WHERE words MATCH ? AND (said.at < ? OR (said.at = ? AND said.id < ?))
    ORDER BY said.at DESC, said.id DESC LIMIT ?
"""
_NEWEST = (2**62, 2**62)
_NO_WRITES = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT})
_log = logging.getLogger("holdfast.files")


class SqliteSearch:
    """The search of one home. Opened at first use."""

    def __init__(self, path: Path, keys: Callable[[], Sequence[bytes]]) -> None:
        self._path, self._keys = path, keys
        self._guard = threading.RLock()
        self._db: apsw.Connection | None = None

    def through(self) -> dict[SessionId, tuple[InstanceId, int]]:
        with self._guard:
            rows = self._all("SELECT session, instance, seq, mac FROM through")
        return {
            SessionId(name): (InstanceId(instance), seq)
            for name, instance, seq, mac in rows
            if mac == self._through_mac(name, instance, seq)
        }

    def add(
        self, session: SessionId, instance: InstanceId, through: int, said: Sequence[SearchedText]
    ) -> None:
        def add(db: "apsw.Connection") -> None:
            if self._instance(db, session) != instance:
                self._forget(db, session)
            for each in said:
                body = msgspec.json.encode(each)
                db.execute(
                    "INSERT INTO said (session, turn, at, body, mac) VALUES (?, ?, ?, ?, ?)",
                    (session, each.turn, each.at, body, said_mac(self._keys()[0], body)),
                )
                db.execute(
                    "INSERT INTO words (rowid, text) VALUES (?, ?)",
                    (db.last_insert_rowid(), each.text),
                )
            mac = self._through_mac(session, instance, through)
            db.execute(
                "INSERT OR REPLACE INTO through VALUES (?, ?, ?, ?)",
                (session, instance, through, mac),
            )

        self._write(add)

    def _instance(self, db: "apsw.Connection", session: SessionId) -> Any:
        """
        Return the instance of the session's rows. Return None if there are no rows, or if the mac
        does not verify.
        """
        for instance, seq, mac in db.execute(
            "SELECT instance, seq, mac FROM through WHERE session = ?", (session,)
        ):
            return instance if mac == self._through_mac(session, instance, seq) else None
        return None

    def forget(self, session: SessionId) -> None:
        self._write(lambda db: self._forget(db, session))

    @staticmethod
    def _forget(db: "apsw.Connection", session: SessionId) -> None:
        db.execute(
            "DELETE FROM words WHERE rowid IN (SELECT id FROM said WHERE session = ?)", (session,)
        )
        db.execute("DELETE FROM said WHERE session = ?", (session,))
        db.execute("DELETE FROM through WHERE session = ?", (session,))

    def turn_reader_set(self, session: SessionId, turn: TurnId) -> tuple[str, str] | None:
        with self._guard:
            rows = self._all(
                "SELECT body, mac FROM said WHERE session = ? AND turn = ? ORDER BY id LIMIT 1",
                (session, turn),
            )
        found = self._believed(*rows[0]) if rows else None
        return reader_set_of(found, session, turn)

    def find(self, words: Sequence[str], *, limit: int, after: str | None = None) -> Sequence[Hit]:
        match = " ".join('"{}"'.format(word.replace('"', '""')) for word in words)
        at, row_id = position_of(after)
        hits: list[Hit] = []
        while len(hits) < limit:  # each round continues after the last row of the one before
            with self._guard:
                rows = self._all(_FIND, (match, at, at, row_id, limit))
            for row_id, at, body, mac in rows:
                said = self._believed(body, mac)
                if said is not None:
                    hits.append(Hit(said=said, cursor=f"{at}-{row_id}"))
            if len(rows) < limit:
                break
        return hits[:limit]

    def close(self) -> None:
        with self._guard:
            db, self._db = self._db, None
            if db is not None:
                close(db)

    # --- The file

    def _believed(self, body: bytes, mac: bytes) -> SearchedText | None:
        return believed_said(self._keys()[0], body, mac)

    def _through_mac(self, session: str, instance: Any, seq: Any) -> bytes:
        return through_mac(self._keys()[0], session, instance, seq)

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        import apsw

        try:
            return self._open().execute(query, values).fetchall()
        except (apsw.CorruptError, apsw.NotADBError):
            self._remove()
            return self._open().execute(query, values).fetchall()

    def _write(self, work: "Callable[[apsw.Connection], None]") -> None:
        """
        Run one transaction, all or nothing. If the file takes no more, all its rows are copied to
        memory and used there.
        """
        import apsw

        with self._guard:
            db = self._open()
            try:
                with transaction(db):
                    work(db)
            except (apsw.FullError, apsw.IOError, apsw.ReadOnlyError) as exc:
                _log.info("what is searched is kept in memory: %s", exc)
                self._db = _in_memory(db)
                close(db)
                with transaction(self._db):
                    work(self._db)

    def _open(self) -> "apsw.Connection":
        import apsw

        with contextlib.suppress(OSError):
            remove_odd_journal(str(self._path))
        if self._db is None:
            try:
                self._db = self._connected_anew()
            except (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError) as exc:
                _log.info("what is searched is kept in memory: %s", exc)
                self._db = _in_memory(None)
        return self._db

    def _connected_anew(self) -> "apsw.Connection":
        """Remove a broken or foreign file, or anything else in its place, once. A folder stays."""
        import apsw

        try:
            return self._connected()
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.CantOpenError):
            self._remove()
            return self._connected()

    def _connected(self) -> "apsw.Connection":
        return connect(str(self._path), _LAYOUT) if self._takes_writes() else _in_memory(None)

    def _takes_writes(self) -> bool:
        """Create the file if it is missing. SQLite reports any other problem with it."""
        try:
            os.close(
                os.open(
                    self._path,
                    os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                    0o600,
                )
            )
        except OSError as exc:
            return exc.errno not in _NO_WRITES
        return True

    def _remove(self) -> None:
        self.close()
        remove_file(str(self._path))


def _in_memory(of: "apsw.Connection | None") -> "apsw.Connection":
    """Return a connection in memory, with the rows of the other one."""
    db = connect(":memory:", _LAYOUT)
    if of is not None:
        with db.backup("main", of, "main") as copying:
            copying.step()
    return db


def position_of(after: str | None) -> tuple[int, int]:
    """Return the (at, id) that a cursor names; without one, a place after the newest row."""
    at, _, row_id = (after or "").partition("-")
    return (int(at), int(row_id)) if at.isdigit() and row_id.isdigit() else _NEWEST


# --- Verification, of every search in SQL


def believed_said(key: bytes, body: Any, mac: bytes) -> SearchedText | None:
    """Return the text if its mac verifies. Rows from before a key rotation are read again."""
    if not isinstance(body, bytes) or said_mac(key, body) != mac:
        _log.warning("search has a row that is not ours")
        return None
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(body, type=SearchedText)
    return None


def reader_set_of(
    found: SearchedText | None, session: SessionId, turn: TurnId
) -> tuple[str, str] | None:
    """The readers of a turn, by its own text alone: a row may stand in the place of another."""
    if found is None or (found.session, found.turn) != (session, turn):
        return None
    return found.audience, found.boundary


def said_mac(key: bytes, body: bytes) -> bytes:
    return blake3(b"said " + body, key=key).digest()


def through_mac(key: bytes, session: str, instance: Any, seq: Any) -> bytes:
    return blake3(b"through " + msgspec.json.encode((session, instance, seq)), key=key).digest()
