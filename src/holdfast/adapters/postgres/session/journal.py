"""One handle on one journal in the database. See `holdfast.ports.journal_store.Journal`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from holdfast.adapters.postgres.commit.append import AppendRequest, AwaitedAppend, BlockingAppend
from holdfast.adapters.postgres.commit.claims import LeasedClaim
from holdfast.adapters.postgres.home.seals import check_not_over, seal_genuine
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.session.tail import Tail, error_from_mark, lines_from
from holdfast.errors import HoldfastError, InvariantBroken, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Head, Record
from holdfast.journal.salvage import authentic_records_after
from holdfast.ports.journal_store import Appended, Check, Decide, SealMark
from holdfast.ports.snapshots import Snapshot

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

T = TypeVar("T")
_PAGE_LINES = 64


class PostgresJournal:
    def __init__(
        self, store: "PostgresStore", tail: Tail, head: Head, mark: SealMark | None = None
    ) -> None:
        self._store, self.tail = store, tail
        self._head = head
        self._mark = mark
        # Set by the first append that is in doubt or found damage; never cleared.
        self._spent: HoldfastError | None = None
        self._running: set[AppendRequest] = set()  # the lane removes them
        self._closed = False

    @property
    def session(self) -> SessionId:
        return self.tail.session

    @property
    def instance(self) -> InstanceId:
        return self.tail.instance

    @property
    def head(self) -> Head:
        return self._head

    @property
    def sealed(self) -> SealMark | None:
        return self._mark or self._store.seal_mark(self.session, self.instance)

    def move(self, head: Head) -> None:
        """Called by the lane, for this handle's own appends."""
        if head.seq > self._head.seq:
            self._head = head

    def spend(self, error: HoldfastError) -> None:
        self._spent = self._spent or error
        if isinstance(error, Untrusted):
            self._mark = self._mark or SealMark(error.code, error.message, error.at_seq)

    def check_usable(self) -> None:
        """Raise if the handle is spent or sealed. An append that was begun still ends."""
        if self._spent is not None or self._mark is not None:
            check_not_over(self._store, self.tail)
        if self._spent is not None:
            raise self._spent
        if self._mark is not None:
            mark = self._mark
            raise error_from_mark(self.session, mark.code, mark.detail, mark.at_seq)

    def _check_open(self) -> None:
        if self._closed:
            raise InvariantBroken(f"{self.session}: the handle was closed")

    # --- Reading

    async def is_at_head(self) -> bool:
        if self._closed or self._spent is not None or self.sealed is not None:
            return False
        return await self._store.in_thread(lambda wire: self._store.is_head(wire, self))

    async def load(self, fold: Callable[[Record], None], *, after: int = 0) -> Head:
        self._check_open()
        last = after

        def fold_once(record: Record) -> None:
            """A read that is lost in the middle begins anew."""
            nonlocal last
            if record.seq > last:
                last = record.seq
                fold(record)

        head = await self._store.in_thread(
            lambda wire: self._store.load_for(wire, self, fold_once, after=after)
        )
        self.move(head)
        return head

    async def lines(self) -> AsyncIterator[bytes]:
        first = 1
        while page := await self._store.in_thread(self._page(first)):
            for line in page:
                yield line
            first += _PAGE_LINES

    def _page(self, first: int) -> Callable[[Wire], list[bytes]]:
        last = first + _PAGE_LINES - 1
        return lambda wire: list(lines_from(wire, self.tail.journal, first, last))

    async def authentic_after(self, seq: int) -> Sequence[Record]:
        keys = [each.record for each in self.tail.keys.all()]
        return await self._store.in_thread(
            lambda wire: list(
                authentic_records_after(keys, lines_from(wire, self.tail.journal, 1), after=seq)
            )
        )

    def where(self) -> Sequence[str]:
        return ()

    def store_name(self) -> str | None:
        return self._store.place.name

    # --- Writing

    async def append(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        request = AwaitedAppend(self, decide, since=since, epoch=epoch, check=check)
        self._begin(request)
        return await request.result()

    def append_now(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        request = BlockingAppend(self, decide, since=since, epoch=epoch, check=check)
        self._begin(request)
        return request.result()

    def _begin(self, request: AppendRequest) -> None:
        self._check_open()
        self._store.check_alive()
        self._running.add(request)
        self._store.lane_of(self.tail).append(request)

    def forget(self, request: AppendRequest) -> None:
        """Called by the lane: the append has its outcome, or was taken back."""
        self._running.discard(request)

    async def claim(self) -> LeasedClaim | None:
        self._check_open()
        await self._store.in_lane(lambda _: self.check_usable())
        return await self._store.claim(self.tail)

    async def seal(self, mark: SealMark) -> None:
        if self._mark is not None:
            return
        error = error_from_mark(self.session, mark.code, mark.detail, mark.at_seq)
        error.message = mark.detail
        await self._store.in_lane(lambda _: seal_genuine(self._store, self.tail, error))
        self._mark = self.sealed or mark

    # --- SideData the journal

    async def quarantine(self, kind: str, payload: bytes) -> str:
        return await self._store.in_thread(
            lambda wire: self._store.beside.quarantine(wire, self.tail, kind, payload)
        )

    async def quarantined(self) -> Sequence[str]:
        return await self._store.in_thread(
            lambda wire: self._store.beside.quarantined(wire, self.session)
        )

    async def read_quarantined(self, where: str) -> tuple[str, bytes]:
        return await self._store.in_thread(
            lambda wire: self._store.beside.read_quarantined(wire, self.session, where)
        )

    async def keep_output(self, data: bytes) -> str:
        return await self._store.in_thread(
            lambda wire: self._store.beside.keep_output(wire, self.tail, data)
        )

    async def output(self, digest: str) -> bytes:
        return await self._store.in_thread(
            lambda wire: self._store.beside.output(wire, self.tail, digest)
        )

    async def keep_snapshot(self, snapshot: Snapshot) -> None:
        if self.sealed is None:
            await self._store.in_thread(
                lambda wire: self._store.beside.keep_snapshot(wire, self.tail, snapshot)
            )

    async def read_snapshot(self) -> Snapshot | None:
        if self.sealed is not None:
            return None
        return await self._store.in_thread(
            lambda wire: self._store.beside.read_snapshot(wire, self.tail)
        )

    async def sync_anchor(self) -> None:
        self._store.check_alive()
        await asyncio.to_thread(self._store.anchors.sync, self.tail)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._running:  # they stand in the lane before this
            await until_done(self._store.lane_of(self.tail).passed())


async def until_done(outcome: "Future[T]") -> T:
    """
    Wait for the outcome. A cancelled caller takes back what has not begun; otherwise its
    cancellation continues once the outcome is known.
    """
    waiting = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not outcome.cancel():
            while not waiting.done():
                try:
                    await asyncio.wait({waiting})
                except asyncio.CancelledError:
                    continue
            waiting.exception()  # seen: the caller gets its cancellation
        raise
