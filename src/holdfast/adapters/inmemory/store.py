"""
The reference `JournalStore`: what the port's contract means, with nothing in the way. One store is one process.

Everything runs on the caller's thread and the lock is held only between two awaits, so a simulation that is seeded runs the same every time.
An append lets the event loop turn once before it commits: appends that were begun together are kept together, as on a disk.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

from blake3 import blake3

from holdfast.adapters.inmemory.commit import (
    Pending,
    commit_waiting,
    error_from_mark,
    mark_from_error,
    refuse_nesting,
    verified,
)
from holdfast.adapters.inmemory.disk import HOME, Crashed, InMemoryDisk, Life
from holdfast.errors import BrokenChain, Busy, HoldfastError, InDoubt, InvariantBroken, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import check_draft, times_of_birth
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import Appended, Check, Decide, Draft, Head, Record, SealMark
from holdfast.session.home_events import (
    AnyHomeEvent,
    HomeCreated,
    HomeState,
    SessionCreated,
    SessionDeleted,
    SessionSealed,
    decode_home_event,
    encode_home_event,
)


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class InMemoryClaim:
    """Held by one process until it releases it or dies."""

    def __init__(self, life: Life, owner: "InMemoryStore", epoch: int) -> None:
        self._life = life
        self.owner = owner
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        return self._epoch

    async def release(self) -> None:
        with self._life.lock:
            if self._life.driver is self:
                self._life.driver = None


class InMemoryJournal:
    """One handle. Its position moves with what it verified or wrote; its first fatal error is the answer to everything after it."""

    def __init__(self, store: "InMemoryStore", life: Life, head: Head) -> None:
        self._store = store
        self._life = life
        self._head = head
        # InDoubt or Untrusted; never cleared: reopen to go on.
        self._spent: InDoubt | Untrusted | None = None
        self._closed = False

    @property
    def session(self) -> SessionId:
        return self._life.session

    @property
    def instance(self) -> InstanceId:
        return self._life.instance

    @property
    def head(self) -> Head:
        return self._head

    @property
    def sealed(self) -> SealMark | None:
        return self._life.seal

    def is_at_head(self) -> bool:
        self._check_usable()
        return self._spent is None and self._life.seal is None and self._life.anchor == self._head

    async def load(self, fold: Callable[[Record], None], *, after: int = 0) -> Head:
        self._check_usable()
        life = self._life
        with life.lock:
            records, damage = verified(life, life.genesis, upto=max(life.anchor.seq, self._head.seq))
            if damage is not None and life.seal is None:
                self._store.seal(life, damage)
                self._spent = damage
                raise damage
            if damage is None and len(records) > life.anchor.seq:
                life.anchor = Head(records[-1].seq, records[-1].mac)
        head = life.genesis
        for record in records:
            if record.seq > after:
                fold(record)
            head = Head(record.seq, record.mac)
        self._head = max(self._head, head, key=lambda each: each.seq)
        return head

    async def append(self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT) -> Appended:
        pending = self._queue(decide, since=since, epoch=epoch, check=check)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            # Not begun: nothing was decided. If a peer has committed it meanwhile, it is whole, and in the journal.
            with self._life.lock:
                if pending in self._life.waiting:
                    self._life.waiting.remove(pending)
            raise
        return self._commit(pending)

    def append_now(self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT) -> Appended:
        refuse_nesting()
        return self._commit(self._queue(decide, since=since, epoch=epoch, check=check))

    def _queue(self, decide: Decide, *, since: Head, epoch: int | None, check: Check) -> Pending:
        refuse_nesting()
        self._check_usable()
        if self._spent is not None:
            raise self._spent
        pending = Pending(
            decide=decide,
            since=since,
            known=self._head,
            epoch=epoch,
            check=check,
            drives=self._drives,
            writer=self._store.name,
            now_ms=self._store.clock.now_ms,
            is_alive=lambda: self._store.is_alive,
        )
        self._life.waiting.append(pending)
        return pending

    def _commit(self, pending: Pending) -> Appended:
        with self._life.lock:
            if pending.outcome is None:
                commit_waiting(self._store.disk, self._life, seal=self._store.seal)
        match pending.outcome:
            case Appended(head=head):
                self._head = max(self._head, head, key=lambda each: each.seq)
                return pending.outcome
            case InDoubt() | Untrusted() as exc:
                self._spent = exc
                raise exc
            case Crashed() as exc:
                self._store.crash()
                raise exc
            case BaseException() as exc:
                raise exc
            case None:
                raise InvariantBroken("a commit left an append without an outcome")

    def _drives(self, epoch: int) -> bool:
        driver = self._life.driver
        return driver is not None and driver.owner is self._store and driver.epoch == epoch

    async def claim(self) -> InMemoryClaim | None:
        self._check_usable()
        life = self._life
        with life.lock:
            if life.seal is not None:
                raise error_from_mark(life.seal)
            if life.driver is not None:
                return None
            life.epoch += 1
            life.driver = InMemoryClaim(life, self._store, life.epoch)
            return life.driver

    async def seal(self, mark: SealMark) -> None:
        self._store.check_alive()  # a closed handle will do: what could not even be folded is closed before it is sealed
        with self._life.lock:
            if self._life.seal is None:
                self._store.seal(self._life, error_from_mark(mark))

    async def quarantine(self, kind: str, payload: bytes) -> str:
        self._check_usable()
        with self._life.lock:
            self._life.quarantine.append((kind, payload))
            return self._place(len(self._life.quarantine) - 1)

    async def quarantined(self) -> Sequence[str]:
        self._check_usable()
        return [self._place(number) for number in range(len(self._life.quarantine))]

    def _place(self, number: int) -> str:
        life = self._life
        return f"memory:{life.session}/{life.instance}/quarantine/{number}-{life.quarantine[number][0]}"

    async def read_quarantined(self, where: str) -> tuple[str, bytes]:
        self._check_usable()
        places = {self._place(number): kept for number, kept in enumerate(self._life.quarantine)}
        if where not in places:
            raise Refused(f"{self.session} has nothing in quarantine at {where}", code="unknown")
        return places[where]

    async def beyond(self, seq: int) -> Sequence[Record]:
        self._check_usable()
        return [record for record in self._life.genuine() if record.seq > seq]

    def lines(self) -> Iterator[bytes]:
        yield from self._life.stored_lines()

    async def keep_output(self, data: bytes) -> str:
        self._check_usable()
        digest = blake3(data).hexdigest()
        self._life.outputs[digest] = data
        return digest

    async def output(self, digest: str) -> bytes:
        self._check_usable()
        data = self._life.outputs.get(digest)
        if data is None:
            raise Refused(f"{self.session} has no output {digest}", code="unknown")
        if blake3(data).hexdigest() != digest:
            raise BrokenChain(f"output {digest} of {self.session} was changed")
        return data

    def where(self) -> Sequence[Path]:
        return ()

    async def sync_anchor(self) -> None:
        self._check_usable()

    async def close(self) -> None:
        self._closed = True
        with self._life.lock:
            if self._life.waiting:
                commit_waiting(self._store.disk, self._life, seal=self._store.seal)

    def _check_usable(self) -> None:
        self._store.check_alive()
        if self._closed:
            raise InvariantBroken(f"the handle on {self.session} is closed")


class InMemoryStore:
    """
    One process on a home in memory; share the disk to have several.

    >>> disk = InMemoryDisk()
    >>> here, there = InMemoryStore(disk), InMemoryStore(disk)
    """

    _names = count(1)

    def __init__(self, disk: InMemoryDisk | None = None, *, clock: Clock | None = None, name: str | None = None) -> None:
        self.disk = InMemoryDisk() if disk is None else disk
        self.clock: Clock = SystemClock() if clock is None else clock
        self.name = name or f"memory-{next(self._names)}"
        self.is_alive = True
        self._closed = False

    def crash(self) -> "InMemoryStore":
        """Die as by kill -9: every handle is useless, every claim is free. Returns a new process over the same bytes."""
        self.is_alive = False
        for life in [self.disk.home, *self.disk.lives.values()]:
            if life.driver is not None and life.driver.owner is self:
                life.driver = None
        return InMemoryStore(self.disk, clock=self.clock)

    def check_alive(self) -> None:
        if not self.is_alive:
            raise Crashed
        if self._closed:
            raise InvariantBroken("the store is closed")

    async def create(self, session: SessionId, instance: InstanceId, first: Sequence[Draft], *, origin: str, by: str) -> InMemoryJournal:
        self.check_alive()
        life = self.disk.bear(session, instance)
        before = life.genesis
        for draft, at in zip(first, times_of_birth(first, self.clock.now_ms()), strict=True):
            check_draft(draft)
            entry, record = life.seal_entry(before, draft, at=at, epoch=0, writer=self.name)
            life.entries.append(entry)
            before = Head(record.seq, record.mac)
        life.anchor = before
        first_mac = life.entries[0].mac if life.entries else life.genesis.mac

        def register(state: HomeState) -> AnyHomeEvent:
            if session in state.sessions and origin not in {"unseal", "restore"}:
                raise Refused(f"{session} exists", code="exists", hint="open it, or choose another name")
            # The life's bytes come first, the home's record makes them a session: a crash between leaves bytes nobody knows of.
            self.disk.lives[session, instance] = life
            return SessionCreated(
                session=session,
                instance=instance,
                first_mac=first_mac.hex(),
                slot=state.slots_used,
                origin=origin,
                by=by,
            )

        self._record_in_home(register)
        return InMemoryJournal(self, life, before)

    async def open(self, session: SessionId) -> InMemoryJournal:
        self.check_alive()
        life = self._life(session)
        with life.lock:
            records, damage = verified(life, life.genesis, upto=life.anchor.seq)
            if damage is not None and life.seal is None:
                self.seal(life, damage)
            elif life.seal is not None:
                self._tell_home_of_seal(life, life.seal)
            elif records:
                life.anchor = Head(records[-1].seq, records[-1].mac)
        head = Head(records[-1].seq, records[-1].mac) if records else life.genesis
        return InMemoryJournal(self, life, head)

    def _life(self, session: SessionId) -> Life:
        with self.disk.home.lock:
            created = self._home_state().sessions.get(session)
        if created is None:
            raise Refused(f"there is no session {session}", code="unknown", hint="`holdfast sessions list` names them")
        return self.disk.lives[session, created.instance]

    async def sessions(self) -> Sequence[SessionId]:
        self.check_alive()
        with self.disk.home.lock:
            return sorted(self._home_state().sessions)

    async def current(self, session: SessionId) -> InstanceId | None:
        self.check_alive()
        created = self._home_state().sessions.get(session)
        return created.instance if created is not None else None

    async def heads(self, *, after: SessionId | None = None, limit: int | None = None) -> Sequence[tuple[SessionId, InstanceId, int]]:
        self.check_alive()
        with self.disk.home.lock:
            living = self._home_state().sessions
        names = sorted(name for name in living if after is None or name > after)[:limit]
        lives = [self.disk.lives[name, living[name].instance] for name in names]
        return [(life.session, life.instance, life.anchor.seq) for life in lives]

    async def unsettled(self) -> Sequence[SessionId]:
        self.check_alive()
        with self.disk.home.lock:
            living = self._home_state().sessions
        lives = [self.disk.lives[name, living[name].instance] for name in sorted(living)]
        return [life.session for life in lives if len(life.entries) > life.anchor.seq]

    async def seals(self) -> Mapping[SessionId, SessionSealed]:
        self.check_alive()
        with self.disk.home.lock:
            return self._home_state().sealed

    async def home(self) -> InMemoryJournal:
        self.check_alive()
        home = self.disk.home
        with home.lock:
            self._bear_home()
            records, damage = verified(home, home.genesis, upto=home.anchor.seq)
            if damage is not None and home.seal is None:
                home.seal = mark_from_error(damage)
        return InMemoryJournal(self, home, Head(records[-1].seq, records[-1].mac) if records else home.genesis)

    async def delete(self, session: SessionId, *, by: str, at_seq: int | None = None) -> None:
        self.check_alive()
        life = self._life(session)
        with life.lock:
            if at_seq is not None and life.anchor.seq != at_seq:
                raise Busy(f"{session} was written to meanwhile", hint="look again")
            self._record_in_home(lambda _: SessionDeleted(session=session, instance=life.instance, by=by))
            life.deleted = True

    async def close(self) -> None:
        """Claims of this process are given up with it."""
        for life in [self.disk.home, *self.disk.lives.values()]:
            if life.driver is not None and life.driver.owner is self:
                await life.driver.release()
        self._closed = True

    def seal(self, life: Life, exc: Untrusted) -> None:
        """With the life's lock held: make it refuse writes, whoever asks, until a person decides."""
        # Commit point: this mark alone seals. If the home can't be told now, the next open tells it.
        life.seal = mark_from_error(exc)
        if life.session != HOME:
            with contextlib.suppress(HoldfastError):
                self._tell_home_of_seal(life, life.seal)

    def _tell_home_of_seal(self, life: Life, mark: SealMark) -> None:
        sealed = SessionSealed(
            session=life.session,
            instance=life.instance,
            code=mark.code,
            detail=mark.detail,
            at_seq=mark.at_seq,
        )
        self._record_in_home(lambda state: None if life.session in state.sealed else sealed)

    def _record_in_home(self, event: Callable[[HomeState], AnyHomeEvent | None]) -> None:
        """Session locks are taken before the home's, never after it."""
        home = self.disk.home
        with home.lock:
            self._bear_home()
            wanted = event(self._home_state())
            if wanted is not None:
                self._append_to_home(wanted, Head(len(home.entries), home.entries[-1].mac))

    def _bear_home(self) -> None:
        """With the home's lock held."""
        home = self.disk.home
        if home.anchor.seq == 0 and not home.entries:
            self._append_to_home(HomeCreated(home=home.instance), home.genesis)

    def _append_to_home(self, event: AnyHomeEvent, since: Head) -> None:
        """With the home's lock held."""
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
        if isinstance(pending.outcome, BaseException):
            raise pending.outcome

    def _home_state(self) -> HomeState:
        """With the home's lock held."""
        home = self.disk.home
        if home.seal is not None:
            raise error_from_mark(home.seal)
        records, damage = verified(home, home.genesis, upto=home.anchor.seq)
        if damage is not None:
            self.seal(home, damage)
            raise damage
        state = HomeState()
        for record in records:
            state.evolve(decode_home_event(record.type, record.version, record.body), at=record.at)
        return state


__all__ = ["InMemoryClaim", "InMemoryJournal", "InMemoryStore", "SystemClock"]
