"""The conversation that all turns share: a summary, and the ended turns since."""

import msgspec

from holdfast.ids import (
    TurnId,
)
from holdfast.session.authority.context import Audience
from holdfast.session.persistent import PersistentList
from holdfast.session.view.messages import Message


class ViewEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One ended turn as later turns see it."""

    turn: TurnId
    messages: tuple[Message, ...]
    audience: Audience = Audience.PERSONAL  # who may see it; the narrowest audience if unknown
    tainted: bool = True


class View(msgspec.Struct, frozen=True, gc=False):
    """The part that all turns share: a summary of the oldest turns, and the ended turns since."""

    summary: str | None = None
    entries: PersistentList[ViewEntry] = PersistentList()
    # number of compactions that led to it; views of the same number share their past
    compactions: int = 0
    # as the model counted them at the last turn's end; 0: the model never reported a count
    tokens: int = 0
    summary_audience: Audience = Audience.PERSONAL  # the narrowest audience of the summarised turns
    # Characters of the summary and all entries, so that a long view need not be counted again.
    chars: int = 0
    tainted: bool = (
        False  # True if any of it, or any summarised part, was tainted: taint is never removed
    )

    def narrowest(self, turns: int | None = None) -> Audience:
        """
        Return the narrowest audience of the summary and the oldest `turns` entries, or of all
        entries.
        """
        seen = [entry.audience for entry in list(self.entries)[:turns]]
        if self.summary is not None:
            seen.append(self.summary_audience)
        return max(seen, key=lambda audience: audience.narrowness, default=Audience.PUBLIC)
