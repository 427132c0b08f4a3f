"""
All live inboxes of this process. They share one board, which this module updates.

The board starts with the list of `GET /v1/approvals`. Notices and heads name the sessions that
changed, and their folded state gives the open prompts. So an idle session costs no task and no open
journal, and a waiting person costs almost nothing. The board exists while a stream is open and
`LINGER_SECONDS` longer.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from holdfast.errors import HoldfastError, NewerVersion, Refused, Untrusted
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.inbox_stream import InboxStream
from holdfast.gateway.streams.prompt_board import Change, PromptBoard
from holdfast.gateway.streams.registry import Streams
from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.runtime.reports.open_prompts import PromptEnd, prompt_end, prompts_of
from holdfast.runtime.reports.types import ApprovalReport
from holdfast.runtime.service import Service

LINGER_SECONDS = (
    60.0  # a page that is reloaded, or reconnects after a break, finds its cursor still valid
)
_LOOKING_AT_ONCE = 8
_MARGIN_SECONDS = 5.0  # an append that was under way at the last look is asked for again
_Heads = dict[SessionId, tuple[InstanceId, int]]
_log = logging.getLogger("holdfast.gateway.streams.inbox_hub")


class InboxHub:
    """
    `open` joins; `run` updates the board; `notice` and `look` mark sessions that may have changed.
    """

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service = service
        self._streams = streams
        self._board: PromptBoard | None = None
        # The heads at the last look, of the sessions on the board and of those that moved before.
        self._heads: _Heads = {}
        self._looked_at = 0.0
        self._listeners: set[InboxStream] = set()
        self._left_at = 0.0
        self._beginning = asyncio.Lock()
        self._looking = asyncio.Semaphore(_LOOKING_AT_ONCE)
        self._dirty: set[SessionId] = set()
        self._moving: set[SessionId] = set()
        # Sessions that could not be read (lock held, disk error). The next check tries them again.
        self._late: set[SessionId] = set()
        self._news = asyncio.Event()

    @asynccontextmanager
    async def open(self, bearer: Bearer, *, after: str | None) -> AsyncGenerator[InboxStream, None]:
        """Join the board after the cursor; without one, start with all open prompts."""
        board = await self._begun()
        self._tell(board, board.expire(self._now()))
        inbox = InboxStream(board, bearer, after)
        with self._streams.hold(inbox):
            self._listeners.add(inbox)
            try:
                yield inbox
            finally:
                self._listeners.discard(inbox)
                self._left_at = time.monotonic()

    def _now(self) -> int:
        return self._service.live.now_ms()

    async def _begun(self) -> PromptBoard:
        """
        Return the board, building it first if needed. Heads are read before the list and after it,
        and notices are kept from then on, so that a change during the read is checked again.
        """
        async with self._beginning:
            if self._board is None:
                self._looked_at = time.monotonic()
                before = await self._recent() or {}
                board = PromptBoard()
                patience = self._service.patience()
                board.begin(await self._service.approvals(patience=patience))
                self._late.update(patience.found)  # reported as the index knew them
                rest = await self._heads_of(board.sessions())
                after = await self._recent() or {}
                self._dirty |= {name for name, head in after.items() if before.get(name) != head}
                self._heads = rest | after
                self._board, self._left_at = board, time.monotonic()
                self._news.set()
            return self._board

    def notice(self, session: SessionId) -> None:
        """Mark a session after an append by any process."""
        if self._board is not None or self._beginning.locked():
            self._dirty.add(session)
            self._news.set()

    async def look(self) -> None:
        """
        Check once a second: expired prompts, journals that grew without a notice, and sessions that
        could not be read before.
        """
        board = self._board
        if board is None:
            return
        if not self._listeners and time.monotonic() - self._left_at > LINGER_SECONDS:
            self._forget()
            return
        self._tell(board, board.expire(self._now()))
        for session in await self._moved(board) | self._late:
            self.notice(session)
        self._late.clear()

    async def _moved(self, board: PromptBoard) -> set[SessionId]:
        """
        The sessions whose journals grew since the last look, or that are gone. If that was too long
        ago, those with open prompts, then or now: no others concern the board.
        """
        began, known = time.monotonic(), self._heads
        standing = frozenset(board.sessions())
        # A session that moves between the two reads is in the second one.
        heads, recent = await self._heads_of(standing), await self._recent()
        moved = {name for name in standing if name not in heads}
        if recent is None:
            listed = await self._service.approvals(patience=self._service.patience())
            moved |= standing | {report.session for report in listed}
        heads |= recent or {}
        moved |= {name for name, head in heads.items() if known.get(name) != head}
        self._heads, self._looked_at = heads, began
        return moved

    async def _heads_of(self, sessions: Collection[SessionId]) -> _Heads:
        found = await self._service.live.heads_of(sessions)
        return {session: (instance, seq) for session, instance, seq in found}

    async def _recent(self) -> _Heads | None:
        """The heads of at least the sessions that moved since the last look; None if unknown."""
        seconds = time.monotonic() - self._looked_at + _MARGIN_SECONDS
        found = await self._service.live.recent_heads(within_seconds=seconds)
        if found is None:
            return None
        return {session: (instance, seq) for session, instance, seq in found}

    def _forget(self) -> None:
        self._board, self._heads = None, {}
        self._dirty.clear()
        self._late.clear()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                self._news.clear()
                if self._board is None:
                    continue
                for session in self._dirty - self._moving:
                    self._dirty.discard(session)
                    self._moving.add(session)
                    group.create_task(self._move(self._board, session))

    async def _move(self, board: PromptBoard, session: SessionId) -> None:
        try:
            async with self._looking:
                reports, ends = await self._look_at(board, session)
            self._tell(board, board.compare(session, reports, ends, now=self._now()))
        except (HoldfastError, OSError) as exc:
            _log.info("%s could not be looked at now (%s)", session, exc)
            self._late.add(session)
        finally:
            self._moving.discard(session)
            if session in self._dirty:
                self._news.set()

    async def _look_at(
        self, board: PromptBoard, session: SessionId
    ) -> tuple[Sequence[ApprovalReport], Mapping[ApprovalId, PromptEnd | None]]:
        """
        Return the session's open prompts, and how earlier ones ended. A session that is sealed,
        unreadable or missing has no open prompts, as in the list.
        """
        try:
            async with self._service.live.use(session) as ledger:
                if ledger.journal.sealed is None and not ledger.driving:
                    await ledger.catch_up_if_behind()
                reports = prompts_of(ledger)
                waiting = {report.id for report in reports}
                gone = [name for name in board.standing_in(session) if name not in waiting]
                return reports, {name: prompt_end(ledger.state, name) for name in gone}
        except (Refused, Untrusted, NewerVersion):
            return (), {}

    def _tell(self, board: PromptBoard, changes: Sequence[Change]) -> None:
        if board is not self._board:
            return
        place = board.next_place - len(changes)
        for change in changes:
            for inbox in self._listeners:
                inbox.tell(change, place)
            place += 1
