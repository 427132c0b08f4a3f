"""
Full-text search of conversations. It is a cache like the index: deletable at any time, filled from
the journals on each search, believed row by row by MAC.

It stores each piece of text with its audience and boundary. The caller decides for every hit who
may see it.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.ids import InstanceId, SessionId, TurnId


class SearchedText(msgspec.Struct, frozen=True, kw_only=True):
    """
    One piece of text. `audience` and `boundary` come from its turn's context. They are blank for
    text without a context, which no reader may see.
    """

    session: SessionId
    instance: InstanceId
    turn: TurnId
    seq: int
    at: int
    kind: str  # request, reply, imported
    who: str | None
    audience: str
    boundary: str
    text: str


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    said: SearchedText
    cursor: str  # pass it back to continue after this hit


class Search(Protocol):
    def through(self) -> dict[SessionId, tuple[InstanceId, int]]:
        """The last record of each session that the search contains."""
        ...

    def add(
        self, session: SessionId, instance: InstanceId, through: int, said: Sequence[SearchedText]
    ) -> None:
        """
        Add more text of a session. If the instance is a new one, first drop the text of the old
        instance.
        """
        ...

    def forget(self, session: SessionId) -> None: ...

    def turn_reader_set(self, session: SessionId, turn: TurnId) -> tuple[str, str] | None:
        """The (audience, boundary) stored with a turn's request."""
        ...

    def find(self, words: Sequence[str], *, limit: int, after: str | None = None) -> Sequence[Hit]:
        """The pieces that hold all the words, newest first."""
        ...

    def close(self) -> None: ...
