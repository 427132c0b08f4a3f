"""
Group commit for many sessions: one thread writes and acknowledges for all of them, other threads
only wait for the disk.

All steps of a commit except its sync take microseconds of the interpreter, and one thread uses the
interpreter best. There are two cases:

1. A single commit is synced in the writer thread itself, without a change of thread.
2. Several commits are synced side by side.
"""

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from holdfast.errors import Busy
from holdfast.threads import ThreadPool


class Syncable(Protocol):
    """A commit on its way. Its methods may wait for the file only."""

    def write(self) -> int | None:
        """
        Return the descriptor to sync. Return None if nothing is to be synced; `end` was then
        called.
        """
        ...

    def end(self, failure: OSError | None) -> None: ...


class _Written(NamedTuple):
    """A commit that is written and not yet synced."""

    commit: Syncable
    fd: int


class _Synced(NamedTuple):
    """A commit whose sync returned."""

    commit: Syncable
    failure: OSError | None


class GroupCommitThread:
    def __init__(self, most: int, name: str) -> None:
        self._name = name
        self._guard = threading.Lock()
        self._inbox: SimpleQueue[Syncable | _Synced | None] = SimpleQueue()
        self._syncers = ThreadPool(most, name)
        self._writer: threading.Thread | None = None
        self._syncing = 0  # commits given to syncers and not yet returned; the writer owns it

    def put(self, commit: Syncable) -> bool:
        """
        Write, sync and end the commit soon. Return False if no thread could be started; the commit
        then does not run.
        """
        if self._writer is None and not self._start_writer():
            return False
        self._inbox.put(commit)
        return True

    def _start_writer(self) -> bool:
        with self._guard:
            if self._writer is None:
                writer = threading.Thread(
                    target=self._write_all, name=f"{self._name}-writer", daemon=True
                )
                try:
                    writer.start()
                except RuntimeError:
                    return False
                self._writer = writer
        return True

    def stop(self) -> None:
        """Stop after all commits that were put are done."""
        if self._writer is not None:
            self._inbox.put(None)
            self._writer.join()

    def _write_all(self) -> None:
        is_stopping = False
        while not is_stopping or self._syncing:
            written: list[_Written] = []
            for item in self._arrived():
                if item is None:
                    is_stopping = True
                elif isinstance(item, _Synced):
                    self._syncing -= 1
                    item.commit.end(item.failure)
                elif (fd := item.write()) is not None:
                    written.append(_Written(item, fd))
            if len(written) == 1 and not self._syncing:
                ((commit, fd),) = written
                commit.end(_sync(fd))
            else:
                for each in written:
                    self._hand_out(each)
            del written
        self._syncers.stop()

    def _arrived(self) -> "list[Syncable | _Synced | None]":
        """Return at least one item."""
        found = [self._inbox.get()]
        try:
            while True:
                found.append(self._inbox.get_nowait())
        except Empty:
            return found

    def _hand_out(self, written: _Written) -> None:
        self._syncing += 1
        work = _sync_and_return(written, self._inbox.put)
        try:
            self._syncers.start(work)
        except Busy:  # no thread is available: sync here
            work()


def _sync_and_return(written: _Written, give_back: Callable[[_Synced], None]) -> Callable[[], None]:
    def work() -> None:
        give_back(_Synced(written.commit, _sync(written.fd)))

    return work


def _sync(fd: int) -> OSError | None:
    try:
        os.fdatasync(fd)
    except OSError as exc:
        return exc
    return None
