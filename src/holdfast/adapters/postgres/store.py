"""
A home in PostgreSQL and its sessions: the entry point of this store.

Appends, creations, ends and seals run in the lane (commit/lane.py). Reads run in a few threads,
each with a connection of its own. No statement runs on the event loop, and no cancellation reaches
one.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.files.derived_keys import DerivedKeys
from holdfast.adapters.files.home.keys import load_keys
from holdfast.adapters.files.home.layout import HOME_SESSION
from holdfast.adapters.files.session.locks import forked
from holdfast.adapters.postgres.commit.claims import (
    LEASE_SECONDS,
    Lease,
    LeasedClaim,
    claim_journal,
    machine,
)
from holdfast.adapters.postgres.commit.lane import Lane
from holdfast.adapters.postgres.commit.refusal import AHEAD_MS
from holdfast.adapters.postgres.gauges import gauges_of
from holdfast.adapters.postgres.home.anchored_slots import AnchoredSlots
from holdfast.adapters.postgres.home.commits import HomeCommits
from holdfast.adapters.postgres.home.heads import (
    REMEMBERED_SECONDS,
    heads_of,
    moved_heads,
    page_of_heads,
)
from holdfast.adapters.postgres.home.history import ComparedHistory, look_at_server
from holdfast.adapters.postgres.home.node_folder import (
    NodeAnchors,
    NodeKeys,
    open_node_folder,
)
from holdfast.adapters.postgres.home.node_start import begin, join
from holdfast.adapters.postgres.home.nodes import NodeFacts, Nodes, all_nodes
from holdfast.adapters.postgres.home.registry import PostgresRegistry, with_new_keys
from holdfast.adapters.postgres.notices import PostgresNotices
from holdfast.adapters.postgres.readers import Readers
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.adapters.postgres.session.head import head_row
from holdfast.adapters.postgres.session.journal import PostgresJournal, until_done
from holdfast.adapters.postgres.session.reader import load_for, open_session, verify_session
from holdfast.adapters.postgres.session.side_data import SideData
from holdfast.adapters.postgres.session.tail import (
    Tail,
    error_from_mark,
    is_head,
    mark_of,
    missing,
)
from holdfast.errors import Busy, HoldfastError, InvariantBroken, Untrusted
from holdfast.ids import InstanceId, JobId, SessionId
from holdfast.journal.record import Draft, Head, Record
from holdfast.journal.verify import Verdict
from holdfast.ports.clock import Clock
from holdfast.ports.jobs import JobKey
from holdfast.ports.journal_store import Heads, SealMark
from holdfast.secrecy import forget, learn
from holdfast.session.home.events import HomeState, NodeAccepted, SessionSealed

T = TypeVar("T")

_log = logging.getLogger("holdfast.postgres")


class PostgresStore:
    """See `holdfast.ports.journal_store.JournalStore`. Made by `open_home`."""

    def __init__(
        self,
        place: DatabaseAddress,
        path: Path,
        folder: int,
        clock: Clock,
        *,
        ahead_ms: int | None,
        lease_seconds: float,
    ) -> None:
        self.place, self.path, self.folder = place, path, folder
        self.now_ms = clock.now_ms
        self.ahead_ms, self.lease_seconds = ahead_ms, lease_seconds
        self._pid = os.getpid()
        self.writer = f"w{self._pid}-{secrets.token_hex(4)}"
        found = load_keys(folder)
        self.keys = NodeKeys(folder, found)
        self.resolved = 0  # how often an answer was lost and found out
        self._closed = False
        self.readers = Readers(self.connect)
        self.tails_guard = threading.Lock()
        self.tails: weakref.WeakValueDictionary[int, Tail] = weakref.WeakValueDictionary()
        self.held_claims: dict[tuple[int, int], LeasedClaim] = {}
        self.anchors = NodeAnchors(folder, AnchoredSlots(folder, self.keys))
        self.history = ComparedHistory()
        self.node = "00000000-0000-0000-0000-000000000000"
        self.nodes = Nodes()
        self.notices = PostgresNotices(self)
        self.home_mark: SealMark | None = None
        self.registry: PostgresRegistry
        self.has_memories = False  # whether anything was ever remembered, at the last look
        self.beside = SideData(place.schema, self.keys)
        self.lease = Lease(self)
        # While the server works for one lane, the other decides and frames.
        self.lanes = (Lane(self), Lane(self))
        self.lane_threads = frozenset(lane.thread_id for lane in self.lanes)
        self._joining = threading.Lock()
        self.commits = HomeCommits(self)
        self._derived = DerivedKeys(self.keys, self.generation)
        learn(self, self.key_bytes())

    @classmethod
    async def open_home(
        cls,
        place: DatabaseAddress,
        path: Path,
        *,
        clock: Clock | None = None,
        ahead_ms: int | None = AHEAD_MS,
        lease_seconds: float = LEASE_SECONDS,
        waits: bool = True,
    ) -> "PostgresStore":
        """
        Open the home in this schema. Raise Unusable or Busy with the next step. A person who is
        about to accept the loss of a node does not wait for the nodes.
        """

        def opened() -> PostgresStore:
            folder = open_node_folder(path)
            store = cls(
                place,
                path,
                folder,
                clock or SystemClock(),
                ahead_ms=ahead_ms,
                lease_seconds=lease_seconds,
            )
            try:
                store.lane.call(lambda wire: begin(store, wire, waits=waits)).result()
            except BaseException:
                store._close_now()
                raise
            return store

        return await asyncio.to_thread(opened)

    # --- The port

    async def create(
        self,
        session: SessionId,
        instance: InstanceId,
        first: Sequence[Draft],
        *,
        origin: str,
        by: str,
    ) -> PostgresJournal:
        tail = await self.in_lane(
            lambda _: self.commits.create(session, instance, first, origin=origin, by=by)
        )
        with self.tails_guard:
            self.tails[tail.journal] = tail
        return PostgresJournal(self, tail, tail.head)

    async def open(self, session: SessionId) -> PostgresJournal:
        return await self.in_thread(lambda wire: open_session(self, wire, session))

    async def home(self) -> PostgresJournal:
        await self.in_thread(self.refresh)
        tail = self.registry.tail
        return PostgresJournal(self, tail, tail.head, self.home_mark)

    async def sessions(self) -> Sequence[SessionId]:
        return sorted((await self.in_thread(self.refresh)).sessions)

    async def current(self, session: SessionId) -> InstanceId | None:
        created = (await self.in_thread(self.refresh)).sessions.get(session)
        return created.instance if created is not None else None

    async def instances(self, sessions: Collection[SessionId]) -> Mapping[SessionId, InstanceId]:
        if not sessions:
            return {}
        living = (await self.in_thread(self.refresh)).sessions
        return {name: living[name].instance for name in sessions if name in living}

    async def heads(self, *, after: SessionId | None = None, limit: int | None = None) -> Heads:
        return await self.in_thread(lambda wire: page_of_heads(self, wire, after, limit))

    async def heads_of(self, sessions: Collection[SessionId]) -> Heads:
        if not sessions:
            return ()
        return await self.in_thread(lambda wire: heads_of(self, wire, sessions))

    async def recent_heads(self, *, within_seconds: float) -> Heads | None:
        if within_seconds > REMEMBERED_SECONDS:
            return None
        return await self.in_thread(lambda wire: moved_heads(self, wire))

    async def unsettled(self) -> Sequence[SessionId]:
        """Nothing: a record is in the database together with the head that counts it."""
        return ()

    async def held_by(
        self,
        session: SessionId,  # noqa: ARG002  the port's
        *,
        wait_seconds: float | None = None,  # noqa: ARG002  the port's
    ) -> Busy | None:
        """None: no writer holds a row over anything but one statement."""
        return None

    def gauges(self) -> Mapping[str, tuple[str, float]]:
        return gauges_of(self)

    async def seals(self) -> Mapping[SessionId, SessionSealed]:
        return dict((await self.in_thread(self.refresh)).sealed)

    async def delete(self, session: SessionId, *, by: str, at_seq: int | None = None) -> None:
        await self.in_lane(lambda _: self.commits.delete(session, by=by, at_seq=at_seq))

    async def close(self) -> None:
        if self._closed:
            return
        await asyncio.to_thread(self._close_now)

    def _close_now(self) -> None:
        self._closed = True
        self.notices.stop()
        with contextlib.suppress(HoldfastError, Lost):
            if self.held_claims or self.lease.is_begun:
                self.lane.call(lambda _: self.lane.read(self._release_all)).result()
        for lane in self.lanes:
            lane.stop()
        self.readers.close()
        self.anchors.close()
        os.close(self.folder)
        forget(self)

    def _release_all(self, wire: Wire) -> None:
        for claim in list(self.held_claims.values()):
            claim.release_now(wire)
        self.held_claims.clear()
        self.lease.end(wire)
        look_at_server(self, wire)

    # --- Threads and connections

    def connect(self) -> Wire:
        return connect(self.place)

    def check_alive(self) -> None:
        if os.getpid() != self._pid:
            raise forked()
        if self._closed:
            raise InvariantBroken("the store is closed")

    async def in_thread(self, work: Callable[[Wire], T]) -> T:
        """Run statements off the event loop. They are awaited to their end."""
        self.check_alive()
        return await until_done(
            self.readers.submit(lambda wire: with_new_keys(self, wire, lambda: work(wire)))
        )

    def read_now(self, work: Callable[[Wire], T], seconds: float | None = None) -> T:
        """
        Like `in_thread`, for a thread of the caller, never for the event loop. Raise TimeoutError
        after so many seconds.
        """
        self.check_alive()
        return self.readers.submit(work).result(seconds)

    async def in_lane(self, work: Callable[[Wire], T]) -> T:
        self.check_alive()
        return await until_done(self.lane.call(work))

    @property
    def lane(self) -> Lane:
        """The lane of this thread; for other threads, the first one."""
        this = threading.get_ident()
        return next((lane for lane in self.lanes if lane.thread_id == this), self.lanes[0])

    def lane_of(self, tail: Tail) -> Lane:
        """The lane of a journal: always the same one, so its appends keep their order."""
        return self.lanes[0 if tail.slot < 0 else tail.journal % len(self.lanes)]

    # --- The home

    def refresh(self, wire: Wire) -> HomeState:
        if self.home_mark is not None:
            mark = self.home_mark
            raise error_from_mark(HOME_SESSION, mark.code, mark.detail, mark.at_seq)
        try:
            return self.registry.refresh(wire)
        except Untrusted as exc:
            self.home_mark = mark_of(exc)
            with contextlib.suppress(HoldfastError, Lost):
                wire.rows("select hf.seal_journal(%s)", (self.registry.tail.journal,))
            raise

    def seal_mark(self, session: SessionId, instance: InstanceId) -> SealMark | None:
        if session == HOME_SESSION:
            return self.home_mark
        sealed = self.registry.state.sealed.get(session)
        if sealed is None or sealed.instance != instance:
            return None
        return SealMark(sealed.code, sealed.detail, sealed.at_seq)

    # --- Services for handles and the lane

    def load_for(
        self, wire: Wire, handle: PostgresJournal, fold: Callable[[Record], None], *, after: int
    ) -> Head:
        return load_for(self, wire, handle, fold, after=after)

    def is_head(self, wire: Wire, handle: PostgresJournal) -> bool:
        return is_head(wire, handle.tail, handle.head)

    def journal_id(self, wire: Wire, session: SessionId, instance: InstanceId) -> int:
        row = head_row(wire, session, instance)
        if row is None:
            raise missing(session, 0, 1)
        return row.journal

    def anchor(self, tails: Sequence[Tail]) -> None:
        """Move the node's anchors, after records are durable and before they are acknowledged."""
        try:
            self.anchors.move(tails)
        except OSError as exc:
            # Every record is durable without it. The anchor may lag; it never leads.
            names = ", ".join(tail.session for tail in tails)
            _log.warning("%s: this node's anchors could not be moved: %s", names, exc)

    def drop(self, tail: Tail) -> None:
        """Forget what this process knows of a journal's end: it is in doubt."""
        with self.tails_guard:
            self.tails.pop(tail.journal, None)

    def look_for_memories(self, wire: Wire) -> None:
        if not self.has_memories:
            self.has_memories = wire.one("select 1 from hf.memory_size limit 1") is not None

    # --- Verification

    async def verify_session(
        self,
        session: SessionId,
        *,
        wait_seconds: float | None = None,  # noqa: ARG002  no lock
    ) -> Verdict:
        """Walk every record and change nothing."""
        return await self.in_thread(lambda wire: verify_session(self, wire, session))

    async def trouble_with(self, session: SessionId) -> str | None:
        """Return why the session's rows can't be used; None if they can."""
        created = self.registry.created(session)
        if created is None:
            return None
        row = await self.in_thread(lambda wire: head_row(wire, session, created.instance))
        return None if row is not None else "its head is missing in the database"

    # --- Claims

    async def claim(self, tail: Tail) -> LeasedClaim | None:
        return await self.in_thread(lambda wire: claim_journal(self, wire, tail))

    def token(self, journal: int, epoch: int) -> UUID | None:
        claim = self.held_claims.get((journal, epoch))
        return claim.token if claim is not None else None

    def forget_claim(self, claim: LeasedClaim) -> bool:
        return self.held_claims.pop((claim.journal, claim.epoch), None) is not None

    async def backup(self, target: Path) -> tuple[SessionId, ...]:
        """
        Copy the home as of now to a home of files that does not exist yet, and return the sessions
        in it. Other nodes may write meanwhile.
        """
        from holdfast.adapters.postgres.home.to_files import copy_to_files

        self.check_alive()
        return await asyncio.to_thread(copy_to_files, self, target)

    # --- Nodes

    def shares_machine(self, node: str) -> bool:
        return self.nodes.machine_of(node) == machine()

    def is_heard_of(self, node: str) -> bool:
        silent = self.nodes.silent_seconds(node)
        return silent is not None and silent <= self.lease_seconds

    def join_again(self, wire: Wire) -> None:
        """The database has another history. In a lane; the other one does not wait meanwhile."""
        if self._joining.acquire(blocking=False):
            try:
                join(self, wire)
            finally:
                self._joining.release()

    async def all_nodes(self) -> list[NodeFacts]:
        return await self.in_thread(all_nodes)

    async def accept_node(self, node: str, *, by: str, reason: str) -> None:
        """Go on without this node, for good. The home's journal names who decided it."""
        accepted = NodeAccepted(node=node, by=by, reason=reason)
        await self.in_lane(lambda _: self.commits.append(lambda _state: accepted))
        await self.in_lane(lambda wire: wire.rows("select hf.accept_node(%s)", (node,)))

    # --- Keys

    def generation(self) -> int:
        """The key generation of new segments."""
        return self.registry.state.generation

    async def rotate_keys(self, *, by: str) -> int:
        """Create a new key generation, for every segment that is opened from now on."""
        generation = await self.in_lane(lambda _: self.commits.rotate_keys(by=by))
        learn(self, self.key_bytes())
        return generation

    def key_bytes(self) -> tuple[bytes, ...]:
        return tuple(self.keys.values())

    def index_keys(self) -> tuple[bytes, ...]:
        return self._derived.of_index()

    def memory_key(self, generation: int | None = None) -> tuple[int, bytes] | None:
        return self._derived.of_memory(generation)

    def job_key(
        self, instance: InstanceId, job: JobId, generation: int | None = None
    ) -> JobKey | None:
        found = self._derived.of_job(instance, job, generation)
        return JobKey(*found) if found is not None else None
