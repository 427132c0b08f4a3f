"""
The lines between the workers of one home: pieces of text for followers, and counts for metrics.

Each worker has one inbox. All ends are made by the parent, so that they outlive a worker. Pieces
are hints: if a worker does not read, they are dropped. A follower that misses a piece is notified
of the gap, and the record has the whole text.
"""

import asyncio
import contextlib
import socket
from collections import defaultdict, deque
from collections.abc import Callable

import msgspec

from holdfast.gateway.server.metrics import Counts
from holdfast.gateway.workers.share import Share
from holdfast.ids import SessionId
from holdfast.runtime.streams.feed import Delta, Feed, Gap

_MESSAGE_BYTES_MAX = 128 * 1024  # fits into an inbox of the default size
_PIECE_CHARS_MAX = 16 * 1024  # 96 KiB in JSON, if every character needs an escape
_MESSAGES_AT_ONCE = 256  # then requests get their turn
_COUNTS_SECONDS = 1.0  # a worker that does not answer by then is left out of the metrics
_UNSENT_PIECES_MAX = 512  # for one worker that does not read


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The worker has begun. It follows nothing, and knows no follower."""

    worker: int


class Follows(msgspec.Struct, frozen=True, tag=True):
    worker: int
    session: SessionId


class Leaves(msgspec.Struct, frozen=True, tag=True):
    worker: int
    session: SessionId


class CountsWanted(msgspec.Struct, frozen=True, tag=True):
    worker: int
    question: int


class CountsGiven(msgspec.Struct, frozen=True, tag=True):
    worker: int
    question: int
    counts: Counts


Message = Hello | Follows | Leaves | CountsWanted | CountsGiven | Delta | Gap


class _Round:
    """One question to all workers for their counts."""

    def __init__(self, own: dict[int | None, Counts]) -> None:
        self.given = own
        self.is_whole = asyncio.Event()


class _Outbox:
    """The way to one other worker. A message waits until there is room for it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._unsent: deque[bytes] = deque()

    @property
    def is_full(self) -> bool:
        return len(self._unsent) >= _UNSENT_PIECES_MAX

    def send(self, message: Message) -> None:
        self._unsent.append(msgspec.json.encode(message))
        if len(self._unsent) == 1:
            self._push()

    def _push(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._unsent:
                self._end.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            loop.add_writer(self._end.fileno(), self._push)
        else:
            self.close()

    def close(self) -> None:
        asyncio.get_running_loop().remove_writer(self._end.fileno())


class Peers:
    """One worker's end of the lines. See `holdfast.runtime.streams.feed.Relay`."""

    def __init__(
        self,
        share: Share,
        inbox: socket.socket,
        outboxes: dict[int, socket.socket],
        feed: Feed,
        counts: Callable[[], Counts],
    ) -> None:
        self._share = share
        for end in (inbox, *outboxes.values()):
            end.setblocking(False)  # noqa: FBT003  # the standard library's own way
        self._inbox = inbox
        self._outboxes = {worker: _Outbox(end) for worker, end in outboxes.items()}
        self._feed = feed
        self._counts = counts
        self._followers: defaultdict[SessionId, set[int]] = defaultdict(set)  # other workers
        self._lost: set[tuple[int, SessionId]] = set()
        self._questions = 0
        self._rounds: dict[int, _Round] = {}  # by question

    async def run(self) -> None:
        """Take messages until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._inbox.fileno(), self._take)
        self._feed.relay = self
        try:
            self._tell_all(Hello(self._share.number))
            for session in self._feed.followed:
                self.follow(session)
            await loop.create_future()
        finally:
            self._feed.relay = None
            loop.remove_reader(self._inbox.fileno())
            for outbox in self._outboxes.values():
                outbox.close()

    # --- pieces

    def follow(self, session: SessionId) -> None:
        self._tell_all(Follows(self._share.number, session))

    def leave(self, session: SessionId) -> None:
        self._tell_all(Leaves(self._share.number, session))

    def pass_on(self, delta: Delta) -> None:
        for worker in self._followers.get(delta.session, ()):
            self._give(worker, delta)

    def _give(self, worker: int, delta: Delta) -> None:
        outbox, lost = self._outboxes[worker], (worker, delta.session)
        for start in range(0, len(delta.text), _PIECE_CHARS_MAX):
            if outbox.is_full:
                self._lost.add(lost)
                return
            if lost in self._lost:
                self._lost.discard(lost)
                outbox.send(Gap(delta.session))
            text = delta.text[start : start + _PIECE_CHARS_MAX]
            outbox.send(msgspec.structs.replace(delta, text=text, offset=delta.offset + start))

    # --- counts

    async def counts(self) -> dict[int | None, Counts]:
        """Return the counts of each worker that answers in time, this one included."""
        self._questions += 1
        question = self._questions
        asked = self._rounds[question] = _Round({self._share.number: self._counts()})
        self._tell_all(CountsWanted(self._share.number, question))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COUNTS_SECONDS):
                    await asked.is_whole.wait()
        finally:
            del self._rounds[question]
        return asked.given

    # --- messages

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MESSAGES_AT_ONCE):
                data = self._inbox.recv(_MESSAGE_BYTES_MAX)
                with contextlib.suppress(msgspec.DecodeError):
                    self._understand(_DECODER.decode(data))

    def _understand(self, message: Message) -> None:
        match message:
            case Delta() | Gap():
                self._feed.hear(message)
            case Follows(worker=worker, session=session):
                if worker not in self._followers[session]:
                    self._followers[session].add(worker)
                    for piece in self._feed.so_far(session):
                        self._give(worker, piece)
            case Leaves(worker=worker, session=session):
                self._forget(worker, session)
            case Hello(worker=worker):
                for session in [each for each, by in self._followers.items() if worker in by]:
                    self._forget(worker, session)
                for session in self._feed.followed:
                    self._outboxes[worker].send(Follows(self._share.number, session))
            case CountsWanted(worker=worker, question=question):
                given = CountsGiven(self._share.number, question, self._counts())
                self._outboxes[worker].send(given)
            case CountsGiven(worker=worker, question=question, counts=counts):
                if (asked := self._rounds.get(question)) is not None:
                    asked.given[worker] = counts
                    if len(asked.given) == self._share.workers:
                        asked.is_whole.set()

    def _forget(self, worker: int, session: SessionId) -> None:
        self._followers[session].discard(worker)
        self._lost.discard((worker, session))
        if not self._followers[session]:
            del self._followers[session]

    def _tell_all(self, message: Message) -> None:
        for outbox in self._outboxes.values():
            outbox.send(message)


_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
