"""
Live text for followers: pieces of replies and of tool output. Hints, never history.

Each follower has a bounded queue. A follower that does not read loses pieces and is notified of the
gap; no task waits for it. A follower who comes late gets the beginning of a reply that is being
written and the last of a running call's output, within bounds. A relay, if there is one, carries
pieces to followers in other processes and brings theirs.
"""

import asyncio
import codecs
from collections import defaultdict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol, Self

import msgspec

from holdfast.ids import CallId, SessionId, TurnId

_QUEUED_MAX = 512
_REPLY_CHARS_MAX = 256 * 1024  # kept of a reply for late followers; its record has all of it
_OUTPUT_CHARS_MAX = 20_000  # kept of a running call's output: as much as the page shows of it


class Delta(msgspec.Struct, frozen=True, tag=True):
    """A piece of text or output that is being produced right now."""

    session: SessionId
    turn: TurnId
    kind: str  # text, output; compaction: the progress of a compaction
    text: str
    call: str | None = None
    # The last record when the piece was made. The piece belongs behind it.
    after: int = 0
    # How many characters of this reply, or of this call's output, come before the piece.
    offset: int = 0


class Gap(msgspec.Struct, frozen=True, tag=True):
    """Some pieces were lost because the follower was too slow; the records hold everything."""

    session: SessionId


Heard = Delta | Gap


class Subscription:
    """The unread pieces of one follower."""

    def __init__(self, session: SessionId, wake: asyncio.Event) -> None:
        self._session = session
        self._wake = wake
        self._pieces: deque[Heard] = deque()
        self._lost = False

    def put(self, piece: Heard) -> None:
        if isinstance(piece, Delta) and len(self._pieces) < _QUEUED_MAX:
            self._pieces.append(piece)
        else:
            self._lost = True
        self._wake.set()

    def take(self) -> list[Heard]:
        """Return everything since the last call, with a Gap if pieces were lost."""
        taken: list[Heard] = [*self._pieces, *([Gap(self._session)] if self._lost else [])]
        self._pieces.clear()
        self._lost = False
        return taken


class LiveText:
    """Text that comes while its context is open. Late followers get it as one piece."""

    def __init__(self, feed: "Feed", session: SessionId) -> None:
        self._feed, self._session = feed, session

    def __enter__(self) -> Self:
        self._feed.live[self._session].add(self)
        return self

    def __exit__(self, *_: object) -> None:
        live = self._feed.live[self._session]
        live.discard(self)
        if not live:
            del self._feed.live[self._session]

    def so_far(self) -> Delta | None:
        raise NotImplementedError


class Reply(LiveText):
    """One reply. Owned by the driver that asked the model."""

    def __init__(self, feed: "Feed", session: SessionId, turn: TurnId, after: int) -> None:
        super().__init__(feed, session)
        self._turn, self._after = turn, after
        self._kept: list[str] = []
        self._chars = 0

    def hear(self, text: str) -> None:
        piece = self._piece(text, self._chars)
        if self._chars + len(text) <= _REPLY_CHARS_MAX:
            self._kept.append(text)
        self._chars += len(text)
        self._feed.say(piece)

    @property
    def text(self) -> str:
        """The reply from its beginning, within the bound."""
        return "".join(self._kept)

    def so_far(self) -> Delta | None:
        """The reply from its beginning, as one piece."""
        return self._piece(self.text, 0) if self._kept else None

    def _piece(self, text: str, offset: int) -> Delta:
        return Delta(self._session, self._turn, "text", text, after=self._after, offset=offset)


class CallOutput(LiveText):
    """The output of one call. Owned by the driver that started it."""

    def __init__(
        self,
        feed: "Feed",
        session: SessionId,
        turn: TurnId,
        call: CallId,
        after: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(feed, session)
        self._turn, self._call, self._after = turn, call, after
        # A character that a read cuts in two is sent whole, with the second piece.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._kept: deque[str] = deque()
        self._kept_chars = 0
        self._chars = 0

    def hear(self, output: bytes) -> None:
        text = self._decode(output)
        if not text:
            return
        self._feed.say(self._piece(text, self._chars))
        self._chars += len(text)
        self._kept.append(text)
        self._kept_chars += len(text)
        while self._kept_chars - len(self._kept[0]) >= _OUTPUT_CHARS_MAX:
            self._kept_chars -= len(self._kept.popleft())

    def so_far(self) -> Delta | None:
        """The last of the output, as one piece."""
        text = "".join(self._kept)[-_OUTPUT_CHARS_MAX:]
        return self._piece(text, self._chars - len(text)) if text else None

    def _piece(self, text: str, offset: int) -> Delta:
        at = self._after()
        return Delta(self._session, self._turn, "output", text, self._call, after=at, offset=offset)


class Relay(Protocol):
    """The way to followers in other processes."""

    def follow(self, session: SessionId) -> None:
        """This process has its first follower of the session."""
        ...

    def leave(self, session: SessionId) -> None:
        """This process has no follower of the session any more."""
        ...

    def pass_on(self, delta: Delta) -> None:
        """Give a piece of this process to the processes that follow its session."""
        ...


class Feed:
    def __init__(self) -> None:
        self._subscriptions: defaultdict[SessionId, set[Subscription]] = defaultdict(set)
        self.live: defaultdict[SessionId, set[LiveText]] = defaultdict(set)
        self.relay: Relay | None = None

    def say(self, delta: Delta) -> None:
        """Give a piece of this process to all followers."""
        self.hear(delta)
        if self.relay is not None:
            self.relay.pass_on(delta)

    def hear(self, piece: Heard) -> None:
        """Give a piece, of this process or of another, to the followers in this process."""
        for subscription in self._subscriptions.get(piece.session, ()):
            subscription.put(piece)

    @property
    def followed(self) -> list[SessionId]:
        """The sessions with followers in this process."""
        return list(self._subscriptions)

    def so_far(self, session: SessionId) -> list[Delta]:
        """Return the replies and the output that come now in this process."""
        live = self.live.get(session, ())
        return [said for each in live if (said := each.so_far()) is not None]

    @contextmanager
    def listen(
        self, session: SessionId, wake: asyncio.Event
    ) -> Generator[Subscription, None, None]:
        """`wake` is set with each piece."""
        subscription = Subscription(session, wake)
        for said in self.so_far(session):
            subscription.put(said)
        self._subscriptions[session].add(subscription)
        if self.relay is not None and len(self._subscriptions[session]) == 1:
            self.relay.follow(session)
        try:
            yield subscription
        finally:
            self._subscriptions[session].discard(subscription)
            if not self._subscriptions[session]:
                del self._subscriptions[session]
                if self.relay is not None:
                    self.relay.leave(session)
