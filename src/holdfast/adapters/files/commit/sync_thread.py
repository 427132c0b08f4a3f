"""
Group commit for many sessions: one thread writes and acknowledges for all of them, other threads
only wait for the disk.

All steps of a commit except its sync take microseconds of the interpreter, and one thread uses the
interpreter best. There are three cases:

1. A single commit is synced in the writer thread itself, without a change of thread.
2. A few commits are synced side by side.
3. Many commits are synced with one call. Commits that arrive meanwhile are written and wait for the
   next call.
"""

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from holdfast.adapters.files.commit.filesystem_sync import FilesystemSync

MANY = 8  # from 8 files on, one sync of the filesystem is measured to be quicker than one per file


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
    """A commit whose own sync returned."""

    commit: Syncable
    failure: OSError | None


class _SyncedTogether(NamedTuple):
    """Commits that one sync covered. If it failed, each one is synced by itself."""

    written: list[_Written]
    done: bool


class GroupCommitThread:
    def __init__(
        self, most: int, name: str, filesystem: Callable[[], FilesystemSync | None]
    ) -> None:
        self._most, self._name = most, name
        self._open_filesystem = filesystem
        self._guard = threading.Lock()
        self._inbox: SimpleQueue[Syncable | _Synced | _SyncedTogether | None] = SimpleQueue()
        self._to_sync: SimpleQueue[_Written | list[_Written] | None] = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._syncers: list[threading.Thread] = []
        # The writer thread owns these. In this order: the sync for many files, the number of items
        # given to syncers and not yet returned, whether one of them is a sync for many, and the
        # commits that wait for that sync.
        self._filesystem: FilesystemSync | None = None
        self._out = 0
        self._many_are_out = False
        self._waiting: list[_Written] = []

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
        self._filesystem = self._open_filesystem()
        stopping = False
        while not stopping or self._out:
            for item in self._arrived():
                if item is None:
                    stopping = True
                elif isinstance(item, _Synced):
                    self._out -= 1
                    item.commit.end(item.failure)
                elif isinstance(item, _SyncedTogether):
                    self._end_many(item)
                elif (fd := item.write()) is not None:
                    self._waiting.append(_Written(item, fd))
            if not self._many_are_out:
                self._sync_waiting()
        for _ in self._syncers:
            self._to_sync.put(None)
        for syncer in self._syncers:
            syncer.join()
        if self._filesystem is not None:
            self._filesystem.close()

    def _arrived(self) -> "list[Syncable | _Synced | _SyncedTogether | None]":
        """Return at least one item."""
        found = [self._inbox.get()]
        try:
            while True:
                found.append(self._inbox.get_nowait())
        except Empty:
            return found

    def _sync_waiting(self) -> None:
        written, self._waiting = self._waiting, []
        if len(written) == 1 and not self._out:
            ((commit, fd),) = written
            commit.end(_sync(fd))
        elif (
            len(written) >= MANY
            and self._filesystem is not None
            and self._filesystem.is_quick([each.fd for each in written])
        ):
            self._many_are_out = True
            self._hand_out(written)
        else:
            for each in written:
                self._hand_out(each)

    def _hand_out(self, written: _Written | list[_Written]) -> None:
        self._out += 1
        if self._out > len(self._syncers) and len(self._syncers) < self._most:
            syncer = threading.Thread(
                target=self._sync_each, name=f"{self._name}-{len(self._syncers)}", daemon=True
            )
            try:
                syncer.start()
            except RuntimeError:
                if not self._syncers:  # no thread available: sync here
                    self._sync_given(written)
                    return
            else:
                self._syncers.append(syncer)
        self._to_sync.put(written)

    def _end_many(self, back: _SyncedTogether) -> None:
        self._out -= 1
        self._many_are_out = False
        for each in back.written:
            if back.done:
                each.commit.end(None)
            else:
                self._hand_out(each)

    def _sync_each(self) -> None:
        while (given := self._to_sync.get()) is not None:
            self._sync_given(given)
            del given  # otherwise this thread would keep the caller's objects alive

    def _sync_given(self, given: _Written | list[_Written]) -> None:
        if isinstance(given, _Written):
            self._inbox.put(_Synced(given.commit, _sync(given.fd)))
        else:
            self._inbox.put(
                _SyncedTogether(given, self._filesystem is not None and self._filesystem.sync())
            )


def _sync(fd: int) -> OSError | None:
    try:
        os.fdatasync(fd)
    except OSError as exc:
        return exc
    return None
