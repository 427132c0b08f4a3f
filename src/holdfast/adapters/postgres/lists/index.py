"""
The index in SQL, shared by all nodes. See `holdfast.ports.index`.

It is a cache: a row that does not verify, or is behind its journal, is not believed, and the
session is opened instead. A failed write is logged and ignored. A failed read is reported, because
the journals are in the same database.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.adapters.files.home.layout import HOME_SESSION
from holdfast.adapters.postgres.lists.words import is_storable
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.sqlite.index_rows import (
    COLUMNS,
    PACKED_BYTES_MAX,
    RowKeys,
    reaches,
    standing_of,
    values_of,
)
from holdfast.errors import HoldfastError
from holdfast.ids import ApprovalId, SessionId
from holdfast.ports.index import IndexRow, Standing
from holdfast.ports.journal_store import Heads

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

_log = logging.getLogger("holdfast.postgres")

_ROW = f"select {COLUMNS} from hf.standing"  # noqa: S608  names of ours
_GET = _ROW + " where session = any(%s::text[])"
_PAGE_OF_ALL = _ROW + " where session > %s order by session limit %s"
_PAGE_OF_WAITING = _ROW + " where session > %s and waiting > 0 order by session limit %s"
_BY_TIME = {
    name: f"{_ROW} where {name} > 0 and ({name}, session) > (%s, %s) and {name} <= %s"
    f" order by {name}, session limit %s"
    for name in ("expires_at", "remind_at")
}
_PLACES = {name: COLUMNS.split(", ").index(name) for name in _BY_TIME}
_PUT = (
    "select hf.put_standing(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, "
    "%s::text[], %s::bytea[])"
)
_PAGE_OF_RUNNING = _ROW + " where session > %s and running > 0 order by session limit %s"
# The names first, each part by its own index; then the rows by their key.
_PAGE_OF_DUE = (
    f"{_ROW} where session = any(array("  # noqa: S608  names of ours
    "select session from hf.standing where session > %(after)s and owes > 0 "
    "union select session from hf.standing where session > %(after)s and octet_length(awaits) > 0 "
    "union select session from hf.standing where session > %(after)s "
    "and expires_at > 0 and expires_at <= %(until)s "
    "union select session from hf.standing where session > %(after)s "
    "and remind_at > 0 and remind_at <= %(until)s order by 1 limit %(most)s)) order by session"
)
_UNLISTED = (
    "select h.session from hf.moved m cross join lateral "
    "(select * from hf.head where journal = m.journal offset 0) h "  # as in home/heads.py
    "where m.listed < m.seq and not h.ended and h.session <> %s order by 1"
)
COMPARE_SECONDS = 600.0  # reading every row costs about a second for 100,000 sessions
_EVER = 2**62
_LAST_NAME = "\U0010ffff"  # after any session's
_PAGE_ROWS = 1024  # read at once: a round trip is worth many rows


class PostgresIndex:
    """The index of one home."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store
        self._keys = RowKeys(store.index_keys)
        self._compared_at = -COMPARE_SECONDS  # when all rows were last compared

    # --- Writing

    async def put(self, row: IndexRow, approvals: Sequence[ApprovalId] = ()) -> None:
        values = values_of(row, self._keys.newest)
        if values is None:
            _log.warning(
                "the index keeps no row for %s: it is larger than %d bytes",
                row.session,
                PACKED_BYTES_MAX,
            )
            for approval in approvals:
                await self.put_approval(approval, row.session)
            return
        names = list(approvals)
        macs = [self._keys.approval_mac(name, row.session) for name in names]

        def work(wire: Wire) -> None:
            """The row with the higher seq wins, in any order, if it verifies."""
            if wire.rows(_PUT, (*values, False, names, macs))[0][0]:
                return
            found = wire.one(_GET, ([row.session],))
            if found is None or not self._keys.verifies(found):
                wire.rows(_PUT, (*values, True, [], []))

        await self._try(work)

    async def put_approval(self, approval: ApprovalId, session: SessionId) -> None:
        mac = self._keys.approval_mac(approval, session)
        await self._try(
            lambda wire: wire.rows(
                "select hf.put_belongs(%s, %s::text[], %s::bytea[])", (session, [approval], [mac])
            )
        )

    async def forget(self, session: SessionId) -> None:
        await self._try(lambda wire: wire.rows("select hf.forget_standing(%s)", (session,)))

    async def _try(self, work: Any) -> None:
        try:
            await self._store.in_thread(work)
        except HoldfastError as exc:
            _log.warning("the index was not written: %s", exc)

    # --- Reading

    async def get(self, session: SessionId) -> IndexRow | None:
        return (await self.get_many([session])).get(session)

    async def get_many(self, sessions: Sequence[SessionId]) -> Mapping[SessionId, IndexRow]:
        known = [each for each in sessions if is_storable(each)]
        found = await self._fetch(_GET, ([*known],)) if known else []
        rows = [self._keys.believed(each) for each in found]
        return {row.session: row for row in rows if row is not None}

    async def rows(
        self,
        *,
        after: SessionId | None = None,
        limit: int | None = None,
        only_waiting: bool = False,
    ) -> AsyncIterator[IndexRow]:
        left = _EVER if limit is None else limit
        query = _PAGE_OF_WAITING if only_waiting else _PAGE_OF_ALL
        last = after or ""
        while left > 0 and is_storable(last):
            most = min(left, _PAGE_ROWS)
            page = await self._fetch(query, (last, most))
            for found in page:
                last = found[0]
                row = self._keys.believed(found)
                if row is not None:
                    yield row
                    left -= 1
            if len(page) < most:
                return

    async def prompting(self) -> AsyncIterator[Sequence[Standing]]:
        async for page in self._pages(_PAGE_OF_WAITING):
            yield [standing_of(found) for found in self._keys.verified(page)]

    async def due(self, *, until: int) -> AsyncIterator[Sequence[Standing]]:
        last = ""
        while page := await self._due_after(last, until):
            yield [standing_of(each) for each in self._keys.verified(page)]
            last = page[-1][0]
            if len(page) < _PAGE_ROWS:
                return

    async def _due_after(self, last: str, until: int) -> list[tuple[Any, ...]]:
        values = {"after": last, "until": until, "most": _PAGE_ROWS}
        return await self._store.in_thread(lambda wire: wire.rows(_PAGE_OF_DUE, values))

    async def with_jobs(self) -> AsyncIterator[IndexRow]:
        async for page in self._pages(_PAGE_OF_RUNNING):
            for found in page:
                if (row := self._keys.believed(found)) is not None:
                    yield row

    async def _pages(self, query: str) -> AsyncIterator[list[tuple[Any, ...]]]:
        last = ""
        while page := await self._fetch(query, (last, _PAGE_ROWS)):
            yield page
            last = page[-1][0]
            if len(page) < _PAGE_ROWS:
                return

    async def session_of(self, approval: ApprovalId) -> SessionId | None:
        if not is_storable(approval):
            return None
        found = await self._fetch(
            "select session, mac from hf.belongs where approval = %s", (approval,)
        )
        if not found or self._keys.approval_mac(approval, found[0][0]) != found[0][1]:
            return None
        return SessionId(found[0][0])

    async def behind(self, heads: Callable[[], Awaitable[Heads]]) -> Sequence[SessionId]:
        """
        The sessions whose row is behind, by the rows of `moved`. At first and every ten minutes,
        all rows are compared: one that a superuser changed or removed is found then.
        """
        now = time.monotonic()
        if now - self._compared_at < COMPARE_SECONDS:
            unlisted = await self._fetch(_UNLISTED, (HOME_SESSION,))
            return [SessionId(name) for (name,) in unlisted]
        before, self._compared_at = self._compared_at, now  # others go on with the rows of `moved`
        try:
            return await self.stale(await heads())
        except BaseException:
            self._compared_at = before
            raise

    async def stale(self, heads: Heads) -> Sequence[SessionId]:
        known: dict[str, tuple[str, int]] = {}
        async for page in self._pages(_PAGE_OF_ALL):
            known.update({each[0]: (each[1], each[2]) for each in self._keys.verified(page)})
        return [
            session
            for session, instance, seq in heads
            if not reaches(known.get(session), instance, seq)
        ]

    async def next_reminder(self, *, after: int) -> int | None:
        return await self._next("remind_at", after)

    async def next_expiry(self, *, after: int) -> int | None:
        return await self._next("expires_at", after)

    async def _next(self, column: str, after: int) -> int | None:
        found = await self._by_time(column, after, _EVER, most=1)
        return found[0][0] if found else None

    async def reminding(self, *, after: int, until: int) -> Sequence[SessionId]:
        found = await self._by_time("remind_at", after, until, most=None)
        return [session for _, session in found]

    async def _by_time(
        self, column: str, after: int, until: int, *, most: int | None
    ) -> list[tuple[int, SessionId]]:
        """
        Rows in the order of that column. A row that does not verify wakes nobody; the next check
        for stale rows opens its session.
        """
        place = _PLACES[column]
        found: list[tuple[int, SessionId]] = []
        last: tuple[int, str] = (after, _LAST_NAME)
        rows = _PAGE_ROWS if most is None else most
        while most is None or len(found) < most:
            page = await self._fetch(_BY_TIME[column], (*last, until, rows))
            found += [(each[place], SessionId(each[0])) for each in self._keys.verified(page)]
            if len(page) < rows:
                break
            last = page[-1][place], page[-1][0]
        return found

    async def _fetch(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return await self._store.in_thread(lambda wire: wire.rows(query, values))

    def close(self) -> None:
        """The store closes the connections."""
