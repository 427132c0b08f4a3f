"""
A home in a folder, and its sessions: the entry point of the file store.

The layout is in home/layout.py, the home's own journal in home/journal.py, the creation and
deletion of sessions in session/directory.py. This module has the verbs of the port and the threads
that run them, because blocking work must stay off the event loop.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.files.commit.sync_thread import GroupCommitThread, Syncable
from holdfast.adapters.files.derived_keys import DerivedKeys
from holdfast.adapters.files.home.create import create_home, is_created, open_home_folder
from holdfast.adapters.files.home.journal import HomeJournal
from holdfast.adapters.files.home.keys import Keys, KnownKeys, load_keys
from holdfast.adapters.files.home.layout import HomeFiles
from holdfast.adapters.files.home.survey import Survey
from holdfast.adapters.files.paths import disk_refused
from holdfast.adapters.files.session import signed_quarantine as quarantine
from holdfast.adapters.files.session import snapshots
from holdfast.adapters.files.session.claim import DriverClaim, remove_folder
from holdfast.adapters.files.session.directory import SessionDirectory
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.adapters.files.session.locks import forked
from holdfast.adapters.files.session.snapshots import KeptSnapshot
from holdfast.adapters.filesystems import MagicOf, filesystem_magic, refuse_unsafe
from holdfast.errors import Busy, InvariantBroken, Unusable
from holdfast.ids import InstanceId, JobId, SessionId
from holdfast.journal.fence import SegmentPlace
from holdfast.journal.record import Draft
from holdfast.journal.verify import Verdict
from holdfast.limits import LOCK_WAIT_SECONDS, SEGMENT_BYTES
from holdfast.ports.clock import Clock
from holdfast.ports.jobs import JobKey
from holdfast.ports.journal_store import Heads
from holdfast.ports.snapshots import Snapshot
from holdfast.secrecy import forget, learn
from holdfast.session.home.events import SessionCreated, SessionSealed
from holdfast.threads import BLOCKING, ThreadPool

T = TypeVar("T")

_THREADS = 64  # for work that may wait: for a lock, a big read, a new session
_COMMITTERS = 12  # decide, write and sync the appends that wait together in one session
_SYNCERS = 32  # they only wait for the disk, which makes one flush of many


class HomeOptions(TypedDict, total=False):
    """Options for opening a home; `FileStore` has the defaults."""

    clock: Clock | None
    segment_bytes: int
    lock_wait_seconds: float
    allow_network_filesystem: bool
    magic_of: MagicOf


class FileStore:
    """
    See `holdfast.ports.journal_store.JournalStore`. Created by `open_home` or `open_existing`.
    """

    def __init__(
        self,
        home: int,
        path: Path,
        found: Keys,
        clock: Clock,
        segment_bytes: int,
        lock_wait_seconds: float,
    ) -> None:
        self._home, self.path = home, path
        self.now_ms = clock.now_ms
        self._pid = os.getpid()
        self.writer = f"w{self._pid}-{secrets.token_hex(4)}"
        self._threads = ThreadPool(_THREADS, "holdfast-files")
        self._committers = ThreadPool(_COMMITTERS, "holdfast-commit")
        self._syncing = GroupCommitThread(_SYNCERS, "holdfast-sync")
        self.sync: Callable[[Syncable], bool] = self._syncing.put
        self._closed = False
        # Released when the store is closed. The kernel releases the claims of a process that dies.
        self.claims: set[DriverClaim] = set()
        keys = self._keys = KnownKeys(home, found.by_generation)
        self._files = HomeFiles(
            home,
            path,
            keys,
            generation=self.generation,
            segment_bytes=segment_bytes,
            lock_wait_seconds=lock_wait_seconds,
        )
        own = self._own = HomeJournal(self, self._files.own(), keys, found.trouble)
        # Append queues and handles call these in every append, without a method in between.
        self.check_alive, self.seal_mark, self.seal, self.is_lost = (
            own.check_alive,
            own.seal_mark,
            own.seal,
            own.is_lost,
        )
        self._directory = SessionDirectory(self, self._files, own, keys)
        self._survey = Survey(self._files, own, keys)
        self._derived = DerivedKeys(keys, own.generation)
        learn(self, self.key_bytes())

    # --- Opening

    @classmethod
    async def open_home(cls, path: Path, **options: Unpack[HomeOptions]) -> "FileStore":
        """Open the home at `path`, and create it if there is none."""
        store = await _opened(path, lambda: cls._made(path, create=True, **options))
        if store is None:
            raise InvariantBroken(f"{path} was made and is not there")
        return store

    @classmethod
    async def open_existing(cls, path: Path, **options: Unpack[HomeOptions]) -> "FileStore | None":
        """
        Open the home at `path`. Return None if it is absent, empty or half created. Creates
        nothing.
        """
        return await _opened(path, lambda: cls._made(path, create=False, **options))

    @classmethod
    def _made(
        cls,
        path: Path,
        *,
        create: bool,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
        allow_network_filesystem: bool = False,
        magic_of: MagicOf = filesystem_magic,
    ) -> "FileStore | None":
        """Blocks; see `open_home` and `open_existing`."""
        home = open_home_folder(path, create=create)
        if home is None:
            return None
        with contextlib.ExitStack() as unless_made:
            unless_made.callback(os.close, home)
            if not create and not is_created(home):
                return None
            if not allow_network_filesystem:
                refuse_unsafe(home, str(path), magic_of)
            clock = clock or SystemClock()
            if create and not is_created(home):
                create_home(home, path, clock.now_ms())
            store = cls(home, path, load_keys(home), clock, segment_bytes, lock_wait_seconds)
            store._own.load()
            if create and store._own.trouble is None:
                store._files.reserve.fill()
            unless_made.pop_all()
        return store

    # --- The port

    async def create(
        self,
        session: SessionId,
        instance: InstanceId,
        first: Sequence[Draft],
        *,
        origin: str,
        by: str,
    ) -> FileJournal:
        return await self.in_thread(
            lambda: self._directory.create(session, instance, first, origin=origin, by=by)
        )

    async def open(self, session: SessionId) -> FileJournal:
        return await self.in_thread(lambda: self._directory.open(session))

    async def sessions(self) -> Sequence[SessionId]:
        await self.in_thread(self._own.refresh)
        return sorted(self._own.registry.state.sessions)

    async def current(self, session: SessionId) -> InstanceId | None:
        if os.getpid() != self._pid or self._closed or not self._own.registry.is_fresh():
            await self.in_thread(self._own.refresh)
        created = self._own.created(session)
        return created.instance if created is not None else None

    def is_living(self, journal: FileJournal) -> bool:
        """
        Return True if this instance is its session's current one. Return False also if the home's
        journal must be read to know.
        """
        created = self._own.created(journal.session)
        return (
            created is not None
            and created.instance == journal.instance
            and self._own.registry.is_fresh()
        )

    async def instances(self, sessions: Collection[SessionId]) -> Mapping[SessionId, InstanceId]:
        if os.getpid() != self._pid or self._closed or not self._own.registry.is_fresh():
            await self.in_thread(self._own.refresh)
        living = self._own.registry.state.sessions
        return {name: living[name].instance for name in sessions if name in living}

    async def heads(self, *, after: SessionId | None = None, limit: int | None = None) -> Heads:
        return await self.in_thread(lambda: self._survey.heads(after, limit))

    async def heads_of(self, sessions: Collection[SessionId]) -> Heads:
        return await self.in_thread(lambda: self._survey.heads_of(sessions))

    async def recent_heads(
        self,
        *,
        within_seconds: float,  # noqa: ARG002  the port's
    ) -> Heads | None:
        return await self.heads()

    async def unsettled(self) -> Sequence[SessionId]:
        return await self.in_thread(self._survey.unsettled)

    async def held_by(
        self, session: SessionId, *, wait_seconds: float | None = None
    ) -> Busy | None:
        return await self.in_thread(lambda: self._survey.held_by(session, wait_seconds))

    def gauges(self) -> Mapping[str, tuple[str, float]]:
        return {}

    async def seals(self) -> Mapping[SessionId, SessionSealed]:
        return await self.in_thread(self._own.seals)

    async def home(self) -> FileJournal:
        return await self._own.open_handle()

    async def delete(self, session: SessionId, *, by: str, at_seq: int | None = None) -> None:
        await self.in_thread(lambda: self._directory.delete(session, by=by, at_seq=at_seq))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await BLOCKING.call_to_end(self._close_now)

    def _close_now(self) -> None:
        for claim in list(self.claims):
            claim.release_now()
        self._syncing.stop()
        self._committers.stop()
        self._threads.stop()
        for queue in self._directory.queues():
            remove_folder(queue.files)
            queue.files.close()
        self._files.close()
        os.close(self._home)
        forget(self)

    # --- Verification, keys and backup

    async def verify_session(
        self, session: SessionId, *, wait_seconds: float | None = None
    ) -> Verdict:
        """
        Walk every record and change nothing. The write lock is held for the last segment; the
        verdict is `unreadable` if the lock is not free within `wait_seconds`.
        """
        return await self.in_thread(lambda: self._survey.verify(session, wait_seconds))

    async def trouble_with(self, session: SessionId) -> str | None:
        """
        Return why the session's files can't be used, as text, without reading their content. Return
        None if they can be used. Changes nothing.
        """
        return await self.in_thread(lambda: self._survey.trouble_with(session))

    async def rotate_keys(self, *, by: str) -> int:
        """Create a new key generation, for every segment that is opened from now on."""
        generation = await self.in_thread(lambda: self._directory.rotate_keys(by=by))
        learn(self, self.key_bytes())
        return generation

    async def backup(self, target: Path) -> tuple[SessionId, ...]:
        """
        Copy the home as of now to a folder that does not exist yet, and return the sessions in it.
        Other processes may write meanwhile.
        """
        from holdfast.adapters.files.home.backup import copy_home

        manifest = await self.in_thread(lambda: copy_home(self, target, now_ms=self.now_ms()))
        return tuple(SessionId(each) for each in manifest.sessions)

    def copy_home_journal(self, copy: Callable[[], None]) -> list[SessionCreated]:
        """
        Copy the home's journal while nobody writes to it. Return the instances that the copy
        contains.
        """
        with self._own.files.locked():
            copy()
            self._own.refresh()
            return self._own.registry.page(None, None)

    def keeps(self, created: SessionCreated) -> bool:
        """Return True if the home's journal, as of now, still keeps the bytes of this instance."""
        self._own.refresh()
        return created.instance in self._own.registry.state.instances_of(created.session)

    @contextlib.contextmanager
    def write_lock(self, session: SessionId) -> Iterator[None]:
        """Hold the session's write lock: nobody appends to it meanwhile."""
        with self._files.of(self._own.living(session)).locked():
            yield

    # --- Keys and signed data

    def generation(self) -> int:
        """Return the key generation of new segments."""
        return self._own.generation()

    def key_bytes(self) -> tuple[bytes, ...]:
        """
        Return the keys themselves. They are known secrets: no record and no answer may contain
        them.
        """
        return tuple(self._keys.values())

    def index_keys(self) -> tuple[bytes, ...]:
        """Return the mac keys for the rows of the home's caches, the newest first."""
        return self._derived.of_index()

    def memory_key(self, generation: int | None = None) -> tuple[int, bytes] | None:
        """
        Return the mac key for rows of the home's memory: of that generation, or the newest for
        writing. Return None if the key is missing.
        """
        if generation is None and self._own.trouble is not None:
            return None
        return self._derived.of_memory(generation)

    def job_key(
        self, instance: InstanceId, job: JobId, generation: int | None = None
    ) -> JobKey | None:
        """
        Return the key with which a job's supervisor authenticates its report: of that generation,
        or the newest for a new job. Return None if the key is missing.
        """
        if generation is None and self._own.trouble is not None:
            return None
        found = self._derived.of_job(instance, job, generation)
        return JobKey(*found) if found is not None else None

    def keep_signed(self, files: SessionFiles, kind: str, payload: bytes) -> str:
        return quarantine.keep_signed(files, self._keys, self.generation(), kind, payload)

    def read_signed(self, files: SessionFiles, where: str) -> tuple[str, bytes]:
        return quarantine.read_signed(
            files, self._keys, self._own.registry.state.instances_of(files.session), where
        )

    def keep_snapshot(
        self, files: SessionFiles, snapshot: Snapshot, place: SegmentPlace | None = None
    ) -> None:
        """`place` is the end of the last record that it covers."""
        generation = self.generation()
        key = self._keys.get(generation)
        if key is not None:
            snapshots.keep(files, key, generation, snapshot, place)

    def read_snapshot(self, files: SessionFiles) -> KeptSnapshot:
        return snapshots.read(files, self._keys)

    # --- Services for append queues and handles

    def forget(self, journal: FileJournal) -> None:
        """
        Clean up after a closed handle. An anchor that was written is synced, so that it does not
        lag after a clean stop.
        """
        remove_folder(journal.files)
        with contextlib.suppress(OSError):
            journal.files.anchor.sync_if_dirty()

    def run(self, work: Callable[[], None]) -> None:
        self._threads.start(work)

    def run_quick(self, work: Callable[[], None]) -> None:
        self._committers.start(work)

    def in_thread(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """
        Start work off the event loop; await the returned coroutine for the outcome. The work is
        awaited to its end before a cancellation continues.
        """
        self.check_threads()
        return self._refused_or(self._threads.call_to_end(work))

    async def _refused_or(self, outcome: Coroutine[Any, Any, T]) -> T:
        try:
            return await outcome
        except OSError as exc:
            raise disk_refused(str(self.path), exc) from exc

    def check_threads(self) -> None:
        """
        Refuse to wait for threads that are in the parent process or have ended: the wait would
        never end.
        """
        if os.getpid() != self._pid:
            raise forked()
        if self._closed:
            raise InvariantBroken("the store is closed")

    @property
    def is_closed(self) -> bool:
        return self._closed


async def _opened(path: Path, work: Callable[[], T]) -> T:
    try:
        return await BLOCKING.call_to_end(work)
    except PermissionError as exc:
        raise Unusable(
            f"{path} can't be used: {exc}",
            code="unsafe_path",
            hint="a home belongs to the user who runs Holdfast",
        ) from exc
    except OSError as exc:
        raise disk_refused(str(path), exc) from exc
