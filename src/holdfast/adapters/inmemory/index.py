"""The index in memory: a plain dict, and the reference for `holdfast.ports.index`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import msgspec

from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.ports.index import IndexRow, Standing
from holdfast.ports.journal_store import Heads


class InMemoryIndex:
    """
    Share one object between the stores of one disk to simulate several processes on one home. Drop
    it to simulate its deletion.
    """

    def __init__(self) -> None:
        self._rows: dict[SessionId, IndexRow] = {}
        self._sessions: dict[ApprovalId, SessionId] = {}

    async def put(self, row: IndexRow, approvals: Sequence[ApprovalId] = ()) -> None:
        known = self._rows.get(row.session)
        if known is None or known.instance != row.instance or known.seq <= row.seq:
            self._rows[row.session] = row
        self._sessions.update(dict.fromkeys(approvals, row.session))

    async def put_approval(self, approval: ApprovalId, session: SessionId) -> None:
        self._sessions[approval] = session

    async def forget(self, session: SessionId) -> None:
        self._rows.pop(session, None)
        self._sessions = {
            approval: named for approval, named in self._sessions.items() if named != session
        }

    async def get(self, session: SessionId) -> IndexRow | None:
        return self._rows.get(session)

    async def get_many(self, sessions: Sequence[SessionId]) -> Mapping[SessionId, IndexRow]:
        return {name: self._rows[name] for name in sessions if name in self._rows}

    async def rows(
        self,
        *,
        after: SessionId | None = None,
        limit: int | None = None,
        only_waiting: bool = False,
    ) -> AsyncIterator[IndexRow]:
        names = sorted(
            name
            for name, row in self._rows.items()
            if (after is None or name > after) and (row.approvals or not only_waiting)
        )
        for name in names[:limit]:
            row = self._rows.get(name)
            if row is not None:
                yield row

    async def prompting(self) -> AsyncIterator[Sequence[Standing]]:
        yield [_standing(row) for _, row in sorted(self._rows.items()) if row.approvals]

    async def due(self, *, until: int) -> AsyncIterator[Sequence[Standing]]:
        yield [
            _standing(row)
            for _, row in sorted(self._rows.items())
            if row.owes
            or row.awaits
            or any(at is not None and at <= until for at in (row.expires_at, row.remind_at))
        ]

    async def with_jobs(self) -> AsyncIterator[IndexRow]:
        for _, row in sorted(self._rows.items()):
            if row.jobs:
                yield row

    async def session_of(self, approval: ApprovalId) -> SessionId | None:
        return self._sessions.get(approval)

    async def behind(self, heads: Callable[[], Awaitable[Heads]]) -> Sequence[SessionId]:
        return await self.stale(await heads())

    async def stale(self, heads: Heads) -> Sequence[SessionId]:
        return [
            session for session, instance, seq in heads if not self._reaches(session, instance, seq)
        ]

    def _reaches(self, session: SessionId, instance: InstanceId, seq: int) -> bool:
        known = self._rows.get(session)
        return known is not None and known.instance == instance and known.seq >= seq

    async def next_reminder(self, *, after: int) -> int | None:
        return min(
            (
                row.remind_at
                for row in self._rows.values()
                if row.remind_at is not None and row.remind_at > after
            ),
            default=None,
        )

    async def reminding(self, *, after: int, until: int) -> Sequence[SessionId]:
        due = [
            (row.remind_at, name)
            for name, row in self._rows.items()
            if row.remind_at is not None and after < row.remind_at <= until
        ]
        return [name for _, name in sorted(due)]

    async def next_expiry(self, *, after: int) -> int | None:
        return min(
            (
                row.expires_at
                for row in self._rows.values()
                if row.expires_at is not None and row.expires_at > after
            ),
            default=None,
        )

    def close(self) -> None:
        """Do nothing: no resources are held."""


def _standing(row: IndexRow) -> Standing:
    prompts = msgspec.json.encode(row.approvals) if row.approvals else b""
    return Standing(
        row.session,
        row.instance,
        row.seq,
        row.owes,
        row.expires_at,
        prompts,
        row.remind_at,
        row.awaits,
    )
