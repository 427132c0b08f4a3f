"""A home of files for the conformance suite, and an outsider's access to its segments."""

import asyncio
import json
from pathlib import Path
from typing import Any

from holdfast.adapters.files import FileStore
from holdfast.ids import SessionId
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import Draft, JournalStore
from holdfast.testing import outside
from proof.rigs.peer import Peer


class FilesWorld:
    """Everything under one folder. Call `close` after the test, outside of any event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stores: list[FileStore] = []

    async def store(self, *, clock: Clock | None = None) -> JournalStore:
        store = await FileStore.open_home(self.path, clock=clock)
        self._stores.append(store)
        return store

    async def die_driving(self, session: SessionId) -> int:
        return await asyncio.to_thread(self._die_driving, session)

    def _die_driving(self, session: SessionId) -> int:
        with Peer(self.path) as peer:
            epoch = int(peer.ask("claim", session=session)["epoch"])
            peer.kill()
            return epoch

    async def flip(self, session: SessionId, needle: bytes) -> None:
        for path in self._segments(session):
            at = path.read_bytes().find(needle)
            if at >= 0:
                outside.flip(path, at)
                return
        raise LookupError(needle)

    async def forge(self, session: SessionId, draft: Draft) -> None:
        active = self._segments(session)[-1]
        last = json.loads(active.read_bytes().splitlines()[-1])
        row = {
            **last,
            "seq": last["seq"] + 1,
            "type": draft.type,
            "body": json.loads(draft.body),
            "mac": last["mac"][::-1],
        }
        outside.append(active, json.dumps(row, separators=(",", ":")).encode() + b"\n")

    async def copy(self, session: SessionId) -> Any:
        return [path.read_bytes() for path in self._segments(session)]

    async def put_back(self, session: SessionId, copy: Any) -> None:
        segments = self._segments(session)
        for path, content in zip(segments, copy, strict=False):
            outside.replace(path, content)
        for path in segments[len(copy) :]:
            path.unlink()

    async def wipe_newer_slot(self, session: SessionId) -> None:
        outside.wipe_newer_slot(*self._cell(session))

    async def copy_older_slot(self, session: SessionId) -> None:
        outside.copy_older_slot(*self._cell(session))

    def _cell(self, session: SessionId) -> tuple[Path, int]:
        """Return the place of the session's anchor, which anyone can read in the home's journal."""
        lines = b"".join(
            path.read_bytes() for path in sorted((self.path / "home").glob("*.jsonl"))
        ).splitlines()
        records = [json.loads(line) for line in lines]
        slot = [
            record["body"]["slot"]
            for record in records
            if record["type"] == "session_created" and record["body"]["session"] == session
        ][-1]
        return self.path / "anchors" / f"{slot // 2048:04d}.anchors", slot % 2048 * 512

    def read_quarantined(self, where: str) -> bytes:
        kept, said, _ = (self.path / where).read_bytes().partition(b',"ours":')
        return kept + b"}" if said else kept

    def close(self) -> None:
        for store in self._stores:
            asyncio.run(store.close())

    def _segments(self, session: SessionId) -> list[Path]:
        """Return the segments of the latest instance: the one whose first segment is youngest."""
        paths = list((self.path / "sessions" / session).glob("*.jsonl"))
        latest = max(paths, key=lambda path: path.stat().st_mtime_ns).name.partition(".")[0]
        return sorted(path for path in paths if path.name.startswith(f"{latest}."))
