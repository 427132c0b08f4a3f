"""
Many sessions at once: one thread writes and acknowledges for all of them, others do nothing but wait for the disk.

Everything of a commit but its sync is a matter of microseconds, and of the interpreter, which one thread uses best alone. A commit that comes by
itself is synced right there, with no further change of thread; those that come together are synced side by side.
"""

import os
import threading
from queue import Empty, SimpleQueue
from typing import Protocol


class Syncable(Protocol):
    """A commit on its way. None of these may wait for anything but the file."""

    def write(self) -> int | None:
        """The descriptor to sync; None when there is nothing to sync, and `end` was seen to."""
        ...

    def end(self, failure: OSError | None) -> None: ...


class _Synced:
    """Back from the disk."""

    __slots__ = ("commit", "failure")

    def __init__(self, commit: Syncable, failure: OSError | None) -> None:
        self.commit, self.failure = commit, failure


class Syncing:
    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._guard = threading.Lock()
        self._inbox: SimpleQueue[Syncable | _Synced | None] = SimpleQueue()
        self._to_sync: SimpleQueue[tuple[Syncable, int] | None] = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._syncers: list[threading.Thread] = []
        self._out = 0  # given to a syncer and not back; the writer's own

    def put(self, commit: Syncable) -> None:
        """Soon: written, synced, ended."""
        if self._writer is None:
            with self._guard:
                if self._writer is None:
                    self._writer = threading.Thread(target=self._write_all, name=f"{self._name}-writer", daemon=True)
                    self._writer.start()
        self._inbox.put(commit)

    def stop(self) -> None:
        """After everything that was put."""
        if self._writer is not None:
            self._inbox.put(None)
            self._writer.join()

    def _write_all(self) -> None:
        stopping = False
        while not stopping or self._out:
            new: list[Syncable] = []
            for item in self._arrived():
                if item is None:
                    stopping = True
                elif isinstance(item, _Synced):
                    self._out -= 1
                    item.commit.end(item.failure)
                else:
                    new.append(item)
            self._sync(new)
        for _ in self._syncers:
            self._to_sync.put(None)
        for syncer in self._syncers:
            syncer.join()

    def _arrived(self) -> "list[Syncable | _Synced | None]":
        """At least one."""
        found = [self._inbox.get()]
        try:
            while True:
                found.append(self._inbox.get_nowait())
        except Empty:
            return found

    def _sync(self, new: list[Syncable]) -> None:
        if len(new) == 1 and not self._out:
            (commit,) = new
            if (fd := commit.write()) is not None:
                commit.end(_sync(fd))
            return
        for commit in new:
            if (fd := commit.write()) is not None:
                self._hand_out(commit, fd)

    def _hand_out(self, commit: Syncable, fd: int) -> None:
        self._out += 1
        if self._out > len(self._syncers) and len(self._syncers) < self._most:
            syncer = threading.Thread(target=self._sync_each, name=f"{self._name}-{len(self._syncers)}", daemon=True)
            self._syncers.append(syncer)
            syncer.start()
        self._to_sync.put((commit, fd))

    def _sync_each(self) -> None:
        while (given := self._to_sync.get()) is not None:
            commit, fd = given
            self._inbox.put(_Synced(commit, _sync(fd)))
            del given, commit  # or this thread keeps alive what the caller has let go


def _sync(fd: int) -> OSError | None:
    try:
        os.fdatasync(fd)
    except OSError as exc:
        return exc
    return None
