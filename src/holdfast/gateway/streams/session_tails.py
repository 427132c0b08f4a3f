"""
All followed sessions of this process: which tails there are, and when each of them moves. A tail
exists from its first follower to its last.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager

from holdfast.errors import Busy, HoldfastError, Refused, Untrusted
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.frames import frame_from_event
from holdfast.gateway.streams.registry import Streams
from holdfast.gateway.streams.session_tail import SessionStream, SessionTail
from holdfast.ids import InstanceId, SessionId
from holdfast.runtime.service import Service
from holdfast.runtime.streams.feed import Gap, Heard

# Pieces of text are collected for this long. A thousand followers are then woken a few times per
# sentence, not for each token.
PIECES_SECONDS = 0.03
_AGAIN_SECONDS = 1.0  # after a look that failed, if pieces wait for the next one
_READING_AT_ONCE = 8
_CROWD = 100
_SECONDS_EACH = 0.000_02
MakeStream = Callable[[SessionTail, Bearer, int], SessionStream]
_log = logging.getLogger("holdfast.gateway.streams.session_tails")


class _Marking(asyncio.Event):
    """
    The event that the live feed sets. It makes the tail move instead of waking a waiting task.
    """

    def __init__(self, mark: Callable[[], None]) -> None:
        super().__init__()
        self._mark = mark

    def set(self) -> None:
        self._mark()


class SessionTails:
    """All followed sessions of this process. `run` moves them; `follow` joins one."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service = service
        self._streams = streams
        self._tails: dict[SessionId, SessionTail] = {}
        self._subscriptions: dict[SessionId, tuple[ExitStack, Callable[[], Sequence[Heard]]]] = {}
        self._reading = asyncio.Semaphore(_READING_AT_ONCE)
        self._dirty: set[SessionId] = set()
        self._moving: set[SessionId] = set()
        self._soon: set[SessionId] = set()
        self._news = asyncio.Event()
        self.gaps = 0

    @asynccontextmanager
    async def follow(
        self,
        session: SessionId,
        bearer: Bearer,
        *,
        instance: InstanceId | None,
        after: int | None,
        make: MakeStream = SessionStream,
    ) -> AsyncGenerator[SessionStream, None]:
        """
        Join the tail of this instance, which the bearer may see, after the cursor or from the
        beginning.
        """
        tail = self._tail_of(session, instance)
        follower = make(tail, bearer, after or 0)
        with self._streams.hold(follower), self._joined(tail, follower):
            if tail.instance is None:
                await tail.begin()
            if tail.instance != instance:  # a bearer who may see one instance may not see another
                raise Busy(f"{session} has begun a new instance just now", hint="try again")
            await self._check_cursor(tail, after)
            if not follower.bearer.reads_every_reader_set:
                await tail.know_reader_sets()
            yield follower

    def _tail_of(self, session: SessionId, instance: InstanceId | None) -> SessionTail:
        """
        Return the shared tail. If it belongs to an earlier instance, end its followers and make a
        new one.
        """
        tail = self._tails.get(session)
        if tail is not None and tail.instance not in (None, instance):
            tail.end_all("new_instance")
            self._leave(tail)
            tail = None
        return tail or SessionTail(session, self._reading, self._service)

    def _leave(self, tail: SessionTail) -> None:
        del self._tails[tail.session]
        self._subscriptions.pop(tail.session)[0].close()

    @contextmanager
    def _joined(self, tail: SessionTail, follower: SessionStream) -> Generator[None, None, None]:
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

    async def _check_cursor(self, tail: SessionTail, after: int | None) -> None:
        if after is not None and after > tail.seq:
            await tail.move()
        if after is not None and after > tail.seq:
            raise Refused(
                f"{tail.session} has no record {after} yet in this instance",
                code="cursor_ahead",
                hint="follow from the beginning, without a cursor",
            )

    def _listen(self, tail: SessionTail) -> None:
        stack = ExitStack()
        session = tail.session
        subscription = stack.enter_context(
            self._service.live.listen(session, _Marking(lambda: self._mark_soon(session)))
        )

        def take() -> Sequence[Heard]:
            pieces = subscription.take()
            self.gaps += sum(isinstance(piece, Gap) for piece in pieces)
            return pieces

        self._subscriptions[session] = (stack, take)

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

    async def _move(self, tail: SessionTail) -> None:
        try:
            if self._tails.get(tail.session) is tail:
                await tail.move(self._subscriptions[tail.session][1])
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
            if tail.has_unplaced:
                self._mark_soon(tail.session, _AGAIN_SECONDS)
        finally:
            self._moving.discard(tail.session)
            if tail.session in self._dirty:
                self._news.set()

    async def look(self) -> None:
        """
        Find journals that grew without a notice, and deletions and seals, which append nothing.
        """
        tails = dict(self._tails)
        heads = await self._service.live.heads_of(tails)
        known = {session: (instance, seq) for session, instance, seq in heads}
        sealed = self._service.home.state.sealed
        for session, tail in tails.items():
            if tail.instance is not None and tail.is_behind(
                *known.get(session, (None, 0)), is_sealed=session in sealed
            ):
                self._mark(session)
