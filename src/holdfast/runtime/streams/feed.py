"""
Live text for followers: pieces of replies and of tool output. Hints, never history.

Each follower has a bounded queue. A follower that does not read loses pieces and is notified of the
gap; no task waits for it. A reply that is being written is kept from its beginning, within a bound,
so that a follower who comes late gets all of it. A relay, if there is one, carries pieces to
followers in other processes and brings theirs.
"""

import asyncio
import codecs
from collections import defaultdict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol, Self

import msgspec

from holdfast.ids import CallId, SessionId, TurnId
from holdfast.ports.tools import OnOutput

_QUEUED_MAX = 512
_REPLY_CHARS_MAX = 256 * 1024  # kept of a reply for late followers; its record has all of it


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


class Ear:
    """The unread pieces of one follower."""

    def __init__(self, session: SessionId, wake: asyncio.Event) -> None:
        self._session = session
        self._wake = wake
        self._pieces: deque[Heard] = deque()
        self._lost = False

    def hear(self, piece: Heard) -> None:
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


class Reply:
    """One reply, written while its context is open. Owned by the driver that asked the model."""

    def __init__(self, feed: "Feed", session: SessionId, turn: TurnId, after: int) -> None:
        self._feed = feed
        self._session, self._turn, self._after = session, turn, after
        self._kept: list[str] = []
        self._chars = 0

    def __enter__(self) -> Self:
        self._feed.replies[self._session].add(self)
        return self

    def __exit__(self, *_: object) -> None:
        replies = self._feed.replies[self._session]
        replies.discard(self)
        if not replies:
            del self._feed.replies[self._session]

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
        self._ears: defaultdict[SessionId, set[Ear]] = defaultdict(set)
        self.replies: defaultdict[SessionId, set[Reply]] = defaultdict(set)
        self.relay: Relay | None = None

    def say(self, delta: Delta) -> None:
        """Give a piece of this process to all followers."""
        self.hear(delta)
        if self.relay is not None:
            self.relay.pass_on(delta)

    def hear(self, piece: Heard) -> None:
        """Give a piece, of this process or of another, to the followers in this process."""
        for ear in self._ears.get(piece.session, ()):
            ear.hear(piece)

    @property
    def followed(self) -> list[SessionId]:
        """The sessions with followers in this process."""
        return list(self._ears)

    def so_far(self, session: SessionId) -> list[Delta]:
        """Return the replies that this process is writing now, each from its beginning."""
        replies = self.replies.get(session, ())
        return [said for reply in replies if (said := reply.so_far()) is not None]

    def output_of(
        self, session: SessionId, turn: TurnId, call: CallId, after: Callable[[], int] = lambda: 0
    ) -> OnOutput:
        """
        Return a callback for a call's output. A character that is cut in two is sent whole, with
        the second piece.
        """
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        chars = 0

        def heard(output: bytes) -> None:
            nonlocal chars
            if text := decode(output):
                self.say(Delta(session, turn, "output", text, call, after=after(), offset=chars))
                chars += len(text)

        return heard

    @contextmanager
    def listen(self, session: SessionId, wake: asyncio.Event) -> Generator[Ear, None, None]:
        """`wake` is set with each piece."""
        ear = Ear(session, wake)
        for said in self.so_far(session):
            ear.hear(said)
        self._ears[session].add(ear)
        if self.relay is not None and len(self._ears[session]) == 1:
            self.relay.follow(session)
        try:
            yield ear
        finally:
            self._ears[session].discard(ear)
            if not self._ears[session]:
                del self._ears[session]
                if self.relay is not None:
                    self.relay.leave(session)
