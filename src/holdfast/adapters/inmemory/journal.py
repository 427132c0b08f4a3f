"""
A handle on one instance in memory, and the claim of its driver: the reference for the verbs of the
port.

An append lets the event loop run once before it commits: appends that were begun together are
committed together, as on a disk.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from blake3 import blake3

from holdfast.adapters.inmemory.commit import (
    Pending,
    commit_waiting,
    error_from_mark,
    instance_over,
    refuse_nesting,
    settled,
)
from holdfast.adapters.inmemory.disk import Crashed, StoredInstance
from holdfast.errors import BrokenChain, InDoubt, InvariantBroken, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Appended, Check, Decide, Head, Record, SealMark
from holdfast.secrecy import known

if TYPE_CHECKING:
    from holdfast.adapters.inmemory.store import InMemoryStore


class InMemoryClaim:
    """One process holds it until it releases it or dies."""

    def __init__(self, stored: StoredInstance, owner: "InMemoryStore", epoch: int) -> None:
        self._stored = stored
        self.owner = owner
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        return self._epoch

    async def release(self) -> None:
        with self._stored.lock:
            if self._stored.driver is self:
                self._stored.driver = None


class InMemoryJournal:
    """
    One handle. Its position moves over the records that it verified or wrote. After its first fatal
    error, every call raises that error.
    """

    def __init__(self, store: "InMemoryStore", stored: StoredInstance, head: Head) -> None:
        self._store = store
        self._stored = stored
        self._head = head
        # InDoubt or Untrusted; never cleared. Reopen to continue.
        self._spent: InDoubt | Untrusted | None = None
        self._closed = False

    @property
    def session(self) -> SessionId:
        return self._stored.session

    @property
    def instance(self) -> InstanceId:
        return self._stored.instance

    @property
    def head(self) -> Head:
        return self._head

    @property
    def sealed(self) -> SealMark | None:
        return self._stored.seal

    async def is_at_head(self) -> bool:
        self._check_usable()
        return (
            self._spent is None and self._stored.seal is None and self._stored.anchor == self._head
        )

    async def load(self, fold: Callable[[Record], None], *, after: int = 0) -> Head:
        self._check_usable()
        stored = self._stored
        with stored.lock:
            if stored.deleted:
                raise instance_over(stored)
            records, damage = settled(stored, upto=self._head.seq)
            if damage is not None and stored.followed:
                raise instance_over(stored)  # damage in an instance that has ended is not reported
            if damage is not None and stored.seal is None:
                self._store.seal(stored, damage)
                self._spent = damage
                raise damage
        head = stored.genesis
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
            with self._stored.lock:
                if pending in self._stored.waiting:
                    self._stored.waiting.remove(pending)
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
        if isinstance(self._spent, Untrusted) and self._stored.is_over:
            raise instance_over(self._stored)
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
        self._stored.waiting.append(pending)
        return pending

    def _commit(self, pending: Pending) -> Appended:
        with self._stored.lock:
            if pending.outcome is None:
                commit_waiting(self._store.disk, self._stored, seal=self._store.seal)
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
        driver = self._stored.driver
        return driver is not None and driver.owner is self._store and driver.epoch == epoch

    async def claim(self) -> InMemoryClaim | None:
        self._check_usable()
        stored = self._stored
        with stored.lock:
            if stored.is_over:
                raise instance_over(stored)
            if stored.seal is not None:
                raise error_from_mark(stored.seal)
            if stored.driver is not None:
                return None
            stored.epoch += 1
            stored.driver = InMemoryClaim(stored, self._store, stored.epoch)
            return stored.driver

    async def seal(self, mark: SealMark) -> None:
        # A closed handle may seal: a journal that could not be folded is closed before it is
        # sealed.
        self._store.check_alive()
        with self._stored.lock:
            if self._stored.is_over:
                raise instance_over(self._stored)
            if self._stored.seal is None:
                self._store.seal(self._stored, error_from_mark(mark))

    async def quarantine(self, kind: str, payload: bytes) -> str:
        self._check_usable()
        with self._stored.lock:
            self._stored.quarantine.append((kind, payload))
            return _place(self._stored, len(self._stored.quarantine) - 1)

    async def quarantined(self) -> Sequence[str]:
        self._check_usable()
        return list(self._kept_in_quarantine())

    def _kept_in_quarantine(self) -> dict[str, tuple[str, bytes]]:
        """Return the session's quarantine: of all kept instances, the oldest first."""
        instances = [
            stored
            for (name, _), stored in self._store.disk.instances.items()
            if name == self.session and not stored.deleted
        ]
        return {
            _place(stored, number): kept
            for stored in instances or [self._stored]
            for number, kept in enumerate(stored.quarantine)
        }

    async def read_quarantined(self, where: str) -> tuple[str, bytes]:
        self._check_usable()
        places = self._kept_in_quarantine()
        if where not in places:
            raise Refused(f"{self.session} has nothing in quarantine at {where}", code="unknown")
        return places[where]

    async def authentic_after(self, seq: int) -> Sequence[Record]:
        self._check_usable()
        return [record for record in self._stored.genuine() if record.seq > seq]

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self._stored.stored_lines():
            yield line

    async def keep_output(self, data: bytes) -> str:
        self._check_usable()
        data = known().hidden_bytes(data)
        digest = blake3(data).hexdigest()
        self._stored.outputs[digest] = data
        return digest

    async def output(self, digest: str) -> bytes:
        self._check_usable()
        data = self._stored.outputs.get(digest)
        if data is None:
            raise Refused(f"{self.session} has no output {digest}", code="unknown")
        if blake3(data).hexdigest() != digest:
            raise BrokenChain(f"output {digest} of {self.session} was changed")
        return data

    def where(self) -> Sequence[str]:
        return ()

    def store_name(self) -> str | None:
        return None

    async def sync_anchor(self) -> None:
        self._check_usable()

    async def close(self) -> None:
        self._closed = True
        with self._stored.lock:
            if self._stored.waiting:
                commit_waiting(self._store.disk, self._stored, seal=self._store.seal)

    def _check_usable(self) -> None:
        self._store.check_alive()
        if self._closed:
            raise InvariantBroken(f"the handle on {self.session} is closed")


def _place(stored: StoredInstance, number: int) -> str:
    kind = stored.quarantine[number][0]
    return f"memory:{stored.session}/{stored.instance}/quarantine/{number}-{kind}"
