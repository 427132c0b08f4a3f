"""
Followed sessions: one tail per session. The tail reads the journal; followers read the tail.

A tail keeps the last records and text pieces as outgoing bytes, bounded in number and size. A
follower keeps only its place. If it is too slow or has an old cursor, it reads records from the
journal until it has caught up, and a gap event reports the pieces that it missed. So a client that
never reads costs one place, and no follower misses or repeats a record. An idle session costs no
task and no open journal.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.frames import (
    Frame,
    frame_from_event,
    frame_from_piece,
    frame_from_record,
    reader_set_from_input,
)
from holdfast.gateway.streams.registry import LiveStream
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Record
from holdfast.limits import RECORD_PAGE_BYTES
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.service import Service
from holdfast.runtime.streams.feed import Delta, Gap, Heard

_KEPT_FRAMES = 512
_KEPT_BYTES = 4 * 1024 * 1024
_UNPLACED_MAX = 1024  # pieces of looks that failed: twice what a follower of the feed holds

ReaderSets = dict[str, tuple[str, str]]


class SessionStream(LiveStream):
    """One stream's place in a tail."""

    def __init__(self, tail: "SessionTail", bearer: Bearer, cursor: int) -> None:
        super().__init__(bearer)
        self.tail = tail
        # The last record sent. It moves only when the read bytes are handed over.
        self.cursor = cursor
        # Place in the tail's frames; None while reading from the journal.
        self._place: int | None = None
        self._missed_pieces = False

    @property
    def place(self) -> dict[str, int | str]:
        return {"seq": self.cursor}

    async def read(self) -> bytes:
        return b"".join([frame.data for frame in await self.next_frames()])

    @property
    def has_caught_up(self) -> bool:
        """Whether every frame that the tail has now was returned."""
        return self._place is not None and self._place >= self.tail.next_place

    async def next_frames(self) -> list[Frame]:
        """Return new frames for this follower, up to a page; empty if there are none."""
        self.wake.clear()
        tail = self.tail
        if self._place is not None and self._place < tail.first_place:
            self._place, self._missed_pieces = None, True
        if self._place is not None:
            return self._from_frames(self._place)
        if self.cursor < tail.kept_after:
            return await self._from_journal()
        self._place = tail.first_place if self._missed_pieces else tail.place_after(self.cursor)
        gap = (
            [frame_from_event("gap", {"session": tail.session, "lost": "pieces"})]
            if self._missed_pieces
            else []
        )
        self._missed_pieces = False
        return gap + self._from_frames(self._place)

    def _from_frames(self, place: int) -> list[Frame]:
        found: list[Frame] = []
        size = 0
        for frame in self.tail.frames_from(place):
            place += 1
            if frame.seq is not None:
                if frame.seq <= self.cursor:
                    continue
                self.cursor = frame.seq
            if self._may_see(frame):
                found.append(frame)
                size += len(frame.data)
            if size >= RECORD_PAGE_BYTES:
                break
        self._place = place
        if place < self.tail.next_place:
            self.wake.set()
        return found

    async def _from_journal(self) -> list[Frame]:
        frames = await self.tail.page_after(self.cursor)
        if frames:
            self.cursor = frames[-1].seq or self.cursor
        else:
            self.cursor = max(self.cursor, self.tail.kept_after)
        self.wake.set()
        return [frame for frame in frames if self._may_see(frame)]

    def _may_see(self, frame: Frame) -> bool:
        if self.bearer.reads_every_reader_set or frame.is_open:
            return True
        reader_set = (
            self.tail.reader_sets.get(frame.turn or "")
            if self.tail.reader_sets is not None
            else None
        )
        return reader_set is not None and self.bearer.reads(*reader_set)


class SessionTail:
    """One followed session. It exists while it has followers."""

    def __init__(self, session: SessionId, reading: asyncio.Semaphore, service: Service) -> None:
        self.session = session
        self._service = service
        self._reading = reading
        self.instance: InstanceId | None = None
        self.seq = 0
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self.first_place = 0
        # The frames hold every record after this one.
        self.kept_after = 0
        # By turn. Built when the first follower arrives that may not see everything.
        self.reader_sets: ReaderSets | None = None
        self.followers: set[SessionStream] = set()
        self.is_sealed = False
        # Taken from the feed, and not yet kept as frames. A look that fails leaves them here.
        self._unplaced: deque[Heard] = deque()
        self._moving = asyncio.Lock()

    @property
    def has_unplaced(self) -> bool:
        return bool(self._unplaced)

    @property
    def next_place(self) -> int:
        return self.first_place + len(self._frames)

    def frames_from(self, place: int) -> list[Frame]:
        return list(islice(self._frames, max(0, place - self.first_place), None))

    def place_after(self, cursor: int) -> int:
        """
        Return the place behind the record of the cursor. The pieces behind it come again: a reply
        that is being written is shown from its beginning, and each piece says where it belongs.
        """
        place = self.first_place
        for offset, frame in enumerate(self._frames):
            if frame.seq is not None and frame.seq <= cursor:
                place = self.first_place + offset + 1
        return place

    def keep(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._bytes += len(frame.data)
        if frame.seq is not None:
            self.seq = frame.seq
        while len(self._frames) > _KEPT_FRAMES or (
            self._bytes > _KEPT_BYTES and len(self._frames) > 1
        ):
            old = self._frames.popleft()
            self.first_place += 1
            self._bytes -= len(old.data)
            if old.seq is not None:
                self.kept_after = old.seq

    def tell_all(self) -> None:
        for follower in self.followers:
            follower.wake.set()

    def end_all(self, reason: str) -> None:
        for follower in list(self.followers):
            follower.end(reason)

    async def begin(self) -> None:
        """Read the session's position and its last records."""
        async with self._moving, self._reading, self._service.live.use(self.session) as ledger:
            if self.instance is not None:  # another follower was first
                return
            self.is_sealed = ledger.journal.sealed is not None
            if not self.is_sealed and not ledger.driving:
                await ledger.catch_up()
            recent = list(ledger.recent)
            self.kept_after = recent[0].seq - 1 if recent else ledger.state.seq
            self.seq = max(ledger.state.seq, self.kept_after)
            for record in recent:
                self.keep(frame_from_record(record))
            self.instance = ledger.instance

    def is_behind(self, instance: str | None, seq: int, *, is_sealed: bool) -> bool:
        """
        Return whether the tail lacks something: records, a seal, a new instance or a deletion.
        """
        return instance != self.instance or seq > self.seq or (is_sealed and not self.is_sealed)

    async def move(self, hear: Callable[[], Sequence[Heard]] = tuple) -> None:
        """
        Take in new records and pieces. `hear` takes the pieces before the records are read, so the
        record that ends a reply comes after its pieces. Each piece goes behind the record that was
        the last one when it was made, so a reply never comes before its beginning. If the records
        can't be read, the pieces wait for the next move.
        """
        async with self._moving, self._reading, self._service.live.use(self.session) as ledger:
            if (
                ledger.instance != self.instance
            ):  # the pieces belong to an instance that these followers may not be allowed to see
                self.end_all("new_instance")
                return
            self._unplaced.extend(hear())
            if len(self._unplaced) > _UNPLACED_MAX:
                self._unplaced = deque([Gap(self.session)])
            if ledger.journal.sealed is None and not ledger.driving:
                await ledger.catch_up()
            while records := await self._new_records(ledger):
                for record in records:
                    self._keep_pieces(before=record.seq)
                    self._keep_record(record)
            self._keep_pieces()
            if ledger.journal.sealed is not None and not self.is_sealed:
                self.is_sealed = True
                mark = ledger.journal.sealed
                self.keep(
                    frame_from_event(
                        "sealed", {"code": mark.code, "detail": mark.detail, "at_seq": mark.at_seq}
                    )
                )
        self.tell_all()

    async def _new_records(self, ledger: Ledger) -> Sequence[Record]:
        recent = list(ledger.recent)
        if self.seq >= ledger.state.seq or (recent and recent[0].seq <= self.seq + 1):
            return [record for record in recent if record.seq > self.seq]
        return await self._service.live.records_after(ledger, self.seq)

    def _keep_pieces(self, *, before: int | None = None) -> None:
        """Keep the pieces that were made before this record; without one, all of them."""
        pieces = self._unplaced
        while pieces and (before is None or _made_after(pieces[0]) < before):
            self.keep(frame_from_piece(pieces.popleft()))

    def _keep_record(self, record: Record) -> None:
        if self.reader_sets is not None and record.type == "input_accepted":
            turn, reader_set = reader_set_from_input(record.body)
            self.reader_sets[turn] = reader_set
        self.keep(frame_from_record(record))

    async def page_after(self, cursor: int) -> list[Frame]:
        """Read records from the journal, after the cursor and up to the tail's last one."""
        async with self._reading, self._service.live.use(self.session) as ledger:
            if ledger.instance != self.instance:
                self.end_all("new_instance")
                return []
            records = await self._service.live.records_after(ledger, cursor)
        return [frame_from_record(record) for record in records if record.seq <= self.seq]

    async def know_reader_sets(self) -> None:
        """
        Read once which audience and boundary each turn has, for followers that may not see
        everything.
        """
        if self.reader_sets is not None:
            return
        found: ReaderSets = {}

        def fold(record: Record) -> None:
            if record.type == "input_accepted":
                turn, reader_set = reader_set_from_input(record.body)
                found[turn] = reader_set

        async with self._moving, self._reading, self._service.live.use(self.session) as ledger:
            await ledger.journal.load(fold)
            self.reader_sets = found


def _made_after(piece: Heard) -> int:
    return piece.after if isinstance(piece, Delta) else 0
