"""
Live text for followers in this process: pieces of replies and of tool output. Hints, never history.

Each follower has a bounded queue. A follower that does not read loses pieces and is notified of the
gap; no task waits for it.
"""

import asyncio
import codecs
from collections import defaultdict, deque
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from holdfast.ids import CallId, SessionId, TurnId
from holdfast.ports.tools import OnOutput

_QUEUED_MAX = 512


class Delta(msgspec.Struct, frozen=True, tag=True):
    """A piece of text or output that is being produced right now."""

    session: SessionId
    turn: TurnId
    kind: str  # text, output; compaction: the progress of a compaction
    text: str
    call: str | None = None


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

    def hear(self, delta: Delta) -> None:
        if len(self._pieces) < _QUEUED_MAX:
            self._pieces.append(delta)
        else:
            self._lost = True
        self._wake.set()

    def take(self) -> list[Heard]:
        """Return everything since the last call, with a Gap if pieces were lost."""
        taken: list[Heard] = [*self._pieces, *([Gap(self._session)] if self._lost else [])]
        self._pieces.clear()
        self._lost = False
        return taken


class Feed:
    def __init__(self) -> None:
        self._ears: defaultdict[SessionId, set[Ear]] = defaultdict(set)

    def say(self, delta: Delta) -> None:
        for ear in self._ears.get(delta.session, ()):
            ear.hear(delta)

    def output_of(self, session: SessionId, turn: TurnId, call: CallId) -> OnOutput:
        """
        Return a callback for a call's output. A character that is cut in two is sent whole, with
        the second piece.
        """
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode

        def heard(output: bytes) -> None:
            if text := decode(output):
                self.say(Delta(session, turn, "output", text, call))

        return heard

    @contextmanager
    def listen(self, session: SessionId, wake: asyncio.Event) -> Generator[Ear, None, None]:
        """`wake` is set with each piece."""
        ear = Ear(session, wake)
        self._ears[session].add(ear)
        try:
            yield ear
        finally:
            self._ears[session].discard(ear)
            if not self._ears[session]:
                del self._ears[session]
