"""
One person's live inbox: a stream's place on the board, and nothing else that grows.

It first sends all open prompts for this token, in pages, as of one moment. Then it sends every
later change once, in order. If the stream is too slow for the kept changes, it reports a gap and
starts again with all open prompts. While the client reads nothing, nothing is built for it.
"""

import re
from collections import deque

from holdfast.errors import Refused
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.frames import frame_from_event
from holdfast.gateway.streams.prompt_board import Change, Prompt, PromptBoard
from holdfast.gateway.streams.registry import LiveStream

_PAGE_BYTES = 64 * 1024
_CURSOR = re.compile(r"([0-9a-f]{16})-([0-9]{1,15})\Z")
CURSOR_PATTERN = "^[0-9a-f]{16}-[0-9]{1,15}$"


class InboxStream(LiveStream):
    """
    Owned by the request that created it. `cursor` is the client's last received id, or None for a
    new client.
    """

    def __init__(self, board: PromptBoard, bearer: Bearer, cursor: str | None) -> None:
        super().__init__(bearer)
        self._board = board
        # The next change to read. None if the cursor is too old or belongs to another board.
        self._place: int | None = _place_on(board, cursor)
        # Prompts that were open at `_place` and are still to be sent; None once all are sent.
        self._standing: deque[Prompt] | None = None
        self._has_heard = cursor is not None

    @property
    def cursor(self) -> str | None:
        """
        Return the id up to which everything was sent. None while open prompts are still being sent.
        """
        return (
            None
            if self._place is None or self._standing is not None
            else f"{self._board.board_id}-{self._place}"
        )

    @property
    def place(self) -> dict[str, int | str]:
        return {"cursor": self.cursor} if self.cursor is not None else {}

    @property
    def keep_alive(self) -> bytes:
        """
        Include the current place, which other people's changes have moved on. A client that resumes
        from it has missed nothing.
        """
        return (
            super().keep_alive
            if self.cursor is None
            else b"id: %s\n%s" % (self.cursor.encode(), super().keep_alive)
        )

    def tell(self, change: Change, place: int) -> None:
        """
        Note a change at this place. Skip a change for other people at once, so that it never counts
        as a gap.
        """
        if change.prompt.is_for(self.bearer):
            self.wake.set()
        elif self._place == place and self._standing is None:
            self._place = place + 1

    async def read(self) -> bytes:
        self.wake.clear()
        gap = b""
        if self._place is None or self._place < self._board.first_place:
            gap = self._begin_anew()
        if self._standing is not None:
            return gap + self._page(self._standing)
        return self._changes(self._place or 0)

    def _begin_anew(self) -> bytes:
        self._place = self._board.next_place
        self._standing = deque(self._board.standing_for(self.bearer))
        gap = frame_from_event("gap", {"lost": "changes"}).data if self._has_heard else b""
        self._has_heard = True
        return gap

    def _page(self, left: deque[Prompt]) -> bytes:
        """Send the id with the last page: a client that is cut off earlier starts again."""
        page: list[bytes] = []
        size = 0
        while left and size < _PAGE_BYTES:
            page.append(left.popleft().data)
            size += len(page[-1])
        event = b'event: standing\ndata: {"approvals":[%s],"more":%s}\n\n' % (
            b",".join(page),
            b"true" if left else b"false",
        )
        self.wake.set()
        if left:
            return event
        self._standing = None
        return b"id: %s\n%s" % (str(self.cursor).encode(), event)

    def _changes(self, place: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for change in self._board.changes_from(place):
            place += 1
            if change.prompt.is_for(self.bearer):
                found.append(b"id: %s-%d\n%s" % (self._board.board_id.encode(), place, change.data))
                size += len(change.data)
            if size >= _PAGE_BYTES:
                break
        self._place = place
        if place < self._board.next_place:
            self.wake.set()
        return b"".join(found)


def check_cursor(given: str | None) -> str | None:
    """
    Return the header's value if this server could have issued it. Refuse any other. An empty value
    means no cursor.
    """
    if not given:
        return None
    if not _CURSOR.match(given):
        raise Refused(
            "Last-Event-ID is the id of an event of this stream",
            code="malformed",
            hint="take the id of the last event, or leave the header out",
        )
    return given


def _place_on(board: PromptBoard, cursor: str | None) -> int | None:
    found = _CURSOR.match(cursor or "")
    if found is None or found[1] != board.board_id or int(found[2]) > board.next_place:
        return None
    return int(found[2])
