"""
Many sessions at once: one thread writes and acknowledges for all of them, others do nothing but
wait for the disk.

Everything of a commit but its sync is a matter of microseconds, and of the interpreter, which one
thread uses best alone. A commit that comes by itself is synced right there, with no further change
of thread; a few are synced side by side; many are synced with one call for all of them, while those
that come meanwhile are written and wait for the next.
"""

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from holdfast.adapters.files.commit.filesystem_sync import FilesystemSync

MANY = 8  # from here on one sync of the filesystem is quicker than one of each file; by measurement


class Syncable(Protocol):
    """A commit on its way. None of these may wait for anything but the file."""

    def write(self) -> int | None:
        """The descriptor to sync; None when there is nothing to sync, and `end` was seen to."""
        ...

    def end(self, failure: OSError | None) -> None: ...


class _Written(NamedTuple):
    """On its way to the disk."""

    commit: Syncable
    fd: int


class _Synced(NamedTuple):
    """Back from the disk."""

    commit: Syncable
    failure: OSError | None


class _SyncedTogether(NamedTuple):
    """Back from the disk, or each to be asked by itself."""

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
        # The writer's own: for many at once; what is given to a syncer and not back; whether many
        # are; what waits until they are.
        self._filesystem: FilesystemSync | None = None
        self._out = 0
        self._many_are_out = False
        self._waiting: list[_Written] = []

    def put(self, commit: Syncable) -> bool:
        """
        Soon: written, synced, ended. False: no thread could be started for it, and nothing happens.
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
        """After everything that was put."""
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
        """At least one."""
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
                if not self._syncers:  # no thread is to be had: here, then, and the next one waits
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
            del given  # or this thread keeps alive what the caller has let go

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
