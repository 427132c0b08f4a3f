"""
The reference `JournalStore`: the port's contract in its simplest form. One store is one process.

Everything runs on the caller's thread, and the lock is held only between two awaits, so a seeded
simulation runs the same every time.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.inmemory.commit import (
    Pending,
    commit_waiting,
    error_from_mark,
    mark_from_error,
    settled,
)
from holdfast.adapters.inmemory.disk import HOME, Crashed, InMemoryDisk, StoredInstance
from holdfast.adapters.inmemory.journal import InMemoryJournal
from holdfast.errors import Busy, HoldfastError, InvariantBroken, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor_cases import Slots
from holdfast.journal.record import check_draft, times_of_creation
from holdfast.journal.segment import REPAIRED
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import Check, Draft, Head, Heads, SealMark
from holdfast.session.home.events import (
    AnyHomeEvent,
    HomeCreated,
    HomeState,
    SessionCreated,
    SessionDeleted,
    SessionSealed,
    decode_home_event,
    encode_home_event,
)


class InMemoryStore:
    """
    One process on a home in memory; share the disk to have several.

    >>> disk = InMemoryDisk()
    >>> here, there = InMemoryStore(disk), InMemoryStore(disk)
    """

    _names = count(1)

    def __init__(
        self,
        disk: InMemoryDisk | None = None,
        *,
        clock: Clock | None = None,
        name: str | None = None,
    ) -> None:
        self.disk = InMemoryDisk() if disk is None else disk
        self.clock: Clock = SystemClock() if clock is None else clock
        self.name = name or f"memory-{next(self._names)}"
        self.is_alive = True
        self._closed = False

    def crash(self) -> "InMemoryStore":
        """
        Die as by kill -9: every handle is useless, every claim is free. Return a new process over
        the same bytes.
        """
        self.is_alive = False
        for stored in [self.disk.home, *self.disk.instances.values()]:
            if stored.driver is not None and stored.driver.owner is self:
                stored.driver = None
        return InMemoryStore(self.disk, clock=self.clock)

    def check_alive(self) -> None:
        if not self.is_alive:
            raise Crashed
        if self._closed:
            raise InvariantBroken("the store is closed")

    async def create(
        self,
        session: SessionId,
        instance: InstanceId,
        first: Sequence[Draft],
        *,
        origin: str,
        by: str,
    ) -> InMemoryJournal:
        self.check_alive()
        stored = self.disk.create(session, instance)
        before = stored.genesis
        # Not before the home's last record, whatever this process's clock says.
        times = times_of_creation(first, max(self.clock.now_ms(), self.disk.home.last_at))
        for left, draft, at in zip(range(1 - len(first), 1), first, times, strict=True):
            check_draft(draft)
            entry, record = stored.seal_entry(
                before, draft, at=at, epoch=0, writer=self.name, more=left < 0
            )
            stored.entries.append(entry)
            before = Head(record.seq, record.mac)
        stored.create_anchor(before)
        first_mac = stored.entries[0].mac if stored.entries else stored.genesis.mac

        def register(state: HomeState) -> AnyHomeEvent:
            if session in state.sessions and origin not in {"unseal", "restore"}:
                raise Refused(
                    f"{session} exists", code="exists", hint="open it, or choose another name"
                )
            # The instance's bytes come first, and the home's record makes them a session. A crash
            # in between leaves bytes that no record names.
            self.disk.instances[session, instance] = stored
            return SessionCreated(
                session=session,
                instance=instance,
                first_mac=first_mac.hex(),
                slot=state.slots_used,
                origin=origin,
                by=by,
            )

        self._record_in_home(register)
        for (name, _), other in self.disk.instances.items():
            if name == session and other is not stored:
                other.followed = True
        return InMemoryJournal(self, stored, before)

    async def open(self, session: SessionId) -> InMemoryJournal:
        self.check_alive()
        stored = self._current(session)
        with stored.lock:
            records, damage = settled(stored)
            if damage is not None and stored.seal is None:
                self.seal(stored, damage)
            elif stored.seal is not None:
                self._tell_home_of_seal(stored, stored.seal)
        head = Head(records[-1].seq, records[-1].mac) if records else stored.genesis
        return InMemoryJournal(self, stored, head)

    def _current(self, session: SessionId) -> StoredInstance:
        with self.disk.home.lock:
            created = self._home_state().sessions.get(session)
        if created is None:
            raise Refused(
                f"no session {session}",
                code="unknown",
                hint="`holdfast sessions list` names them",
            )
        return self.disk.instances[session, created.instance]

    async def sessions(self) -> Sequence[SessionId]:
        self.check_alive()
        with self.disk.home.lock:
            return sorted(self._home_state().sessions)

    async def current(self, session: SessionId) -> InstanceId | None:
        self.check_alive()
        created = self._home_state().sessions.get(session)
        return created.instance if created is not None else None

    async def instances(self, sessions: Collection[SessionId]) -> Mapping[SessionId, InstanceId]:
        self.check_alive()
        with self.disk.home.lock:
            living = self._home_state().sessions
        return {name: living[name].instance for name in sessions if name in living}

    async def heads_of(self, sessions: Collection[SessionId]) -> Heads:
        wanted = frozenset(sessions)
        return [head for head in await self.heads() if head[0] in wanted]

    async def recent_heads(
        self,
        *,
        within_seconds: float,  # noqa: ARG002  the port's
    ) -> Heads | None:
        return await self.heads()

    async def heads(self, *, after: SessionId | None = None, limit: int | None = None) -> Heads:
        self.check_alive()
        with self.disk.home.lock:
            living = self._home_state().sessions
        names = sorted(name for name in living if after is None or name > after)[:limit]
        instances = [self.disk.instances[name, living[name].instance] for name in names]
        return [(stored.session, stored.instance, stored.anchor.seq) for stored in instances]

    async def unsettled(self) -> Sequence[SessionId]:
        self.check_alive()
        with self.disk.home.lock:
            living = self._home_state().sessions
        instances = [self.disk.instances[name, living[name].instance] for name in sorted(living)]
        return [
            stored.session
            for stored in instances
            if len(stored.entries) > stored.anchor.seq
            or stored.read_slots() in {Slots.ONE, Slots.APART}
        ]

    async def held_by(
        self,
        session: SessionId,  # noqa: ARG002
        *,
        wait_seconds: float | None = None,  # noqa: ARG002
    ) -> Busy | None:
        """
        Return None: all processes of this home are this one, and none can be stopped while it holds
        the lock.
        """
        self.check_alive()
        return None

    def gauges(self) -> Mapping[str, tuple[str, float]]:
        return {}

    async def seals(self) -> Mapping[SessionId, SessionSealed]:
        self.check_alive()
        with self.disk.home.lock:
            return self._home_state().sealed

    async def home(self) -> InMemoryJournal:
        self.check_alive()
        home = self.disk.home
        with home.lock:
            self._create_home()
            records, damage = settled(home)
            if damage is not None and home.seal is None:
                home.seal = mark_from_error(damage)
        return InMemoryJournal(
            self, home, Head(records[-1].seq, records[-1].mac) if records else home.genesis
        )

    async def delete(self, session: SessionId, *, by: str, at_seq: int | None = None) -> None:
        self.check_alive()
        stored = self._current(session)
        with stored.lock:
            if at_seq is not None and stored.anchor.seq != at_seq:
                raise Busy(f"{session} was written to meanwhile", hint="look again")
            self._record_in_home(
                lambda _: SessionDeleted(session=session, instance=stored.instance, by=by)
            )
            for (name, _), each in self.disk.instances.items():
                if name == session:
                    each.deleted = True
                    each.quarantine.clear()

    async def close(self) -> None:
        """Close the store and release its claims."""
        for stored in [self.disk.home, *self.disk.instances.values()]:
            if stored.driver is not None and stored.driver.owner is self:
                await stored.driver.release()
        self._closed = True

    def seal(self, stored: StoredInstance, exc: Untrusted) -> None:
        """Seal the instance, with its lock held: it refuses all writes until a person decides."""
        # Commit point: this mark alone seals. If it can't be recorded in the home now, the next
        # open does that.
        stored.seal = mark_from_error(exc)
        if stored.session != HOME:
            with contextlib.suppress(HoldfastError):
                self._tell_home_of_seal(stored, stored.seal)

    def _tell_home_of_seal(self, stored: StoredInstance, mark: SealMark) -> None:
        sealed = SessionSealed(
            session=stored.session,
            instance=stored.instance,
            code=mark.code,
            detail=mark.detail,
            at_seq=mark.at_seq,
        )
        self._record_in_home(lambda state: None if stored.session in state.sealed else sealed)

    def _record_in_home(self, event: Callable[[HomeState], AnyHomeEvent | None]) -> None:
        """
        Append to the home's journal. Session locks are taken before the home's, never after it.
        """
        home = self.disk.home
        with home.lock:
            self._create_home()
            wanted = event(self._home_state())
            if wanted is not None:
                self._append_to_home(wanted, Head(len(home.entries), home.entries[-1].mac))

    def _create_home(self) -> None:
        """Create the home's first record. The home's lock is held."""
        home = self.disk.home
        if home.anchor.seq == 0 and not home.entries:
            self._append_to_home(HomeCreated(home=home.instance), home.genesis)

    def _append_to_home(self, event: AnyHomeEvent, since: Head) -> None:
        """Append one event. The home's lock is held."""
        pending = Pending(
            decide=lambda _: [Draft(*encode_home_event(event))],
            since=since,
            known=since,
            epoch=None,
            check=Check.SHORT,
            drives=lambda _: False,
            writer=self.name,
            now_ms=self.clock.now_ms,
            is_alive=lambda: True,
        )
        self.disk.home.waiting.append(pending)
        commit_waiting(self.disk, self.disk.home, seal=self.seal)
        if isinstance(pending.outcome, Crashed):
            self.crash()  # this process wrote it
        if isinstance(pending.outcome, BaseException):
            raise pending.outcome

    def _home_state(self) -> HomeState:
        """Fold the home's journal. The home's lock is held."""
        home = self.disk.home
        if home.seal is not None:
            raise error_from_mark(home.seal)
        records, damage = settled(home)
        if damage is not None:
            self.seal(home, damage)
            raise damage
        state = HomeState()
        for record in records:
            if record.type != REPAIRED:
                state.evolve(
                    decode_home_event(record.type, record.version, record.body), at=record.at
                )
        return state
