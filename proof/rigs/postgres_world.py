"""A home in PostgreSQL for the conformance suite, and a superuser who changes its rows."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from holdfast.adapters.files.home.anchor_tables import SESSIONS_PER_TABLE
from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.ids import SessionId
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import Draft
from holdfast.testing import outside

_DIES_DRIVING = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
async def main():
    address = DatabaseAddress(sys.argv[1], sys.argv[2])
    store = await PostgresStore.open_home(address, Path(sys.argv[3]))
    claim = await (await store.open(sys.argv[4])).claim()
    print(claim.epoch, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


class PostgresWorld:
    """One schema of a cluster and one node's folder. Call `close` outside of any event loop."""

    def __init__(self, url: str, schema: str, folder: Path, *, clock: Clock | None = None) -> None:
        self.place, self.folder = DatabaseAddress(url, schema), folder
        self._stores: list[PostgresStore] = []
        self.outsider: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self.outsider.execute(f'set search_path to "{schema}"')
        init_home(self.place, folder, clock=clock)

    async def store(self, *, clock: Clock | None = None, **options: Any) -> PostgresStore:
        store = await PostgresStore.open_home(
            self.place, self.folder, clock=clock, ahead_ms=None, **options
        )
        self._stores.append(store)
        return store

    async def die_driving(self, session: SessionId) -> int:
        return await asyncio.to_thread(self._die_driving, session)

    def _die_driving(self, session: SessionId) -> int:
        died = subprocess.run(
            [sys.executable, "-c", _DIES_DRIVING, *self.place[:2], str(self.folder), session],
            stdout=subprocess.PIPE,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return int(died.stdout)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        found = self.outsider.execute(sql, values)
        return found.fetchall() if found.description is not None else []

    def journal(self, session: SessionId) -> int:
        """The latest instance of a session."""
        (row,) = self.rows(
            "select journal from head where session = %s order by journal desc limit 1", session
        )
        return int(row[0])

    async def flip(self, session: SessionId, needle: bytes) -> None:
        journal = self.journal(session)
        for seq, line in self.rows("select seq, line from record where journal = %s", journal):
            at = line.find(needle)
            if at >= 0:
                changed = line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]
                self.rows(
                    "update record set line = %s where journal = %s and seq = %s",
                    changed,
                    journal,
                    seq,
                )
                return
        raise LookupError(needle)

    async def forge(self, session: SessionId, draft: Draft) -> None:
        journal = self.journal(session)
        (row,) = self.rows(
            "select seq, line from record where journal = %s order by seq desc limit 1", journal
        )
        last = json.loads(row[1])
        forged = {
            **last,
            "seq": last["seq"] + 1,
            "type": draft.type,
            "body": json.loads(draft.body),
            "mac": last["mac"][::-1],
        }
        line = json.dumps(forged, separators=(",", ":")).encode() + b"\n"
        self.rows("insert into record values (%s, %s, %s)", journal, row[0] + 1, line)
        self.rows(
            "update head set seq = %s, mac = %s where journal = %s",
            row[0] + 1,
            bytes.fromhex(forged["mac"]),
            journal,
        )

    async def copy(self, session: SessionId) -> Any:
        journal = self.journal(session)
        return (
            self.rows("select seq, line from record where journal = %s order by seq", journal),
            self.rows("select number, first_seq from segment where journal = %s", journal),
            self.rows("select seq, mac, at, segment_seq from head where journal = %s", journal),
        )

    async def put_back(self, session: SessionId, copy: Any) -> None:
        journal = self.journal(session)
        records, segments, (head,) = copy
        self.rows("delete from record where journal = %s", journal)
        self.rows("delete from segment where journal = %s", journal)
        for row in records:
            self.rows("insert into record values (%s, %s, %s)", journal, *row)
        for row in segments:
            self.rows("insert into segment values (%s, %s, %s)", journal, *row)
        self.rows(
            "update head set seq = %s, mac = %s, at = %s, segment_seq = %s where journal = %s",
            *head,
            journal,
        )

    async def wipe_newer_slot(self, session: SessionId) -> None:
        outside.wipe_newer_slot(*self._cell(session))

    async def copy_older_slot(self, session: SessionId) -> None:
        outside.copy_older_slot(*self._cell(session))

    def _cell(self, session: SessionId) -> tuple[Path, int]:
        lines = self.rows(
            "select line from record where journal = (select journal from head where "
            "session = '_home') order by seq"
        )
        slot = [
            said["body"]["slot"]
            for said in (json.loads(line) for (line,) in lines)
            if said["type"] == "session_created" and said["body"]["session"] == session
        ][-1]
        table = f"{slot // SESSIONS_PER_TABLE:04d}.anchors"
        return self.folder / "anchors" / table, slot % SESSIONS_PER_TABLE * 512

    def read_quarantined(self, where: str) -> bytes:
        item = int(where.rpartition("/")[2].partition("-")[0])
        rows = self.rows("select payload from quarantine where item = %s", item)
        if not rows:
            raise LookupError(where)
        import msgspec

        return bytes(msgspec.msgpack.decode(rows[0][0])[2])

    def close(self) -> None:
        for store in self._stores:
            asyncio.run(store.close())
        with contextlib.suppress(psycopg.Error):
            self.outsider.execute(f'drop schema "{self.place.schema}" cascade')
        self.outsider.close()
