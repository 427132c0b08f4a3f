"""
Finding words in what was said. A cache like the index: deletable at any time, filled from the
journals when somebody searches, believed row by row by MAC.

It stores for each piece of text the circle it was said in; who may see that is the caller's to
decide, for every hit.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.ids import InstanceId, SessionId, TurnId


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """
    One piece of text. `audience` and `boundary` are those of its turn's context; blank for what has
    none: nobody's circle.
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
    said: Said
    cursor: str  # hand it back to go on after this one


class Search(Protocol):
    def through(self) -> dict[SessionId, tuple[InstanceId, int]]:
        """Up to which record each session is in it."""
        ...

    def add(
        self, session: SessionId, instance: InstanceId, through: int, said: Sequence[Said]
    ) -> None:
        """
        More of a session. Another instance than before: what was known of the old one is dropped
        first.
        """
        ...

    def forget(self, session: SessionId) -> None: ...

    def turn_circle(self, session: SessionId, turn: TurnId) -> tuple[str, str] | None:
        """(audience, boundary) that a turn's request was kept with."""
        ...

    def find(self, words: Sequence[str], *, limit: int, after: str | None = None) -> Sequence[Hit]:
        """Pieces that hold all the words, the newest first."""
        ...

    def close(self) -> None: ...
