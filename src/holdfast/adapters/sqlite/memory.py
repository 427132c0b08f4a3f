"""
HOME/memory.db: remembered items, in SQLite. See `holdfast.ports.memory`.

It is not a cache: a broken, foreign or newer file is never replaced, and unreadable items are
reported as such. A row is a body and a mac over it. The row names the key of the home that made the
mac, so a key rotation forgets nothing. A copied, changed or invented row does not verify. A row
that is put back whole after it was forgotten does verify, and can't be noticed.

FTS5 finds items by their words. Its index is only a hint: the rows it finds are verified and judged
like any other. It holds a digest of (reader set, word) for each word, and no text. So each reader
set has word lists of its own, no query has any syntax, and no page contains a forgotten word. Every
commit is synced, with its folder (synchronous = EXTRA: with FULL, a power cut could bring back a
deleted rollback journal and undo an acknowledged change).
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from holdfast import limits
from holdfast.adapters.sqlite.database import (
    Identity,
    Layout,
    close,
    connect,
    create_file,
    identity_of,
    refuse_odd_journal,
    transaction,
)
from holdfast.adapters.sqlite.memory_rows import (
    MemoryKeys,
    believed_item,
    item_mac,
    newest_key,
    rarest,
    reader_set_key,
    too_many,
)
from holdfast.errors import NotSaved
from holdfast.ports.memory import CannotRecall, MemoryMatches, MemoryRow, refuse_secret_item
from holdfast.session.features.memory.items import MemoryItem, ReaderSet, words_of

if TYPE_CHECKING:
    import apsw

NAME = "memory.db"
_SCHEMA = """
    CREATE TABLE items (
        n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, boundary TEXT NOT NULL,
        generation INTEGER NOT NULL, body BLOB NOT NULL, mac BLOB NOT NULL);
    CREATE INDEX items_boundary ON items (boundary);
    CREATE VIRTUAL TABLE words USING fts5 (
        digests, content='', contentless_delete=1, tokenize='ascii');
    CREATE TABLE spread (digest TEXT PRIMARY KEY, items INTEGER NOT NULL) WITHOUT ROWID;
"""
_ADD = "INSERT INTO items (id, boundary, generation, body, mac) VALUES (?, ?, ?, ?, ?)"
_GET = "SELECT id, boundary, generation, body, mac FROM items WHERE id = ?"
_PAGE = "SELECT id, boundary, generation, body, mac FROM items WHERE n > ? ORDER BY n LIMIT ?"
_FIND = """
    SELECT id, boundary, generation, body, mac
    FROM (SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?) AS found
    JOIN items ON items.n = found.rowid ORDER BY found.rank
"""
_SPREAD = "INSERT INTO spread VALUES (?, 1) ON CONFLICT DO UPDATE SET items = items + 1"
_STEPS_BETWEEN_LOOKS = 1000  # SQLite steps between checks of the clock: well under a millisecond
_WRITE_WAIT_MS = 5000
_READ_WAIT_SECONDS = 5.0
_LAYOUT = Layout(
    application=0x484F4C4D,  # "HOLM"
    version=1,
    schema=_SCHEMA,
    pragmas="PRAGMA synchronous = EXTRA; PRAGMA cache_size = -8192; PRAGMA secure_delete = ON",
    busy_ms=_WRITE_WAIT_MS,
)


class SqliteMemory:
    """
    The memory of one home. Opened at first use, and created by the first `add`. A forked child
    opens the file again.
    """

    def __init__(self, path: Path, keys: MemoryKeys) -> None:
        self._path, self._keys = path, keys
        self._guard = threading.RLock()
        self._db: apsw.Connection | None = None
        # The identity of `_db`'s file, as the path named it at opening, and the process that opened
        # it.
        self._file: Identity | None = None
        self._pid = os.getpid()

    def is_empty(self) -> bool:
        return not self._path.exists()

    # --- Writing

    def add(self, item: MemoryItem) -> bool:
        refuse_secret_item(item)
        with self._writing() as db:
            if db.execute("SELECT 1 FROM items WHERE id = ?", (item.id,)).fetchall():
                return False
            kept: Any = db.execute(
                "SELECT count(*) FROM items WHERE boundary = ?", (item.boundary,)
            ).fetchall()[0][0]
            if kept >= limits.MEMORY_ITEMS_PER_BOUNDARY_MAX:
                raise too_many(item.boundary, kept)
            self._insert(db, item)
            return True

    def _insert(self, db: "apsw.Connection", item: MemoryItem) -> None:
        generation, secret = newest_key(self._keys)
        body = msgspec.json.encode(item)
        db.execute(
            _ADD, (item.id, item.boundary, generation, body, item_mac(secret, item.id, body))
        )
        digests = _digests_of(item)
        db.execute(
            "INSERT INTO words (rowid, digests) VALUES (?, ?)",
            (db.last_insert_rowid(), " ".join(digests)),
        )
        db.executemany(_SPREAD, [(digest,) for digest in digests])

    def forget(self, memory: str) -> bool:
        if self.is_empty():
            return False
        with self._writing() as db:
            found = db.execute(_GET, (memory,)).fetchall()
            if not found:
                return False
            if (item := self._believed(found[0])) is not None:
                db.executemany(
                    "UPDATE spread SET items = items - 1 WHERE digest = ?",
                    [(each,) for each in _digests_of(item)],
                )
            db.execute(
                "DELETE FROM words WHERE rowid = (SELECT n FROM items WHERE id = ?)", (memory,)
            )
            db.execute("DELETE FROM items WHERE id = ?", (memory,))
            return True

    # --- Reading

    def find(
        self, words: Sequence[str], reader_set: ReaderSet, *, limit: int, seconds: float
    ) -> MemoryMatches:
        wanted = _digests(
            reader_set_key(reader_set.audience.value, reader_set.boundary, reader_set.person), words
        )
        if not wanted or self.is_empty():
            return MemoryMatches(())
        with self._reading(seconds) as db:
            chosen = _rarest(db, wanted)
            rows = db.execute(_FIND, (" OR ".join(chosen), limit)).fetchall() if chosen else []
        items = [self._believed(row) for row in rows]
        return MemoryMatches(tuple(item for item in items if item is not None), items.count(None))

    def get(self, memory: str) -> MemoryItem | None:
        if self.is_empty():
            return None
        with self._reading(_READ_WAIT_SECONDS) as db:
            rows = db.execute(_GET, (memory,)).fetchall()
        return self._believed(rows[0]) if rows else None

    def rows(self, *, after: str | None = None, limit: int | None = None) -> Sequence[MemoryRow]:
        if self.is_empty():
            return ()
        with self._reading(None) as db:
            place = (
                [(0,)]
                if after is None
                else db.execute("SELECT n FROM items WHERE id = ?", (after,)).fetchall()
            )
            rows = (
                db.execute(_PAGE, (place[0][0], -1 if limit is None else limit)).fetchall()
                if place
                else []
            )
        return [MemoryRow(str(row[0]), self._believed(row)) for row in rows]

    def close(self) -> None:
        with self._guard:
            db, self._db = self._db, None
            if db is not None and self._pid == os.getpid():
                close(db)

    # --- Verification

    def _believed(self, row: tuple[Any, ...]) -> MemoryItem | None:
        return believed_item(self._keys, row)

    # --- The file

    @contextlib.contextmanager
    def _reading(self, seconds: float | None) -> "Iterator[apsw.Connection]":
        """
        Read within so many seconds, including the wait for writers; with None, without a limit.
        """
        import apsw

        deadline = None if seconds is None else time.monotonic() + seconds
        if not self._guard.acquire(timeout=-1 if seconds is None else max(0.0, seconds)):
            raise CannotRecall("memory is busy")
        try:
            db = self._open()
            db.set_busy_timeout(
                _WRITE_WAIT_MS
                if deadline is None
                else max(1, int((deadline - time.monotonic()) * 1000))
            )
            db.set_progress_handler(
                None if deadline is None else lambda: time.monotonic() > deadline,
                _STEPS_BETWEEN_LOOKS,
            )
            yield db
        except apsw.InterruptError as exc:
            raise CannotRecall("it took too long") from exc
        except apsw.BusyError as exc:
            raise CannotRecall("somebody else is writing to memory") from exc
        except (apsw.Error, OSError) as exc:
            raise CannotRecall(f"{self._path.name} can't be read: {exc}") from exc
        finally:
            self._guard.release()

    @contextlib.contextmanager
    def _writing(self) -> "Iterator[apsw.Connection]":
        """
        Run one transaction, synced at its end. A crash before COMMIT returns leaves all of it or
        nothing.
        """
        import apsw

        with self._guard:
            try:
                db = self._open(create=True)
                db.set_progress_handler(None)
                db.set_busy_timeout(_WRITE_WAIT_MS)
                with transaction(db):
                    yield db
            except (apsw.Error, OSError) as exc:
                raise NotSaved(
                    f"{self._path.name} was not written: {exc}",
                    hint="`holdfast doctor` looks for the reason; nothing was changed",
                ) from exc

    def _open(self, *, create: bool = False) -> "apsw.Connection":
        """
        Open the file that the path names now: nothing is written to a file that was deleted or
        replaced meanwhile.
        """
        if self._pid != os.getpid():
            self._db, self._pid = None, os.getpid()
        refuse_odd_journal(str(self._path))
        if self._db is not None and self._file != identity_of(str(self._path)):
            self.close()
        if self._db is None:
            if create:
                create_file(str(self._path))
            self._db = connect(str(self._path), _LAYOUT)
            self._file = identity_of(str(self._path))
        return self._db


def copy_memory(source: Path, target: Path) -> None:
    """
    Copy the file for a backup, as of one moment, while others write. Blocks. Do nothing if no item
    was ever remembered.
    """
    if not source.exists():
        return
    import apsw

    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        _copy_pages(source, target)
    except apsw.Error as exc:
        raise NotSaved(
            f"{source.name} can't be copied: {exc}", hint="`holdfast doctor` looks for the reason"
        ) from exc
    with target.open("rb+") as copied:
        os.fsync(copied.fileno())


def _copy_pages(source: Path, target: Path) -> None:
    import apsw

    refuse_odd_journal(str(source))
    with contextlib.ExitStack() as stack:
        there = apsw.Connection(
            str(source), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        )
        stack.callback(there.close)
        there.set_busy_timeout(_WRITE_WAIT_MS)
        here = apsw.Connection(str(target))
        stack.callback(here.close)
        with here.backup("main", there, "main") as backup:
            while not backup.done:
                backup.step()


def _rarest(db: "apsw.Connection", digests: Iterable[str]) -> list[str]:
    spread: list[tuple[Any, str]] = []
    for digest in digests:
        held = db.execute("SELECT items FROM spread WHERE digest = ?", (digest,)).fetchall()
        spread += [(items, digest) for (items,) in held]
    return [f'"{digest}"' for digest in rarest(spread)]


def _digests_of(item: MemoryItem) -> list[str]:
    return _digests(reader_set_key(item.audience, item.boundary, item.person), words_of(item.text))


def _digests(reader_set: str, words: Iterable[str]) -> list[str]:
    """
    Return each word once, as a digest of letters and digits only: FTS5 can't read it as a query.
    """
    return [
        blake3(f"{reader_set} {word}".encode("utf-8", "surrogatepass")).hexdigest(length=8)
        for word in dict.fromkeys(words)
    ]
