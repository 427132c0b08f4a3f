"""
HOME/telemetry.db: how far each session was exported to the collector. See
`holdfast.ports.telemetry`.

It is a cache. Without it everything is exported again, with equal ids. A broken or foreign file is
created anew.
"""

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.adapters.sqlite.database import (
    Layout,
    close,
    connect,
    create_file,
    remove_file,
    remove_odd_journal,
    transaction,
)
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.telemetry import ExportPlace
from holdfast.telemetry.totals import Totals
from holdfast.telemetry.trace_state import TraceState
from holdfast.threads import BLOCKING

if TYPE_CHECKING:
    import apsw

NAME = "telemetry.db"
_LAYOUT = Layout(
    application=0x484F4C54,  # "HOLT"
    version=1,
    schema="""
        CREATE TABLE place (
            session TEXT PRIMARY KEY, instance TEXT NOT NULL, seq INTEGER NOT NULL,
            state BLOB NOT NULL) WITHOUT ROWID;
        CREATE TABLE totals (id INTEGER PRIMARY KEY CHECK (id = 1), body BLOB NOT NULL);
    """,
    pragmas="PRAGMA synchronous = NORMAL",
    busy_ms=5000,
)


class SqliteExportBook:
    """Opened at first use. All work is done in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._guard = threading.Lock()
        self._db: apsw.Connection | None = None

    async def places(self) -> Mapping[SessionId, tuple[InstanceId, int]]:
        rows = await BLOCKING.call(lambda: self._all("SELECT session, instance, seq FROM place"))
        return {SessionId(name): (InstanceId(instance), seq) for name, instance, seq in rows}

    async def place(self, session: SessionId) -> ExportPlace | None:
        rows = await BLOCKING.call(
            lambda: self._all(
                "SELECT instance, seq, state FROM place WHERE session = ?", (session,)
            )
        )
        for instance, seq, state in rows:
            with contextlib.suppress(msgspec.DecodeError):  # as if it were not there
                return ExportPlace(
                    session=session,
                    instance=InstanceId(instance),
                    seq=seq,
                    state=msgspec.json.decode(state, type=TraceState),
                )
        return None

    async def totals(self) -> Totals | None:
        rows = await BLOCKING.call(lambda: self._all("SELECT body FROM totals"))
        for (body,) in rows:
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(body, type=Totals)
        return None

    async def write(
        self, places: Sequence[ExportPlace], totals: Totals, *, forget: Sequence[SessionId] = ()
    ) -> None:
        rows = [
            (each.session, each.instance, each.seq, msgspec.json.encode(each.state))
            for each in places
        ]
        body = msgspec.json.encode(totals)
        await BLOCKING.call(lambda: self._write(rows, body, forget))

    def _write(
        self, rows: Sequence[tuple[str, str, int, bytes]], totals: bytes, forget: Sequence[str]
    ) -> None:
        with self._guard:
            db = self._opened()
            with transaction(db):
                db.executemany("REPLACE INTO place VALUES (?, ?, ?, ?)", rows)
                db.executemany("DELETE FROM place WHERE session = ?", [(each,) for each in forget])
                db.execute("REPLACE INTO totals VALUES (1, ?)", (totals,))

    def _all(self, statement: str, values: tuple[str, ...] = ()) -> list[Any]:
        with self._guard:
            return self._opened().execute(statement, values).fetchall()

    def _opened(self) -> "apsw.Connection":
        remove_odd_journal(self._path)
        if self._db is None:
            import apsw

            create_file(self._path)
            try:
                self._db = connect(self._path, _LAYOUT)
            except (apsw.NotADBError, apsw.CorruptError):
                remove_file(self._path)
                create_file(self._path)
                self._db = connect(self._path, _LAYOUT)
        return self._db

    def close(self) -> None:
        with self._guard:
            if self._db is not None:
                close(self._db)
                self._db = None
