"""
Create, open and delete instances of sessions in one process. Creations, deletions and new keys are
records of the home's journal.

An instance exists if and only if such a record names it. Its bytes come before the record of its
creation and go after the record of its deletion; a crash in between leaves leftovers. Locks are
taken in one order, the home's before a session's.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.adapters.files.commit.append_queue import AppendQueue
from holdfast.adapters.files.home.journal import HomeJournal, draft
from holdfast.adapters.files.home.keys import KnownKeys, make_next_key
from holdfast.adapters.files.home.layout import HomeFiles, session_parts
from holdfast.adapters.files.paths import SyncedFolders
from holdfast.adapters.files.session.catch_up import Damaged
from holdfast.adapters.files.session.create import (
    create_instance,
    remove_leftovers,
    remove_quarantine,
    remove_session,
)
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.adapters.files.session.reader import LastRecords, open_at_head
from holdfast.adapters.files.session.verification import verify_files
from holdfast.errors import Busy, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import KeyMissing, key_id
from holdfast.journal.record import Draft
from holdfast.journal.segment import parse_segment_name
from holdfast.journal.verify import Damage
from holdfast.ports.journal_store import Section
from holdfast.session.home.events import KeyRotated, SessionCreated, SessionDeleted

if TYPE_CHECKING:
    from holdfast.adapters.files.store import FileStore


class SessionDirectory:
    def __init__(
        self, store: "FileStore", files: HomeFiles, own: HomeJournal, keys: KnownKeys
    ) -> None:
        self._store, self._files, self._own, self._keys = store, files, own, keys
        # One creation or deletion at a time in this process: each must see the one before in the
        # registry.
        self._one_at_a_time = threading.Lock()
        self._queues: weakref.WeakValueDictionary[tuple[SessionId, InstanceId], AppendQueue] = (
            weakref.WeakValueDictionary()
        )
        self._guard = threading.Lock()
        self._folders = SyncedFolders()

    def create(
        self,
        session: SessionId,
        instance: InstanceId,
        first: Sequence[Draft],
        *,
        origin: str,
        by: str,
    ) -> FileJournal:
        made: list[FileJournal] = []
        registry = self._own.registry

        def decide(section: Section) -> Sequence[Draft]:
            registry.refresh()
            state = registry.state
            if session in state.sessions and origin not in {"unseal", "restore"}:
                raise Refused(
                    f"{session} exists already",
                    code="exists",
                    hint="send to it, or choose another name",
                )
            instances = state.instances_of(session)
            if instance in instances:
                raise Refused(
                    f"instance {instance} of {session} exists already",
                    code="exists",
                    hint="mint a new instance id",
                )
            remove_leftovers(self._files.home, self._files.path, session_parts(session), instances)
            slot = state.slots_used
            files = self._files.at(session, instance, slot)
            # A crash from here to the commit of the record below leaves leftovers, which the next
            # creation removes.
            created = create_instance(
                files, self._folders, first, at=section.now, writer=self._store.writer
            )
            queue = self._queue(session, instance, lambda: files)
            last = LastRecords(0, created.records) if created.records else None
            made.append(FileJournal(self._store, queue, created.fence, last=last))
            return [
                draft(
                    SessionCreated(
                        session=session,
                        instance=instance,
                        first_mac=created.first_mac,
                        slot=slot,
                        origin=origin,
                        by=by,
                    )
                )
            ]

        with self._one_at_a_time:
            self._own.append(decide)
        registry.refresh()
        if (due := registry.snapshot_if_due()) is not None:
            self._store.keep_snapshot(self._own.files, due)
        return made[0]

    def open(self, session: SessionId) -> FileJournal:
        own = self._own
        own.refresh()
        created = own.living(session)
        queue = self._queue(session, created.instance, lambda: self._files.of(created))
        mark = own.seal_mark(session, created.instance)
        if mark is not None or not own.is_verified:
            return FileJournal(
                self._store, queue, queue.files.fence(), mark=mark, verified=own.is_verified
            )
        kept = self._store.read_snapshot(queue.files)
        try:
            opened = open_at_head(
                queue.files,
                first_mac=created.first_mac,
                writer=self._store.writer,
                now=self._store.now_ms(),
                place=kept.place,
            )
        except (Damaged, FileNotFoundError, KeyMissing) as exc:
            if isinstance(exc, KeyMissing) and own.is_lost(exc.generation):
                return FileJournal(self._store, queue, queue.files.fence(), verified=False)
            journal = FileJournal(self._store, queue, queue.files.fence())
            journal.sealed_by(
                self._placed(queue.files, created, _damage_from_error(exc)), while_open=False
            )
            return journal
        snapshot = kept.snapshot
        if snapshot is not None and opened.place is not None:
            snapshot = snapshot._replace(is_past=opened.place.head == snapshot.head)
        return FileJournal(self._store, queue, opened.fence, last=opened.last, snapshot=snapshot)

    def _placed(self, files: SessionFiles, created: SessionCreated, damage: Damage) -> Damage:
        """
        Return the position where history stops being trustworthy, as `verify` finds it. Opening
        finds some damage, not always the first.
        """
        found = verify_files(
            files, sealed=False, first_mac=created.first_mac, is_lost=self._own.is_lost
        )
        if found.verdict not in ("broken", "cut_short"):
            return damage
        named = parse_segment_name(found.segment) if found.segment is not None else None
        number = named[1] if named is not None else damage.number
        return Damage(
            found.verdict, found.detail or damage.detail, found.at_seq or 0, number, found.byte or 0
        )

    def _queue(
        self, session: SessionId, instance: InstanceId, files: Callable[[], SessionFiles]
    ) -> AppendQueue:
        """
        Return the one append queue of this instance in this store. It exists while somebody uses
        it.
        """
        with self._guard:
            queue = self._queues.get((session, instance))
            if queue is None:
                queue = self._queues[session, instance] = AppendQueue(files(), self._store)
            return queue

    def queues(self) -> list[AppendQueue]:
        """Return all append queues in use, with the home's own."""
        return [self._own.queue, *self._queues.values()]

    def delete(self, session: SessionId, *, by: str, at_seq: int | None) -> None:
        def decide(_: Section) -> Sequence[Draft]:
            self._own.registry.refresh()
            if self._own.created(session) is None and self._finish_deletion(session):
                return []
            created = self._own.living(session)
            # Held to the end: the next append finds a deleted instance, and a running append is not
            # interrupted.
            held.enter_context(self._held(created, at_seq))
            return [draft(SessionDeleted(session=session, instance=created.instance, by=by))]

        with self._one_at_a_time, contextlib.ExitStack() as held:
            self._own.append(decide)
            # The session is deleted from here on. After a crash its bytes are leftovers, which the
            # next deletion or creation of that name removes.
            self._own.registry.refresh()
            remove_session(self._files.home, self._files.path, session_parts(session))
            remove_quarantine(self._files.home, self._files.path, session_parts(session))

    def _finish_deletion(self, session: SessionId) -> bool:
        """
        Remove the bytes of a session that has no living instance, with the home's write lock held.
        A crash between the record of a deletion and the removal leaves them. Returns whether there
        were any.
        """
        home, parts = self._files.home, session_parts(session)
        folder = remove_session(home, self._files.path, parts)
        return remove_quarantine(home, self._files.path, parts) or folder

    @contextlib.contextmanager
    def _held(self, created: SessionCreated, at_seq: int | None) -> Iterator[None]:
        """
        Hold the session's write lock, and check that `at_seq` is its last record. If the folder is
        gone, there is no lock to take.
        """
        files = self._files.of(created)
        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(files.locked())
            except Refused:
                if at_seq is not None:
                    raise
            if at_seq is not None:
                anchor = files.anchor.read(files.keys)
                if (
                    anchor is None
                    or anchor.seq != at_seq
                    or files.stat_segment(anchor.segment).st_size != anchor.length
                ):
                    raise Busy(f"{created.session} was written to meanwhile", hint="look again")
            yield

    def rotate_keys(self, *, by: str) -> int:
        made: list[int] = []

        def decide(_: Section) -> Sequence[Draft]:
            self._own.registry.refresh()
            generation = self._own.registry.state.generation + 1
            # A crash from here to the commit of the record below leaves a key that no record names.
            # The next rotation replaces it.
            key = make_next_key(self._files.home, generation)
            made.append(generation)
            return [draft(KeyRotated(generation=generation, key_id=key_id(key), by=by))]

        with self._one_at_a_time:
            self._own.append(decide)
        self._keys.reload()
        return made[0]


def _damage_from_error(exc: Damaged | FileNotFoundError | KeyMissing) -> Damage:
    match exc:
        case Damaged(damage=damage):
            return damage
        case KeyMissing():
            return Damage("broken", f"a segment names a key that never was ({exc})", 0, 1, 0)
        case _:
            return Damage("cut_short", "its folder is missing", 0, 1, 0)
