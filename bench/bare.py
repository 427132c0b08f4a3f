"""
The bare steps that the promises ask of a turn with one tool call, as a plain program would take
them: the least that any of it can cost in Python.

Four commits and the anchor's sync. Each commit takes the lock, sees that path, size, anchor and
every byte of the active segment are as they were left, frames its records with a mac each, has a
thread write and sync them off the event loop, looks again, writes the anchor and lets go. Nothing
is decided, folded, asked, run, listed or told, and nothing is done about trouble. None of the
product's code is in it.
"""

import asyncio
import fcntl
import json
import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from blake3 import blake3

_KEY = b"k" * 32
_RECORDS = (
    3,
    2,
    3,
    2,
)  # of the turn's commits: accepted, asked and started, run and asked again, answered
_BODY = {
    "turn": "t" * 20,
    "call": "c" * 20,
    "text": "It is up, and has been up since the night before.",
    "arguments": {"service": "api-1"},
    "n": 7,
}


class BareTurns:
    """A segment, an anchor and a thread that writes."""

    def __init__(self, folder: Path, *, already: int) -> None:
        """`already`: bytes in the active segment before the first turn."""
        self._folder = os.open(folder, os.O_RDONLY)
        self._segment = os.open(folder / "segment", os.O_RDWR | os.O_CREAT, 0o600)
        self._anchor = os.open(folder / "anchor", os.O_RDWR | os.O_CREAT, 0o600)
        self._scratch = memoryview(bytearray(1024 * 1024))
        self._hasher = blake3(b"x" * already, key=_KEY)
        self._mac = b"m" * 32
        self._start = self._offset = already
        os.pwrite(self._segment, b"x" * already, 0)
        self._write_anchor()
        self._work: SimpleQueue[tuple[asyncio.Future[None], bytes] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def turn(self) -> float:
        """Seconds that it took. The next one finds the segment as this one found it."""
        before = self._hasher.copy()
        started = time.perf_counter()
        for records in _RECORDS:
            await self._commit(records)
        await self._handed_over(b"")
        took = time.perf_counter() - started
        self._hasher, self._offset = before, self._start
        os.ftruncate(self._segment, self._start)
        return took

    async def _commit(self, records: int) -> None:
        fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there, ours = os.stat("segment", dir_fd=self._folder), os.fstat(self._segment)
        assert (there.st_ino, there.st_size) == (ours.st_ino, self._offset)
        slot = os.pread(self._anchor, 128, 0)
        assert blake3(slot[:-32], key=_KEY).digest() == slot[-32:]
        prefix = self._scratch[: self._offset]
        os.preadv(self._segment, [prefix], 0)
        assert blake3(prefix, key=_KEY).digest() == self._hasher.digest()
        data = b"".join(self._framed() for _ in range(records))
        await self._handed_over(data)
        self._offset += len(data)
        self._hasher.update(data)

    def _framed(self) -> bytes:
        body = json.dumps(_BODY).encode()
        digest = blake3(body).digest()
        header = b'{"seq":%d,"at":%d,"epoch":1,"type":"Something"' % (self._offset, self._offset)
        self._mac = blake3(self._mac + header + digest, key=_KEY).digest()
        return b'%s,"body":%s,"mac":"%s"}\n' % (header, body, self._mac.hex().encode())

    async def _handed_over(self, data: bytes) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._work.put((done, data))
        await done

    def _serve(self) -> None:
        while (given := self._work.get()) is not None:
            done, data = given
            if data:
                self._write(data)
            else:
                os.fdatasync(self._anchor)
            self._loop.call_soon_threadsafe(done.set_result, None)

    def _write(self, data: bytes) -> None:
        assert os.fstat(self._segment).st_size == self._offset
        os.pwrite(self._segment, data, self._offset)
        os.fdatasync(self._segment)
        assert os.stat("segment", dir_fd=self._folder).st_size == self._offset + len(data)
        self._write_anchor()
        fcntl.flock(self._folder, fcntl.LOCK_UN)

    def _write_anchor(self) -> None:
        fields = b"%096d" % self._offset
        os.pwrite(self._anchor, fields + blake3(fields, key=_KEY).digest(), 0)

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()
        for fd in (self._folder, self._segment, self._anchor):
            os.close(fd)
