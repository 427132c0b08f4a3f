"""
A home in a folder, and its sessions: the file store's way in.

HOME/keys, HOME/home (its own journal), HOME/anchors, HOME/sessions/<channel>/<thread>, HOME/quarantine, HOME/run, HOME/reserve.
The home's journal names every session's living instance; files of other names are leftovers or earlier lives. Births, deletions and seals are
records of it. Locks are taken in one order, the home's before a session's, and a seal is recorded with no session's lock held.
"""

import asyncio
import contextlib
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.adapters.files import birth, snapshots
from holdfast.adapters.files import keys as key_files
from holdfast.adapters.files.anchors import AnchorCell, AnchorTables
from holdfast.adapters.files.catch_up import Damaged
from holdfast.adapters.files.clock import SystemClock
from holdfast.adapters.files.driver import DriverClaim, remove_folder
from holdfast.adapters.files.filesystem_sync import FilesystemSync
from holdfast.adapters.files.filesystems import MagicOf, filesystem_magic, refuse_unsafe
from holdfast.adapters.files.home_birth import HOME_INSTANCE, HOME_PARTS, HOME_SESSION, bear_home, is_born, open_home_folder
from holdfast.adapters.files.journal import FileJournal, sealed_error
from holdfast.adapters.files.lane import Lane, Request
from holdfast.adapters.files.locks import forked
from holdfast.adapters.files.opening import HomeOrSession
from holdfast.adapters.files.paths import disk_refused, open_file, walk
from holdfast.adapters.files.reading import open_at_head, stream_what_verifies
from holdfast.adapters.files.registry import Registry
from holdfast.adapters.files.reserve import Reserve
from holdfast.adapters.files.session_files import HEADER_BYTES_MAX, SessionFiles
from holdfast.adapters.files.syncing import Syncable, Syncing
from holdfast.adapters.files.threads import Arrival, Threads
from holdfast.adapters.files.verifying import unreadable, verify_files
from holdfast.errors import Busy, InDoubt, InvariantBroken, Refused, Untrusted, Unusable
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import KEY_BYTES, KeyMissing, Keyring, key_id, subkey
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft, read_unverified
from holdfast.journal.segment import read_opened
from holdfast.journal.verify import Damage, Verdict
from holdfast.limits import LOCK_WAIT_SECONDS, SEGMENT_BYTES
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import Appended, Check, SealMark, Section
from holdfast.ports.snapshots import Snapshot
from holdfast.session.home_events import (
    AnyHomeEvent,
    KeyRotated,
    SessionCreated,
    SessionDeleted,
    SessionSealed,
    encode_home_event,
)

T = TypeVar("T")

_THREADS = 64  # whatever may wait: for a lock, a big read, a birth
_COMMITTERS = 12  # appends that wait together in one session are decided, written and synced here
_SYNCERS = 32  # they only wait for the disk, which makes one flush of many
SESSIONS = "sessions"


class FileStore:
    """See `holdfast.ports.journal_store.JournalStore`. Made by `open` or `open_existing`."""

    def __init__(self, home: int, path: Path, keys: key_files.Keys, clock: Clock, segment_bytes: int, lock_wait_seconds: float) -> None:
        self._home, self.path = home, path
        self._keys, self._trouble = key_files.KnownKeys(home, keys.by_generation), keys.trouble
        self.now_ms = clock.now_ms
        self._segment_bytes, self._lock_wait_seconds = segment_bytes, lock_wait_seconds
        self._pid = os.getpid()
        self.writer = f"w{self._pid}-{secrets.token_hex(4)}"
        self._threads = Threads(_THREADS, "holdfast-files")
        self._committers = Threads(_COMMITTERS, "holdfast-commit")
        self._syncing = Syncing(_SYNCERS, "holdfast-sync", lambda: FilesystemSync.open(home))
        self._tables = AnchorTables(home)
        self._reserve = Reserve(home)
        self._lanes: weakref.WeakValueDictionary[tuple[SessionId, InstanceId], Lane] = weakref.WeakValueDictionary()
        self._guard = threading.Lock()
        # One birth or deletion at a time in this process: each must see the one before in the registry.
        self._births = threading.Lock()
        # One at a time finds out what became of a commit to the home's journal that was in doubt.
        self._reopening = threading.Lock()
        self._closed = False
        # Given up when the store is closed; the kernel does the same for a process that dies.
        self.claims: set[DriverClaim] = set()
        self._home_mark: SealMark | None = None
        # By the newest generation, which never falls; derived once.
        self._index_keys: tuple[int, tuple[bytes, ...]] | None = None
        files = self._files(HOME_SESSION, HOME_INSTANCE, HOME_PARTS, self._tables.home_cell())
        self._home_lane = Lane(files, self)
        self._registry = Registry(files)
        self._home_journal = FileJournal(self, self._home_lane, files.fence(), verified=self._trouble is None or bool(self._keys))

    # --- opening -----------------------------------------------------------------------------------------------------

    open = HomeOrSession()
    """`FileStore.open(path)` is `open_home`; `store.open(session)` is `open_journal`."""

    @classmethod
    async def open_home(
        cls,
        path: Path,
        *,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
        allow_network_filesystem: bool = False,
        magic_of: MagicOf = filesystem_magic,
    ) -> "FileStore":
        """The home at `path`, born if there is none."""

        def work() -> FileStore:
            home = open_home_folder(path, create=True)
            if home is None:
                raise InvariantBroken(f"{path} was made and is not there")
            try:
                if not allow_network_filesystem:
                    refuse_unsafe(home, str(path), magic_of)
                store = cls._made(home, path, clock, segment_bytes, lock_wait_seconds, create=True)
            except BaseException:
                os.close(home)
                raise
            return store

        return await _opened(path, work)

    @classmethod
    async def open_existing(
        cls,
        path: Path,
        *,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
        allow_network_filesystem: bool = False,
        magic_of: MagicOf = filesystem_magic,
    ) -> "FileStore | None":
        """The home at `path`, or None when it is absent, empty or half born. Creates nothing."""

        def work() -> FileStore | None:
            home = open_home_folder(path, create=False)
            if home is None:
                return None
            try:
                if not is_born(home):
                    os.close(home)
                    return None
                if not allow_network_filesystem:
                    refuse_unsafe(home, str(path), magic_of)
                return cls._made(home, path, clock, segment_bytes, lock_wait_seconds, create=False)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.close(home)
                raise

        return await _opened(path, work)

    @classmethod
    def _made(cls, home: int, path: Path, clock: Clock | None, segment_bytes: int, lock_wait_seconds: float, *, create: bool) -> "FileStore":
        if create and not is_born(home):
            bear_home(home, path, (clock or SystemClock()).now_ms())
        store = cls(home, path, key_files.load_keys(home), clock or SystemClock(), segment_bytes, lock_wait_seconds)
        store._load_home()
        if create and store._trouble is None:
            store._reserve.fill()
        return store

    def _load_home(self) -> None:
        """Verify and fold the home's journal; a damaged one is sealed, and everything in it can only be read."""
        files = self._home_journal.files
        if not self._home_journal.is_verified:
            self._home_journal.load_now(self._registry.fold)
            return None
        try:
            fence = open_at_head(files, first_mac=None, writer=self.writer, now=self.now_ms())
            self._home_journal.fence = fence
            self._registry.load(fence, self.read_snapshot(files))
        except Damaged as exc:
            if self._is_another_key():
                return self._without_key("key 1 is not the one this home was made with")
            self._seal_home(self._home_journal.untrusted(exc.damage, while_open=False))
            self._registry.reset()
            stream_what_verifies(files, self._registry.fold, after=0)
        except KeyMissing as exc:
            return self._without_key(str(exc))
        except FileNotFoundError:
            self._seal_home(self._home_journal.untrusted(Damage("cut_short", "its journal is missing", 0, 1, 0), while_open=False))
        newest = self._registry.state.generation
        if newest not in self._keys:
            self._trouble = self._trouble or f"key {newest} is missing"
        mark = self._read_home_mark()
        if mark is not None:
            self._home_mark = self._home_mark or mark
            self._home_journal.spend(sealed_error(HOME_SESSION, mark))
        return None

    def _without_key(self, why: str) -> None:
        """Everything can be read and nothing verified or written. Never a seal: the journal is not to blame."""
        self._trouble = self._trouble or why
        self._home_journal.is_verified = False
        self._home_journal.load_now(self._registry.fold)

    def _is_another_key(self) -> bool:
        """Does the home's first segment name another key than ours? One that is gone names none."""
        try:
            with walk(self._home, *HOME_PARTS) as folder:
                line = self._home_journal.files.read_segment(folder, 1, HEADER_BYTES_MAX).split(b"\n")[0]
        except FileNotFoundError:
            return False
        record = read_unverified(line + b"\n")
        opened = read_opened(record.body) if record else None
        return opened is not None and opened.key.generation in self._keys and key_id(self._keys[opened.key.generation]) != opened.key.id

    # --- the port ----------------------------------------------------------------------------------------------------

    async def create(self, session: SessionId, instance: InstanceId, first: Sequence[Draft], *, origin: str, by: str) -> FileJournal:
        return await self.in_thread(lambda: self._create_now(session, instance, first, origin, by))

    async def open_journal(self, session: SessionId) -> FileJournal:
        return await self.in_thread(lambda: self._open_now(session))

    async def sessions(self) -> Sequence[SessionId]:
        await self.in_thread(self._refresh)
        return sorted(self._registry.state.sessions)

    async def current(self, session: SessionId) -> InstanceId | None:
        if os.getpid() != self._pid or self._closed or not self._registry.is_fresh():
            await self.in_thread(self._refresh)
        created = self._registry.state.sessions.get(session)
        return created.instance if created is not None else None

    async def heads(self, *, after: SessionId | None = None, limit: int | None = None) -> Sequence[tuple[SessionId, InstanceId, int]]:
        return await self.in_thread(lambda: self._heads_now(after, limit))

    async def unsettled(self) -> Sequence[SessionId]:
        return await self.in_thread(self._unsettled_now)

    async def seals(self) -> Mapping[SessionId, SessionSealed]:
        return await self.in_thread(self._seals_now)

    def index_keys(self) -> tuple[bytes, ...]:
        """
        What the rows of the home's caches are MACed with, the newest first: a process that stays follows a rotation by any other.

        Rows under an older one were ours and count for nothing any more. Without a key nobody believes any, ourselves included.
        """
        newest = self.generation()
        known = self._index_keys
        if known is None or known[0] != newest or newest not in self._keys:
            older = [self._keys[each] for each in range(newest - 1, 0, -1) if each in self._keys]
            made = tuple(subkey(key, "index", HOME_SESSION, HOME_INSTANCE) for key in (self._keys.get(newest), *older) if key is not None)
            known = self._index_keys = (newest, made if newest in self._keys else (secrets.token_bytes(KEY_BYTES), *made))
        return known[1]

    def memory_key(self, generation: int | None = None) -> tuple[int, bytes] | None:
        """What rows of the home's memory are MACed with: of that generation, or of the newest for writing. None: the key is not there."""
        if generation is None and self._trouble is not None:
            return None
        named = self.generation() if generation is None else generation
        try:
            return named, subkey(self._keys[named], "memory", HOME_SESSION, HOME_INSTANCE)
        except KeyError:
            return None

    async def home(self) -> FileJournal:
        if self._home_journal.is_in_doubt:
            await self.in_thread(self._home_handle)
        return FileJournal(self, self._home_lane, self._home_journal.fence.copy(), mark=self._home_mark, verified=self._home_journal.is_verified)

    async def delete(self, session: SessionId, *, by: str, at_seq: int | None = None) -> None:
        await self.in_thread(lambda: self._delete_now(session, by, at_seq))

    async def verify_session(self, session: SessionId) -> Verdict:
        """Walk every record, with the write lock held for the last segment. Changes nothing."""
        return await self.in_thread(lambda: self._verify_now(session))

    async def trouble_with(self, session: SessionId) -> str | None:
        """Why its files can't be used, in words, without reading what stands in them; None when they can. Changes nothing."""
        return await self.in_thread(lambda: self._trouble_with(session))

    def _trouble_with(self, session: SessionId) -> str | None:
        created = self._registry.state.sessions.get(session)
        if created is None:
            return None
        files = self._files(session, created.instance, self._parts(session), self._tables.cell(created.slot))
        try:
            with walk(self._home, *files.parts) as folder:
                numbers = files.numbers(folder)
                for number in numbers:
                    os.close(open_file(folder, files.name(number), os.O_RDONLY))
            return None if numbers and files.anchor.read_raw() else "its journal or its anchor is missing"
        except Refused as exc:
            return exc.message
        except OSError as exc:
            return f"{exc.strerror}: {exc.filename}"

    async def rotate_keys(self, *, by: str) -> int:
        """A new key generation, for every segment that is opened from now on."""
        return await self.in_thread(lambda: self._rotate_keys_now(by))

    async def backup(self, target: Path) -> tuple[SessionId, ...]:
        """Copy the home, as of now, to a folder that is not there yet; returns the sessions in it. Others go on writing meanwhile."""
        from holdfast.adapters.files.backup import copy_home

        manifest = await self.in_thread(lambda: copy_home(self, target, now_ms=self.now_ms()))
        return tuple(SessionId(each) for each in manifest.sessions)

    def copy_home_journal(self, copy: Callable[[], None]) -> list[SessionId]:
        """Copy it while nobody writes to it; returns the sessions that live in what was copied."""
        with self._home_journal.files.locked():
            copy()
            self._refresh()
            return sorted(self._registry.state.sessions)

    @contextlib.contextmanager
    def write_lock(self, session: SessionId) -> Iterator[None]:
        """Nobody appends to the session meanwhile."""
        created = self._registry.state.sessions.get(session)
        if created is None:
            raise Refused(f"there is no session {session}", code="unknown")
        with self._files(session, created.instance, self._parts(session), self._tables.cell(created.slot)).locked():
            yield

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._close_now)

    def _close_now(self) -> None:
        for claim in list(self.claims):
            claim.release_now()
        self._syncing.stop()
        self._committers.stop()
        self._threads.stop()
        for lane in [self._home_lane, *self._lanes.values()]:
            remove_folder(lane.files)
            lane.files.close()
        self._tables.close()
        os.close(self._home)

    # --- births, deaths, keys ----------------------------------------------------------------------------------------

    def _create_now(self, session: SessionId, instance: InstanceId, first: Sequence[Draft], origin: str, by: str) -> FileJournal:
        born: list[FileJournal] = []

        def decide(section: Section) -> Sequence[Draft]:
            self._registry.refresh()
            state = self._registry.state
            if session in state.sessions and origin not in {"unseal", "restore"}:
                raise Refused(f"{session} exists already", code="exists", hint="send to it, or choose another name")
            lives = state.lives_of(session)
            if instance in lives:
                raise Refused(f"instance {instance} of {session} exists already", code="exists", hint="mint a new instance id")
            parts = self._parts(session)
            birth.remove_leftovers(self._home, self.path, parts, lives)
            slot = state.slots_used
            files = self._files(session, instance, parts, self._tables.cell(slot))
            # A crash from here to the commit of the record below leaves leftovers, which the next birth removes.
            fence, first_mac = birth.bear(files, first, at=section.now, writer=self.writer)
            born.append(FileJournal(self, self._lane(session, instance, lambda: files), fence))
            return [_draft(SessionCreated(session=session, instance=instance, first_mac=first_mac, slot=slot, origin=origin, by=by))]

        with self._births:
            self._append_home(decide)
        self._registry.refresh()
        if (due := self._registry.snapshot_if_due()) is not None:
            self.keep_snapshot(self._home_journal.files, due)
        return born[0]

    def _open_now(self, session: SessionId) -> FileJournal:
        self._refresh()
        created = self._registry.state.sessions.get(session)
        if created is None:
            raise Refused(f"there is no session {session}", code="unknown", hint="`holdfast sessions list` shows them")
        parts = self._parts(session)
        lane = self._lane(session, created.instance, lambda: self._files(session, created.instance, parts, self._tables.cell(created.slot)))
        mark = self.seal_mark(session, created.instance)
        if mark is not None or not self._home_journal.is_verified:
            return FileJournal(self, lane, lane.files.fence(), mark=mark, verified=self._home_journal.is_verified)
        try:
            fence = open_at_head(lane.files, first_mac=created.first_mac, writer=self.writer, now=self.now_ms())
        except (Damaged, FileNotFoundError, KeyMissing) as exc:
            if isinstance(exc, KeyMissing) and self.is_lost(exc.generation):
                return FileJournal(self, lane, lane.files.fence(), verified=False)
            journal = FileJournal(self, lane, lane.files.fence())
            error = self._as_untrusted(journal, exc)
            self.seal(journal, error)
            journal.spend(error)
            return journal
        return FileJournal(self, lane, fence)

    def is_lost(self, generation: int) -> bool:
        """A key that the home's journal knows of and we lack. Any other key that a segment names was not named by us: that is damage."""
        return 1 <= generation <= self._registry.state.generation and generation not in self._keys

    def _heads_now(self, after: SessionId | None, limit: int | None) -> list[tuple[SessionId, InstanceId, int]]:
        self._refresh()
        living = self._registry.page(after, limit)
        seqs = self._tables.seqs(living, self._keys)
        return [(created.session, created.instance, seq) for created, seq in zip(living, seqs, strict=True)]

    def _seals_now(self) -> Mapping[SessionId, SessionSealed]:
        self._refresh()
        self.check_alive(self._home_journal)
        return dict(self._registry.state.sealed)

    def _unsettled_now(self) -> list[SessionId]:
        self._refresh()
        return [name for name, created in sorted(self._registry.state.sessions.items()) if self._goes_past_anchor(created)]

    def _goes_past_anchor(self, created: SessionCreated) -> bool:
        files = self._files(created.session, created.instance, self._parts(created.session), self._tables.cell(created.slot))
        with contextlib.suppress(OSError, KeyMissing):
            anchor = files.anchor.read(files.keys)
            return anchor is not None and files.stat_segment(anchor.segment).st_size > anchor.length
        return False

    def _as_untrusted(self, journal: FileJournal, exc: Damaged | FileNotFoundError | KeyMissing) -> Untrusted:
        match exc:
            case Damaged(damage=damage):
                pass
            case KeyMissing():
                damage = Damage("broken", f"a segment names a key that never was ({exc})", 0, 1, 0)
            case _:
                damage = Damage("cut_short", "its folder is missing", 0, 1, 0)
        return journal.untrusted(damage, while_open=False)

    def _delete_now(self, session: SessionId, by: str, at_seq: int | None) -> None:
        def decide(_: Section) -> Sequence[Draft]:
            self._registry.refresh()
            created = self._registry.state.sessions.get(session)
            if created is None:
                raise Refused(f"there is no session {session}", code="unknown", hint="`holdfast sessions list` shows them")
            if at_seq is not None:
                # Held to the end: whoever appends next finds a life that is over, and nothing that was acknowledged goes unseen.
                held.enter_context(self._held_at(created, at_seq))
            return [_draft(SessionDeleted(session=session, instance=created.instance, by=by))]

        with self._births, contextlib.ExitStack() as held:
            self._append_home(decide)
            # Deleted from here on; the bytes are leftovers that a crash leaves to the next birth of that name.
            self._registry.refresh()
            birth.remove_life(self._home, self.path, self._parts(session))

    @contextlib.contextmanager
    def _held_at(self, created: SessionCreated, seq: int) -> Iterator[None]:
        """The session's write lock, if that is its last record."""
        files = self._files(created.session, created.instance, self._parts(created.session), self._tables.cell(created.slot))
        with files.locked():
            anchor = files.anchor.read(files.keys)
            if anchor is None or anchor.seq != seq or files.stat_segment(anchor.segment).st_size != anchor.length:
                raise Busy(f"{created.session} was written to meanwhile", hint="look again")
            yield

    def _rotate_keys_now(self, by: str) -> int:
        made: list[int] = []

        def decide(_: Section) -> Sequence[Draft]:
            self._registry.refresh()
            generation = self._registry.state.generation + 1
            key = key_files.make_key(self._home, generation)
            self._keys[generation] = key
            made.append(generation)
            return [_draft(KeyRotated(generation=generation, key_id=key_id(key), by=by))]

        with self._births:
            self._append_home(decide)
        return made[0]

    def _append_home(self, decide: Callable[[Section], Sequence[Draft]]) -> Appended:
        journal = self._home_handle()
        return journal.append_now(decide, since=journal.head, check=Check.SHORT)

    def _home_handle(self) -> FileJournal:
        """A commit in doubt spends the home's handle like any other; a process that stays opens it anew, and so finds out what became of it."""
        with self._reopening:
            if self._home_journal.is_in_doubt:
                self._home_journal = FileJournal(self, self._home_lane, self._home_fence_anew())
            return self._home_journal

    def _home_fence_anew(self) -> Fence:
        try:
            return open_at_head(self._home_journal.files, first_mac=None, writer=self.writer, now=self.now_ms())
        except Damaged as exc:
            error = self._home_journal.untrusted(exc.damage, while_open=True)
            self._seal_home(error)
            raise error from None
        except OSError as exc:
            raise InDoubt(f"the home's journal can't be opened to see what became of the last commit ({exc})", hint="try again") from exc

    # --- what lanes and handles need ---------------------------------------------------------------------------------

    def check_alive(self, journal: FileJournal, *, at_once: bool = False) -> bool:
        if os.getpid() != self._pid:
            raise forked()
        if self._trouble is not None:
            raise key_files.no_key(self._trouble)
        if self._home_mark is not None:
            raise sealed_error(HOME_SESSION, self._home_mark)
        if journal.session == HOME_SESSION:
            return True
        if not self._registry.is_fresh():
            if at_once:
                return False
            self._refresh()
        state = self._registry.state
        living = state.sessions.get(journal.session)
        if living is None or living.instance != journal.instance:
            raise Refused(f"this life of {journal.session} is over: it was deleted, restored or unsealed", code="unknown", hint="open it again")
        if journal.session in state.sealed:
            mark = self.seal_mark(journal.session, journal.instance)
            if mark is not None:
                raise sealed_error(journal.session, mark)
        return True

    def seal_mark(self, session: SessionId, instance: InstanceId) -> SealMark | None:
        sealed = self._registry.state.sealed.get(session)
        if sealed is None or sealed.instance != instance:
            return None
        return SealMark(sealed.code, sealed.detail, sealed.at_seq)

    def seal(self, journal: FileJournal, error: Untrusted) -> None:
        """Durable when it returns; once is enough."""
        if journal.session == HOME_SESSION:
            return self._seal_home(error)
        if self.seal_mark(journal.session, journal.instance) is not None or self._trouble is not None:
            return None
        event = SessionSealed(
            session=journal.session,
            instance=journal.instance,
            code=error.code,
            detail=error.message,
            at_seq=error.at_seq,
            segment=error.segment,
            byte=error.byte,
        )
        self._append_home(lambda _: [_draft(event)])
        self._refresh()
        return None

    def translate_and_seal(self, journal: FileJournal, exc: BaseException) -> None:
        """Raise what a caller is told of damage; anything else is left to pass."""
        if isinstance(exc, Damaged):
            error = journal.untrusted(exc.damage, while_open=True)
            self.seal(journal, error)
            journal.spend(error)
            raise error from None

    def _refresh(self) -> None:
        if not self._home_journal.is_verified or self._home_mark is not None:
            return
        try:
            self._registry.refresh()
        except Damaged as exc:
            error = self._home_journal.untrusted(exc.damage, while_open=True)
            self._seal_home(error)
            raise error from None
        except KeyMissing:
            self._keys.update(key_files.load_keys(self._home).by_generation)
            self._registry.refresh()

    def generation(self) -> int:
        """The key generation of new segments."""
        generation = self._registry.state.generation
        if generation not in self._keys:
            self._keys.update(key_files.load_keys(self._home).by_generation)
        return generation

    def keep_snapshot(self, files: SessionFiles, snapshot: Snapshot) -> None:
        generation = self.generation()
        key = self._keys.get(generation)
        if key is not None:
            snapshots.keep(files, key, generation, snapshot)

    def read_snapshot(self, files: SessionFiles) -> Snapshot | None:
        return snapshots.read(files, self._keys)

    def _seal_home(self, error: Untrusted) -> None:
        """The home can't keep its own seal in a journal that is not believed: it has a file for it."""
        mark = SealMark(error.code, error.message, error.at_seq)
        self._home_mark = self._home_mark or mark
        with contextlib.suppress(OSError):
            birth.write_home_mark(self._home, msgspec.json.encode(self._home_mark))
        self._home_journal.spend(error)

    def _read_home_mark(self) -> SealMark | None:
        raw = birth.read_home_mark(self._home)
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw, type=SealMark)
        except msgspec.MsgspecError:
            return SealMark("broken", "the home is sealed; the mark itself can't be read")

    def _verify_now(self, session: SessionId) -> Verdict:
        with contextlib.suppress(Untrusted):
            self._refresh()
        created = self._registry.state.sessions.get(session)
        if not self._home_journal.is_verified and (created is not None or session == HOME_SESSION):
            return unreadable(session, self._trouble or "there is no key to verify it with")
        if session == HOME_SESSION:
            files = self._home_journal.files
            return verify_files(files, sealed=self._home_mark is not None, first_mac=None, is_lost=lambda _: True)
        if created is None:
            raise Refused(f"there is no session {session}", code="unknown", hint="`holdfast sessions list` shows them")
        files = self._files(session, created.instance, self._parts(session), self._tables.cell(created.slot))
        sealed = self.seal_mark(session, created.instance) is not None
        try:
            return verify_files(files, sealed=sealed, first_mac=created.first_mac, is_lost=self.is_lost)
        finally:
            files.close()

    # --- plumbing ----------------------------------------------------------------------------------------------------

    def _parts(self, session: SessionId) -> tuple[str, ...]:
        return (SESSIONS, *session.split("/"))

    def _files(self, session: SessionId, instance: InstanceId, parts: tuple[str, ...], cell: AnchorCell) -> SessionFiles:
        return SessionFiles(
            home=self._home,
            home_path=self.path,
            parts=parts,
            session=session,
            instance=instance,
            keys=Keyring(self._keys, session, instance),
            anchor=cell,
            reserve=self._reserve,
            generation=self.generation,
            segment_bytes=self._segment_bytes,
            lock_wait_seconds=self._lock_wait_seconds,
        )

    def _lane(self, session: SessionId, instance: InstanceId, files: Callable[[], SessionFiles]) -> Lane:
        """The one lane of this life in this store, as long as somebody uses it."""
        with self._guard:
            lane = self._lanes.get((session, instance))
            if lane is None:
                lane = self._lanes[session, instance] = Lane(files(), self)
            return lane

    def forget(self, journal: FileJournal) -> None:
        """A handle was closed. Its anchor is synced, so that a clean stop leaves nothing lagging."""
        remove_folder(journal.files)
        with contextlib.suppress(OSError):
            journal.files.anchor.sync()

    def run(self, work: Callable[[], None]) -> None:
        self._threads.run(work)

    def sync(self, commit: Syncable) -> None:
        self._syncing.put(commit)

    def run_quick(self, work: Callable[[], None]) -> None:
        self._committers.run(work)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Off the event loop; once begun it is awaited to its end, then cancellation goes on."""
        if os.getpid() != self._pid:
            raise forked()
        try:
            return await self._threads.call(work)
        except OSError as exc:
            raise disk_refused(str(self.path), exc) from exc

    async def wait_for(self, request: Request, lane: Lane) -> None:
        if os.getpid() != self._pid:
            raise forked()
        arrival = Arrival()
        request.wake = arrival.tell
        lane.append_soon(request)
        await arrival.wait()


async def _opened(path: Path, work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except PermissionError as exc:
        raise Unusable(f"{path} can't be used: {exc}", code="unsafe_path", hint="a home belongs to the user who runs Holdfast") from exc
    except OSError as exc:
        raise disk_refused(str(path), exc) from exc


def _draft(event: AnyHomeEvent) -> Draft:
    return Draft(*encode_home_event(event))
