"""
A home of files to break: stores, attempts, real processes, and a check of the write lock.

Everything that it opened is closed when the `async with` ends.
"""

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Self

from holdfast.adapters.files import FileStore
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import (
    Appended,
    Check,
    Claim,
    Decide,
    Head,
    Journal,
    Record,
    SealMark,
)
from holdfast.runtime.ledger.attempt import Attempt
from holdfast.testing.conformance.store import INSTANCE, OPS, everything, note, texts
from proof.rigs.peer import Peer


class Rig:
    """One home at `path` with the session `ops/api`, which is created if it does not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stack = AsyncExitStack()
        self._peers = ExitStack()

    async def __aenter__(self) -> Self:
        store = await self.store()
        if OPS not in await store.sessions():
            await store.create(OPS, INSTANCE, [note("born")], origin="created", by="tests")
        self.folder = Path((await store.open(OPS)).where()[0]).parent
        return self

    async def __aexit__(self, *_: object) -> None:
        self._peers.close()
        await self._stack.aclose()

    async def store(
        self, *, path: Path | None = None, clock: Clock | None = None, **settings: Any
    ) -> FileStore:
        store = await FileStore.open_home(path or self.path, clock=clock, **settings)
        self._stack.push_async_callback(store.close)
        return store

    async def journal(self, **settings: Any) -> Journal:
        """Open a journal in a store of its own, as another part of the program would."""
        return await (await self.store(**settings)).open(OPS)

    async def attempt(self, folded: list[Record] | None = None, **settings: Any) -> Attempt:
        """Return an attempt that appends without a claim, so that several can exist at once."""
        journal = await self.journal(**settings)
        attempt = await Attempt.acquire(journal, (folded if folded is not None else []).append)
        self._stack.push_async_callback(attempt.dispose)
        return attempt

    async def driving(self, folded: list[Record] | None = None, **settings: Any) -> Attempt:
        """Return an attempt that holds the claim."""
        journal = await self.journal(**settings)
        claim = await journal.claim()
        assert claim is not None, "somebody drives already"
        attempt = await Attempt.acquire(
            journal, (folded if folded is not None else []).append, claim=claim
        )
        self._stack.push_async_callback(attempt.dispose)
        return attempt

    def peer(self, **settings: Any) -> Peer:
        """Start a process of its own."""
        return self._peers.enter_context(Peer(self.path, **settings))

    @property
    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    @property
    def active(self) -> Path:
        return self.segments[-1]

    async def said(self) -> list[str]:
        """Return the texts that a fresh process reads."""
        return texts(await self.records())

    async def records(self) -> list[Record]:
        async with AsyncExitStack() as stack:
            store = await FileStore.open_home(self.path)
            stack.push_async_callback(store.close)
            return await everything(await store.open(OPS))

    async def seal(self) -> SealMark | None:
        """Return the seal that a fresh process finds."""
        async with AsyncExitStack() as stack:
            store = await FileStore.open_home(self.path)
            stack.push_async_callback(store.close)
            return (await store.open(OPS)).sealed

    def lock_is_free(self) -> bool:
        """Ask the kernel, through a descriptor of its own."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)


class WatchedJournal:
    """
    A journal that checks, whenever a call returns or fails, that the write lock is free. So the
    lock is free in every await of its caller.

    Only for tests with one writer at a time; a peer's lock would look like ours.
    """

    def __init__(self, journal: Journal, lock_is_free: Callable[[], bool]) -> None:
        self._journal = journal
        self._lock_is_free = lock_is_free
        self.calls = 0

    def _check(self) -> None:
        self.calls += 1
        assert self._lock_is_free(), "the write lock is held after a call has returned"

    @property
    def session(self) -> SessionId:
        return self._journal.session

    @property
    def instance(self) -> InstanceId:
        return self._journal.instance

    @property
    def head(self) -> Head:
        return self._journal.head

    @property
    def sealed(self) -> SealMark | None:
        return self._journal.sealed

    async def is_at_head(self) -> bool:
        return await self._journal.is_at_head()

    async def load(self, fold: Callable[[Record], None], *, after: int = 0) -> Head:
        try:
            return await self._journal.load(fold, after=after)
        finally:
            self._check()

    async def append(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        try:
            return await self._journal.append(decide, since=since, epoch=epoch, check=check)
        finally:
            self._check()

    def append_now(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        try:
            return self._journal.append_now(decide, since=since, epoch=epoch, check=check)
        finally:
            self._check()

    async def claim(self) -> Claim | None:
        try:
            return await self._journal.claim()
        finally:
            self._check()

    async def seal(self, mark: SealMark) -> None:
        try:
            await self._journal.seal(mark)
        finally:
            self._check()

    async def quarantine(self, kind: str, payload: bytes) -> str:
        try:
            return await self._journal.quarantine(kind, payload)
        finally:
            self._check()

    async def quarantined(self) -> Sequence[str]:
        return await self._journal.quarantined()

    async def keep_output(self, data: bytes) -> str:
        try:
            return await self._journal.keep_output(data)
        finally:
            self._check()

    async def output(self, digest: str) -> bytes:
        return await self._journal.output(digest)

    def where(self) -> Sequence[str]:
        return self._journal.where()

    async def sync_anchor(self) -> None:
        try:
            await self._journal.sync_anchor()
        finally:
            self._check()

    async def close(self) -> None:
        try:
            await self._journal.close()
        finally:
            self._check()
