"""
One handle on one session's files: its fence, its memory of the last records, and the verbs of the
port.

A takeover or an append in doubt spends the handle; it then raises the same error every time. All
blocking work runs in the store's threads.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.adapters.files.commit.append_queue import AppendQueue
from holdfast.adapters.files.commit.queued_append import QueuedAppend
from holdfast.adapters.files.home.seal import KINDS, sealed_error, way_on
from holdfast.adapters.files.paths import walk
from holdfast.adapters.files.session import outputs
from holdfast.adapters.files.session.catch_up import Damaged
from holdfast.adapters.files.session.claim import DriverClaim, WouldWait, try_claim
from holdfast.adapters.files.session.reader import (
    LastRecords,
    advance,
    lines_of,
    stream,
    stream_unverified,
    stream_what_verifies,
)
from holdfast.adapters.recent_records import RecentRecords
from holdfast.errors import (
    HoldfastError,
    InDoubt,
    InvariantBroken,
    NotSaved,
    Refused,
    Untrusted,
)
from holdfast.journal.chain import KeyMissing
from holdfast.journal.fence import Fence
from holdfast.journal.record import ZERO_MAC, Head, Record
from holdfast.journal.salvage import authentic_records_after
from holdfast.journal.segment import is_own
from holdfast.journal.verify import Damage
from holdfast.limits import KIB
from holdfast.ports.journal_store import Appended, Check, Decide, SealMark
from holdfast.ports.snapshots import Snapshot
from holdfast.threads import Completion

if TYPE_CHECKING:
    from holdfast.adapters.files.store import FileStore

T = TypeVar("T")

_log = logging.getLogger("holdfast.files")
_RECENT_MAX = 64  # records that one handle remembers
_RECENT_BYTES_MAX = 128 * KIB
# Records that the event loop's own thread folds after an opening: a fraction of a millisecond.
_FOLDED_AT_ONCE_MAX = 64


class FileJournal:
    """See `holdfast.ports.journal_store.Journal`."""

    def __init__(
        self,
        store: "FileStore",
        queue: AppendQueue,
        fence: Fence,
        *,
        mark: SealMark | None = None,
        verified: bool = True,
        last: LastRecords | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._store, self.queue, self.files = store, queue, queue.files
        self.session, self.instance = queue.files.session, queue.files.instance
        # Moved by the leader of the append queue; only forward, only over verified bytes.
        self.fence = fence
        self._mark = mark
        self.is_verified = verified
        self._spent: HoldfastError | None = None
        # The last records and the snapshot that opening has read, for the load that follows it.
        self._of_opening = last
        self._snapshot_of_opening = snapshot
        # Readers without the write lock add to these too, and other handles read them.
        self.recent = RecentRecords(records_max=_RECENT_MAX, bytes_max=_RECENT_BYTES_MAX)
        self._closed = False

    @property
    def head(self) -> Head:
        return self.fence.head

    @property
    def sealed(self) -> SealMark | None:
        return self._mark or self._store.seal_mark(self.session, self.instance)

    @property
    def is_in_doubt(self) -> bool:
        """
        True if a commit through this handle is undecided. The handle is then spent: open another
        one to find out.
        """
        return isinstance(self._spent, InDoubt)

    async def is_at_head(self) -> bool:
        if (
            self._closed
            or self._spent is not None
            or not self.is_verified
            or self.sealed is not None
        ):
            return False
        fence = self.fence
        # The anchor moves before anything is acknowledged. A slot that is being written does not
        # verify, and the older slot is not our head.
        return self._anchor_is_at(fence.head)

    def _anchor_is_at(self, head: Head) -> bool:
        anchor = self.files.anchor.read(self.files.keys)
        return anchor is not None and (anchor.seq, anchor.mac) == head

    # --- Reading

    async def load(self, fold: Callable[[Record], None], *, after: int = 0) -> Head:
        opened = self._of_opening
        if (
            opened is not None
            and self.sealed is None
            and opened.after + len(opened.records) - after <= _FOLDED_AT_ONCE_MAX
        ):
            head = self._fold_opened(fold, after)
            if head is not None:
                return head
        return await self._store.in_thread(lambda: self.load_now(fold, after=after))

    def load_now(self, fold: Callable[[Record], None], *, after: int = 0) -> Head:
        """Like `load`, for synchronous callers; blocks the thread."""
        if not self.is_verified:
            return Head(stream_unverified(self.files, fold, after=after), ZERO_MAC)
        if self.sealed is not None:
            return Head(stream_what_verifies(self.files, fold, after=after), self.fence.mac)
        head = self._fold_opened(fold, after)
        if head is not None:
            return head
        fence = self.fence.copy()
        try:
            with walk(self.files.home, *self.files.parts) as folder:
                newer = advance(
                    self.files, folder, fence, writer=self._store.writer, now=self._store.now_ms()
                )
            stream(self.files, fence, fold, after=after)
        except Damaged as exc:
            raise self.sealed_by(exc.damage, while_open=False) from None
        except FileNotFoundError:
            raise self.sealed_by(
                Damage("cut_short", "its folder is missing", 0, 1, 0), while_open=False
            ) from None
        if fence.seq > self.fence.seq:
            self.remember(newer)
            self.fence = fence.copy()
        return fence.head

    def _fold_opened(self, fold: Callable[[Record], None], after: int) -> Head | None:
        """Pass on, once, the records that opening verified. None if they are not enough."""
        opened, self._of_opening = self._of_opening, None
        head = self.fence.head
        is_known = opened is not None and opened.after <= after and self._anchor_is_at(head)
        if opened is None or not is_known or not self._store.is_living(self):
            return None
        try:
            for record in opened.records:
                if record.seq > after and not is_own(record):
                    fold(record)
        except BaseException:
            self._of_opening = opened  # the caller looked for one record only
            raise
        return head

    def has_at_hand(self, since: Head) -> bool:
        """Return True if `records_after` would not read the disk."""
        return since.seq >= self.fence.seq or self.recent.reach_back_to(since.seq + 1)

    def records_after(self, since: Head) -> list[Record]:
        """Return the callers' records after `since`, up to the fence. The caller holds the lock."""
        if since.seq > self.fence.seq:
            raise Refused(
                f"{self.session}: record {since.seq} is not there yet (the head is "
                f"{self.fence.seq})",
                code="unknown_head",
            )
        if since.seq == self.fence.seq:
            if since.mac != self.fence.mac:
                raise self._not_ours(since)
            return []
        records = self.recent.since(since.seq)
        if records and records[0].seq <= since.seq + 1 and records[-1].seq >= self.fence.seq:
            if records[0].seq == since.seq and records[0].mac != since.mac:
                raise self._not_ours(since)
            return [record for record in records if record.seq > since.seq and not is_own(record)]
        found: list[Record] = []
        stream(self.files, self.fence, found.append, after=since.seq)
        return found

    def move_up_to(self, newer: "FileJournal | None") -> None:
        """
        Take over the position of another handle of this process, if our own head is among the last
        records that it has verified or written. Otherwise stay: the records between are then read.
        The caller holds the lock, and checks the file against the new position.
        """
        if newer is None or newer.fence.seq <= self.fence.seq:
            return
        own = self.fence.head
        # A reader may move the other one on: first its position, then the records up to there.
        fence = newer.fence.copy()
        records = newer.recent.since(own.seq)
        if records and (records[0].seq, records[0].mac) == own and records[-1].seq >= fence.seq:
            self.remember(records[1:])
            self.fence = fence

    def _not_ours(self, since: Head) -> Refused:
        return Refused(
            f"{self.session}: the given record {since.seq} is not this journal's",
            code="unknown_head",
            hint="reopen it",
        )

    def remember(self, records: Sequence[Record]) -> None:
        """Remember records that were verified or written here."""
        self._of_opening = None
        self.recent.add(records)

    # --- Writing

    async def append(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        if self._closed:
            raise self._was_closed()
        self.check_usable()
        self._store.check_threads()
        request = QueuedAppend(self, decide, since=since, epoch=epoch, check=check)
        completion = Completion()
        request.wake = completion.report
        self.queue.append_soon(request)
        await completion
        return request.outcome()

    def append_now(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        if self._closed:
            raise self._was_closed()
        self.check_usable()
        return self.queue.append_now(
            QueuedAppend(self, decide, since=since, epoch=epoch, check=check)
        )

    def _was_closed(self) -> InvariantBroken:
        return InvariantBroken(f"{self.session}: the handle was closed")

    def check_usable(self) -> None:
        """
        Raise if the handle is spent or sealed. An append that was begun before the handle was
        closed still ends.
        """
        if self._mark is not None:
            self.check_not_over()  # a deleted instance is unknown, whether or not it was sealed
        if self._spent is not None:
            raise self._spent
        if self._mark is not None:
            raise sealed_error(self.session, self._mark)

    def check_not_over(self) -> None:
        """
        Raise if the session was deleted. A reader without the lock calls this when bytes are
        missing and before it reports damage: a session may be deleted between any two steps.
        """
        try:
            self._store.check_alive(self)
        except Refused as exc:
            if exc.code == "unknown":
                raise
        except Untrusted:
            pass  # the session or the home is sealed already

    def spend(self, error: HoldfastError) -> None:
        self._spent = self._spent or error
        if isinstance(error, Untrusted):
            self._mark = self._mark or SealMark(error.code, error.message, error.at_seq)

    def untrusted(self, damage: Damage, *, while_open: bool) -> Untrusted:
        """
        Return the error for this damage. A change found while a handle was open is a takeover.
        """
        code = "takeover" if while_open and damage.verdict == "broken" else damage.verdict
        segment = self.files.name(damage.number)
        return KINDS[code](
            f"{self.session}: {damage.detail} ({segment}, byte {damage.byte})",
            at_seq=damage.at_seq,
            segment=segment,
            byte=damage.byte,
            hint=f"nothing was written; {way_on(self.session)}",
        )

    def sealed_by(self, damage: Damage, *, while_open: bool) -> Untrusted:
        """
        Seal the session durably, spend the handle, and return the error for the caller. Raise
        Refused if this instance was deleted: missing bytes are then not damage.
        """
        self.check_not_over()
        error = self.untrusted(damage, while_open=while_open)
        self._store.seal(self, error)
        self.spend(error)
        return error

    async def seal(self, mark: SealMark) -> None:
        await self._store.in_thread(lambda: self._seal_now(mark))

    def _seal_now(self, mark: SealMark) -> None:
        if self._mark is not None:
            return
        try:
            self._store.check_alive(self)
        except Untrusted:
            if self.sealed is None:  # the home itself is sealed, and can record nothing
                raise
        else:
            self._store.seal(
                self,
                KINDS.get(mark.code, Untrusted)(mark.detail, at_seq=mark.at_seq, code=mark.code),
            )
        # A peer may have been faster: the first mark in the home's journal counts.
        self._mark = self.sealed or mark

    # --- Driving

    async def claim(self) -> DriverClaim | None:
        try:
            return try_claim(self, self._store, at_once=True)
        except (WouldWait, OSError, KeyMissing):
            return await self._store.in_thread(lambda: try_claim(self, self._store))

    async def keep_snapshot(self, snapshot: Snapshot) -> None:
        if self.is_verified and self.sealed is None:
            place = self.fence.place()
            await self._store.in_thread(
                lambda: self._store.keep_snapshot(self.files, snapshot, place)
            )

    async def read_snapshot(self) -> Snapshot | None:
        if not self.is_verified or self.sealed is not None:
            return None
        kept, self._snapshot_of_opening = self._snapshot_of_opening, None
        return kept or await self._store.in_thread(
            lambda: self._store.read_snapshot(self.files).snapshot
        )

    # --- Beside the journal

    async def quarantine(self, kind: str, payload: bytes) -> str:
        return await self._store.in_thread(
            lambda: self._store.keep_signed(self.files, kind, payload)
        )

    async def quarantined(self) -> Sequence[str]:
        places = await self._store.in_thread(self.files.quarantine.places)
        return [str(self.files.home_path / place) for place in places]

    async def read_quarantined(self, where: str) -> tuple[str, bytes]:
        return await self._store.in_thread(lambda: self._store.read_signed(self.files, where))

    async def authentic_after(self, seq: int) -> Sequence[Record]:
        keys = [each.record for each in self.files.keys.all()]
        return await self._store.in_thread(
            lambda: list(authentic_records_after(keys, self.lines_now(), after=seq))
        )

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self.lines_now():
            yield line

    def lines_now(self) -> Iterator[bytes]:
        """
        Yield lines as far as genuine segments reach. Files that are not plain are refused here too.
        A file longer than any genuine segment is read only up to that length.
        """
        with (
            contextlib.suppress(FileNotFoundError),
            walk(self.files.home, *self.files.parts) as folder,
        ):
            for number in self.files.numbers(folder):
                yield from lines_of(self.files.read_segment(folder, number))

    async def keep_output(self, data: bytes) -> str:
        return await self._store.in_thread(lambda: outputs.keep(self.files, data))

    async def output(self, digest: str) -> bytes:
        return await self._store.in_thread(lambda: outputs.find(self.files, digest))

    def where(self) -> Sequence[str]:
        return [str(path) for path in self.files.paths()]

    def store_name(self) -> str | None:
        return None

    def sync_anchor(self) -> Coroutine[Any, Any, None]:
        """Start the sync now; the caller may await it later and do other work meanwhile."""
        return self._synced(self._store.in_thread(self.files.anchor.sync))

    async def _synced(self, anchor: Coroutine[Any, Any, None]) -> None:
        try:
            await anchor
        except NotSaved as exc:
            # Every record is durable without it, and finished work must not be reported as failed.
            # The anchor may lag, as it may between any two syncs.
            _log.warning(
                "%s: its anchor could not be synced (%s); after a power cut it may lag behind the "
                "journal",
                self.files.session,
                exc.message,
            )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._store.is_closed:  # a closed store has closed it already
            await self._store.in_thread(self._close_now)

    def _close_now(self) -> None:
        self.queue.wait_until_idle()
        self._store.forget(self)
