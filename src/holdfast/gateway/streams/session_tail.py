"""
Followed sessions: one tail per session. The tail reads the journal; followers read the tail.

A tail keeps the last records and text pieces as outgoing bytes, bounded in number and size. A
follower keeps only its place. If it is too slow or has an old cursor, it reads records from the
journal until it has caught up, and a gap event reports the pieces that it missed. So a client that
never reads costs one place, and no follower misses or repeats a record. An idle session costs no
task and no open journal.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from itertools import islice

from holdfast.errors import Busy, HoldfastError, Refused, Untrusted
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.frames import (
    Frame,
    circle_from_input,
    frame_from_event,
    frame_from_piece,
    frame_from_record,
)
from holdfast.gateway.streams.registry import Heads, Listener, Streams
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Record
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.service import Service
from holdfast.runtime.streams.feed import Gap

# Pieces of text are collected for this long. A thousand followers are then woken a few times per
# sentence, not for each token.
PIECES_SECONDS = 0.03
_KEPT_FRAMES = 512
_KEPT_BYTES = 4 * 1024 * 1024
_PAGE_BYTES = (
    64 * 1024
)  # bytes given to one follower at once, which is also the most that a stalled one holds
_READING_AT_ONCE = 8
_CROWD = 100
_SECONDS_EACH = 0.000_02

Circles = dict[str, tuple[str, str]]
_log = logging.getLogger("holdfast.gateway.streams.session_tail")


class Follower(Listener):
    """One stream's place in a tail."""

    def __init__(self, tail: "SharedTail", bearer: Bearer, cursor: int) -> None:
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
        """Return new frames for this follower, up to a page, or empty bytes."""
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
            frame_from_event("gap", {"session": tail.session, "lost": "pieces"}).data
            if self._missed_pieces
            else b""
        )
        self._missed_pieces = False
        return gap + self._from_frames(self._place)

    def _from_frames(self, place: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for frame in self.tail.frames_from(place):
            place += 1
            if frame.seq is not None:
                if frame.seq <= self.cursor:
                    continue
                self.cursor = frame.seq
            if self._may_see(frame):
                found.append(frame.data)
                size += len(frame.data)
            if size >= _PAGE_BYTES:
                break
        self._place = place
        if place < self.tail.next_place:
            self.wake.set()
        return b"".join(found)

    async def _from_journal(self) -> bytes:
        frames = await self.tail.page_after(self.cursor)
        if frames:
            self.cursor = frames[-1].seq or self.cursor
        else:
            self.cursor = max(self.cursor, self.tail.kept_after)
        self.wake.set()
        return b"".join(frame.data for frame in frames if self._may_see(frame))

    def _may_see(self, frame: Frame) -> bool:
        if self.bearer.reads_every_circle or frame.is_open:
            return True
        circle = self.tail.circles.get(frame.turn or "") if self.tail.circles is not None else None
        return circle is not None and self.bearer.reads(*circle)


class SharedTail:
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
        self.circles: Circles | None = None
        self.followers: set[Follower] = set()
        self.is_sealed = False
        self._moving = asyncio.Lock()

    @property
    def next_place(self) -> int:
        return self.first_place + len(self._frames)

    def frames_from(self, place: int) -> list[Frame]:
        return list(islice(self._frames, max(0, place - self.first_place), None))

    def place_after(self, cursor: int) -> int:
        """Return the place of the first record after the cursor. Pieces before it are skipped."""
        for offset, frame in enumerate(self._frames):
            if frame.seq is not None and frame.seq > cursor:
                return self.first_place + offset
        return self.next_place

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
        async with self._moving, self._reading, self._service.shelf.use(self.session) as ledger:
            if self.instance is not None:  # another follower was first
                return
            self.is_sealed = ledger.journal.sealed is not None
            if not self.is_sealed and not ledger.driving:
                await ledger.refresh()
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

    async def move(self, hear: Callable[[], None] = lambda: None) -> None:
        """
        Take in new records. `hear` takes the pieces first, because they came before the record that
        ends them.
        """
        async with self._moving, self._reading, self._service.shelf.use(self.session) as ledger:
            if (
                ledger.instance != self.instance
            ):  # the pieces belong to an instance that these followers may not be allowed to see
                self.end_all("new_life")
                return
            hear()
            if ledger.journal.sealed is None and not ledger.driving:
                await ledger.refresh()
            while records := await self._new_records(ledger):
                for record in records:
                    self._keep_record(record)
            if ledger.journal.sealed is not None and not self.is_sealed:
                self.is_sealed = True
                mark = ledger.journal.sealed
                self.keep(
                    frame_from_event(
                        "sealed", {"code": mark.code, "detail": mark.detail, "at_seq": mark.at_seq}
                    )
                )
        self.tell_all()

    async def _new_records(self, ledger: Ledger) -> list[Record]:
        recent = list(ledger.recent)
        if self.seq >= ledger.state.seq or (recent and recent[0].seq <= self.seq + 1):
            return [record for record in recent if record.seq > self.seq]
        return await _page(ledger, self.seq)

    def _keep_record(self, record: Record) -> None:
        if self.circles is not None and record.type == "input_accepted":
            turn, circle = circle_from_input(record.body)
            self.circles[turn] = circle
        self.keep(frame_from_record(record))

    async def page_after(self, cursor: int) -> list[Frame]:
        """Read records from the journal, after the cursor and up to the tail's last one."""
        async with self._reading, self._service.shelf.use(self.session) as ledger:
            if ledger.instance != self.instance:
                self.end_all("new_life")
                return []
            records = await _page(ledger, cursor)
        return [frame_from_record(record) for record in records if record.seq <= self.seq]

    async def know_circles(self) -> None:
        """
        Read once which audience and boundary each turn has, for followers that may not see
        everything.
        """
        if self.circles is not None:
            return
        found: Circles = {}

        def fold(record: Record) -> None:
            if record.type == "input_accepted":
                turn, circle = circle_from_input(record.body)
                found[turn] = circle

        async with self._moving, self._reading, self._service.shelf.use(self.session) as ledger:
            await ledger.journal.load(fold)
            self.circles = found


class _Enough(Exception):
    """Raised when a page is full."""


async def _page(ledger: Ledger, after: int) -> list[Record]:
    found: list[Record] = []
    size = 0

    def fold(record: Record) -> None:
        nonlocal size
        found.append(record)
        size += len(record.body)
        if size >= _PAGE_BYTES:
            raise _Enough

    with suppress(_Enough):
        await ledger.journal.load(fold, after=after)
    return found


class _Marking(asyncio.Event):
    """
    The event that the live feed sets. It makes the tail move instead of waking a waiting task.
    """

    def __init__(self, mark: Callable[[], None]) -> None:
        super().__init__()
        self._mark = mark

    def set(self) -> None:
        self._mark()


class Tails:
    """All followed sessions of this process. `run` moves them; `follow` joins one."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service = service
        self._streams = streams
        self._tails: dict[SessionId, SharedTail] = {}
        self._ears: dict[SessionId, tuple[ExitStack, Callable[[], None]]] = {}
        self._reading = asyncio.Semaphore(_READING_AT_ONCE)
        self._dirty: set[SessionId] = set()
        self._moving: set[SessionId] = set()
        self._soon: set[SessionId] = set()
        self._news = asyncio.Event()
        self.gaps = 0

    @asynccontextmanager
    async def follow(
        self, session: SessionId, bearer: Bearer, *, instance: InstanceId | None, after: int | None
    ) -> AsyncGenerator[Follower, None]:
        """
        Join the tail of this instance, which the bearer may see, after the cursor or from the
        beginning.
        """
        tail = self._tail_of(session, instance)
        follower = Follower(tail, bearer, after or 0)
        with self._streams.hold(follower), self._joined(tail, follower):
            if tail.instance is None:
                await tail.begin()
            if tail.instance != instance:  # a bearer who may see one instance may not see another
                raise Busy(f"{session} has begun a new life just now", hint="try again")
            await self._check_cursor(tail, after)
            if not follower.bearer.reads_every_circle:
                await tail.know_circles()
            yield follower

    def _tail_of(self, session: SessionId, instance: InstanceId | None) -> SharedTail:
        """
        Return the shared tail. If it belongs to an earlier instance, end its followers and make a
        new one.
        """
        tail = self._tails.get(session)
        if tail is not None and tail.instance not in (None, instance):
            tail.end_all("new_life")
            self._leave(tail)
            tail = None
        return tail or SharedTail(session, self._reading, self._service)

    def _leave(self, tail: SharedTail) -> None:
        del self._tails[tail.session]
        self._ears.pop(tail.session)[0].close()

    @contextmanager
    def _joined(self, tail: SharedTail, follower: Follower) -> Generator[None, None, None]:
        """Keep a tail and its listener from its first follower to its last."""
        session = tail.session
        if session not in self._tails:
            self._tails[session] = tail
            self._listen(tail)
        tail.followers.add(follower)
        try:
            yield
        finally:
            tail.followers.discard(follower)
            if not tail.followers and self._tails.get(session) is tail:
                self._leave(tail)

    async def _check_cursor(self, tail: SharedTail, after: int | None) -> None:
        if after is not None and after > tail.seq:
            await tail.move()
        if after is not None and after > tail.seq:
            raise Refused(
                f"there is no record {after} yet in this life of {tail.session}",
                code="cursor_ahead",
                hint="follow from the beginning, without a cursor",
            )

    def _listen(self, tail: SharedTail) -> None:
        stack = ExitStack()
        session = tail.session
        ear = stack.enter_context(
            self._service.feed.listen(session, _Marking(lambda: self._mark_soon(session)))
        )

        def take() -> None:
            for piece in ear.take():
                if isinstance(piece, Gap):
                    self.gaps += 1
                tail.keep(frame_from_piece(piece))

        self._ears[session] = (stack, take)

    def _mark(self, session: SessionId) -> None:
        self._dirty.add(session)
        self._news.set()

    def _mark_soon(self, session: SessionId, seconds: float = PIECES_SECONDS) -> None:
        if session not in self._soon:
            self._soon.add(session)
            asyncio.get_running_loop().call_later(seconds, self._mark_now, session)

    def _mark_now(self, session: SessionId) -> None:
        self._soon.discard(session)
        if session in self._tails:
            self._mark(session)

    def notice(self, session: SessionId) -> None:
        """
        Mark the session after an append by any process. With many followers, wait and combine
        appends, because waking them all takes longer than the wait.
        """
        if (tail := self._tails.get(session)) is not None:
            crowd = len(tail.followers)
            if crowd < _CROWD:
                self._mark(session)
            else:
                self._mark_soon(session, min(PIECES_SECONDS, crowd * _SECONDS_EACH))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                self._news.clear()
                for session in list(self._dirty - self._moving):
                    self._dirty.discard(session)
                    tail = self._tails.get(session)
                    if tail is not None:
                        self._moving.add(session)
                        group.create_task(self._move(tail))

    async def _move(self, tail: SharedTail) -> None:
        try:
            if self._tails.get(tail.session) is tail:
                await tail.move(self._ears[tail.session][1])
        except Refused as exc:
            tail.end_all("gone" if exc.code == "unknown" else exc.code)
        except Untrusted as exc:
            if not tail.is_sealed:
                tail.is_sealed = True
                tail.keep(
                    frame_from_event(
                        "sealed", {"code": exc.code, "detail": exc.message, "at_seq": exc.at_seq}
                    )
                )
            tail.tell_all()
        except (
            HoldfastError,
            OSError,
        ) as exc:  # busy, in doubt or a disk error: the next check tries again
            _log.info("%s could not be looked at now (%s)", tail.session, exc)
        finally:
            self._moving.discard(tail.session)
            if tail.session in self._dirty:
                self._news.set()

    def look(self, heads: Heads) -> None:
        """
        Find journals that grew without a notice, and deletions and seals, which append nothing.
        """
        known = {session: (instance, seq) for session, instance, seq in heads}
        sealed = self._service.home.state.sealed
        for session, tail in self._tails.items():
            if tail.instance is not None and tail.is_behind(
                *known.get(session, (None, 0)), is_sealed=session in sealed
            ):
                self._mark(session)
