"""
A handle on one instance in memory, and the claim of its driver: the reference for the verbs of the
port.

An append lets the event loop run once before it commits: appends that were begun together are
committed together, as on a disk.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from holdfast.adapters.inmemory.commit import (
    Pending,
    commit_waiting,
    error_from_mark,
    life_over,
    refuse_nesting,
    settled,
)
from holdfast.adapters.inmemory.disk import Crashed, Life
from holdfast.errors import BrokenChain, InDoubt, InvariantBroken, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Appended, Check, Decide, Head, Record, SealMark
from holdfast.secrecy import known

if TYPE_CHECKING:
    from holdfast.adapters.inmemory.store import InMemoryStore


class InMemoryClaim:
    """One process holds it until it releases it or dies."""

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
    """
    One handle. Its position moves over the records that it verified or wrote. After its first fatal
    error, every call raises that error.
    """

    def __init__(self, store: "InMemoryStore", life: Life, head: Head) -> None:
        self._store = store
        self._life = life
        self._head = head
        # InDoubt or Untrusted; never cleared. Reopen to continue.
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
            if life.deleted:
                raise life_over(life)
            records, damage = settled(life, upto=self._head.seq)
            if damage is not None and life.followed:
                raise life_over(life)  # damage in an instance that has ended is not reported
            if damage is not None and life.seal is None:
                self._store.seal(life, damage)
                self._spent = damage
                raise damage
        head = life.genesis
        for record in records:
            if record.seq > after:
                fold(record)
            head = Head(record.seq, record.mac)
        self._head = max(self._head, head, key=lambda each: each.seq)
        return head

    async def append(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        pending = self._queue(decide, since=since, epoch=epoch, check=check)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            # The append has not begun: nothing was decided. If a peer has committed it meanwhile,
            # it is whole and in the journal.
            with self._life.lock:
                if pending in self._life.waiting:
                    self._life.waiting.remove(pending)
            raise
        return self._commit(pending)

    def append_now(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        refuse_nesting()
        return self._commit(self._queue(decide, since=since, epoch=epoch, check=check))

    def _queue(self, decide: Decide, *, since: Head, epoch: int | None, check: Check) -> Pending:
        refuse_nesting()
        self._check_usable()
        if isinstance(self._spent, Untrusted) and self._life.is_over:
            raise life_over(self._life)
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
            if life.is_over:
                raise life_over(life)
            if life.seal is not None:
                raise error_from_mark(life.seal)
            if life.driver is not None:
                return None
            life.epoch += 1
            life.driver = InMemoryClaim(life, self._store, life.epoch)
            return life.driver

    async def seal(self, mark: SealMark) -> None:
        # A closed handle may seal: a journal that could not be folded is closed before it is
        # sealed.
        self._store.check_alive()
        with self._life.lock:
            if self._life.is_over:
                raise life_over(self._life)
            if self._life.seal is None:
                self._store.seal(self._life, error_from_mark(mark))

    async def quarantine(self, kind: str, payload: bytes) -> str:
        self._check_usable()
        with self._life.lock:
            self._life.quarantine.append((kind, payload))
            return _place(self._life, len(self._life.quarantine) - 1)

    async def quarantined(self) -> Sequence[str]:
        self._check_usable()
        return list(self._kept_aside())

    def _kept_aside(self) -> dict[str, tuple[str, bytes]]:
        """Return the session's quarantine: of all kept instances, the oldest first."""
        lives = [
            life
            for (name, _), life in self._store.disk.lives.items()
            if name == self.session and not life.deleted
        ]
        return {
            _place(life, number): kept
            for life in lives or [self._life]
            for number, kept in enumerate(life.quarantine)
        }

    async def read_quarantined(self, where: str) -> tuple[str, bytes]:
        self._check_usable()
        places = self._kept_aside()
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
        data = known().hidden_bytes(data)
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


def _place(life: Life, number: int) -> str:
    return f"memory:{life.session}/{life.instance}/quarantine/{number}-{life.quarantine[number][0]}"
