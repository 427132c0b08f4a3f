"""
All live streams of this process: their limits and their ends.

A stream is one connection and one token. One check a second serves all of them. It ends the streams
of revoked tokens, cuts clients that read nothing, sends keep-alives to idle streams, and has those
who follow journals look at the heads of theirs. So an idle stream costs a connection but no polling
task.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from holdfast.errors import HoldfastError, Refused
from holdfast.gateway.server.tokens import Bearer, TokenBook
from holdfast.gateway.streams.frames import KEEP_ALIVE, frame_from_event

KEEP_ALIVE_SECONDS = 15.0
LOOK_AGAIN_SECONDS = 1.0  # notices are hints; also bounds how long a revoked token streams
UNSURE_SECONDS = 1.8  # longest time that a stream continues while its token can't be checked
ENDING_SECONDS = 1.5  # after this, an ended stream that has not closed is cut
# Cutting and ending do not wait for a check that hangs. Together they take less than the five
# seconds that G3 promises.
_TICK_SECONDS = 0.5
STALLED_SECONDS = 60.0  # a client that reads nothing for this long is gone

_log = logging.getLogger("holdfast.gateway.streams.registry")


class LiveStream:
    """One stream, owned by the request that created it. A subclass decides which data it sends."""

    def __init__(self, bearer: Bearer) -> None:
        self.bearer = bearer
        # Set when there may be something to read, or a reason to end.
        self.wake = asyncio.Event()
        self.ended: str | None = None
        self.ended_at = 0.0
        # The sender sets these: since when the client has read nothing, and when it last did.
        self.blocked_since: float | None = None
        self.sent_at = time.monotonic()
        self.is_quiet = False
        self.abort: Callable[[], None] = lambda: None

    def end(self, reason: str) -> None:
        if self.ended is None:
            self.ended, self.ended_at = reason, time.monotonic()
        self.wake.set()

    async def read(self) -> bytes:
        """Return new data for this stream, up to a page, or empty bytes."""
        raise NotImplementedError

    @property
    def place(self) -> dict[str, int | str]:
        """Return the stream's position, which its end event reports."""
        raise NotImplementedError

    @property
    def closing(self) -> bytes:
        """Return the last bytes of a stream that ends, though its client has not left."""
        return frame_from_event("end", {"reason": self.ended, **self.place}).data

    @property
    def keep_alive(self) -> bytes:
        return KEEP_ALIVE


class Streams:
    """All streams. `run` checks them; `hold` admits one."""

    def __init__(
        self,
        book: TokenBook,
        now: Callable[[], int],
        *,
        streams_max: int,
        streams_per_token_max: int,
        streams_per_person_max: int,
    ) -> None:
        self._book = book
        self._now = now
        self._streams_max = streams_max
        self._streams_per_token_max = streams_per_token_max
        self._streams_per_person_max = streams_per_person_max
        self._listeners: set[LiveStream] = set()
        self._of_token: Counter[str] = Counter()
        self._of_person: Counter[str] = Counter()
        # When every token was last checked.
        self._sure_at = time.monotonic()
        self._is_over = False

    def __len__(self) -> int:
        return len(self._listeners)

    @contextmanager
    def hold(self, listener: LiveStream) -> Generator[None, None, None]:
        """Admit a stream. Refuse it if this token, this person or the server has too many."""
        digest, person = listener.bearer.digest, listener.bearer.person
        if self._is_over:
            raise Refused("the server is stopping", code="stopping", hint="try again in a moment")
        self._refuse_too_many(digest, person)
        self._listeners.add(listener)
        self._of_token[digest] += 1
        self._of_person[person] += 1
        try:
            yield
        finally:
            self._listeners.discard(listener)
            _count_down(self._of_token, digest)
            _count_down(self._of_person, person)

    def _refuse_too_many(self, digest: str, person: str) -> None:
        if self._of_token[digest] >= self._streams_per_token_max:
            said, hint = (
                f"this token has {self._streams_per_token_max} streams open already",
                "close some",
            )
        elif self._of_person[person] >= self._streams_per_person_max:
            said, hint = (
                f"{person} has {self._streams_per_person_max} streams open already",
                "close some, of any token of theirs",
            )
        elif len(self._listeners) >= self._streams_max:
            said, hint = f"{self._streams_max} streams are open already", "try again in a moment"
        else:
            return
        raise Refused(
            said,
            code="too_many",
            hint=f"{hint}; one stream follows a whole session, one all that waits",
        )

    async def run(self, *followed: Callable[[], Awaitable[None]]) -> None:
        """
        Check the streams until cancelled. A check that hangs keeps no stream open, because tokens
        count as unsure meanwhile.
        """
        looking, looking_since, started = None, 0.0, asyncio.get_running_loop().time
        try:
            while True:
                await asyncio.sleep(_TICK_SECONDS)
                self._cut()
                if looking is not None and looking.done():
                    await looking
                    looking = None
                if (
                    looking is None
                    and started() - looking_since >= LOOK_AGAIN_SECONDS - _TICK_SECONDS / 2
                ):
                    looking, looking_since = asyncio.create_task(self.look(*followed)), started()
                elif looking is not None and started() - looking_since >= LOOK_AGAIN_SECONDS:
                    self._end_unsure()
        finally:
            if looking is not None:
                looking.cancel()

    async def look(self, *followed: Callable[[], Awaitable[None]]) -> None:
        """
        Run one check. If it fails, the next one repeats it. If tokens stay unchecked for too long,
        end all streams.
        """
        if not self._listeners:
            self._sure_at = time.monotonic()
            return
        self._cut()
        try:
            await self._end_dead_tokens()
            for each in followed:
                await each()
        except (HoldfastError, OSError) as exc:
            _log.warning("streams could not be looked after: %s", exc)
            self._end_unsure()

    def _end_unsure(self) -> None:
        if time.monotonic() - self._sure_at > UNSURE_SECONDS:
            self._end_each("unsure")

    def _cut(self) -> None:
        now = time.monotonic()
        for each in tuple(self._listeners):
            if now - each.sent_at > KEEP_ALIVE_SECONDS and each.blocked_since is None:
                each.is_quiet = True
                each.wake.set()
            if each.blocked_since is not None and now - each.blocked_since > STALLED_SECONDS:
                each.end("stalled")
            if each.ended is not None and now - each.ended_at > ENDING_SECONDS:
                each.abort()

    async def _end_dead_tokens(self) -> None:
        listeners = tuple(self._listeners)
        bearers = {each.bearer.digest: each.bearer for each in listeners}
        living = await self._book.still_lives(tuple(bearers.values()), now=self._now())
        self._sure_at = time.monotonic()
        for each in listeners:
            if each.bearer.digest not in living:
                each.end("revoked")

    def _end_each(self, reason: str) -> None:
        for each in tuple(self._listeners):
            each.end(reason)

    def end_all(self, reason: str) -> None:
        """Admit no more streams, and end the open ones."""
        self._is_over = True
        self._end_each(reason)


def _count_down(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
