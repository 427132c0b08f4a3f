"""
Lists of sessions, without opening journals: from index rows that verify (see survey.py).

A session whose lock is held is listed as the index knows it, and as busy: a list waits no longer
than its `LockWaitBudget`.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from holdfast.errors import Busy, HoldfastError, NewerVersion, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.index import IndexRow
from holdfast.runtime.context import World
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.reports.announcer import SEALED
from holdfast.runtime.reports.builder import session_report
from holdfast.runtime.reports.lock_budget import LockWaitBudget, busy_report
from holdfast.runtime.reports.survey import index_session, unix_ms
from holdfast.runtime.reports.types import (
    ApprovalReport,
    BusyReport,
    SealedReport,
    SessionReport,
    iso,
)
from holdfast.runtime.runtime import Runtime
from holdfast.session.home.events import SessionSealed
from holdfast.session.state import Phase, Reader

_decode_report = msgspec.json.Decoder(ApprovalReport).decode


class SessionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a list; what it shares with SessionReport has the same names and types."""

    session: SessionId
    instance: str
    phase: str
    seq: int
    sealed: SealedReport | None = None
    turns: int = 0
    waiting: int = 0
    owes: tuple[str, ...] = ()
    title: str = ""  # from the first message, or given by a person
    preview: str = ""
    parent: SessionId | None = None  # the session that a delegate works for
    # Another process holds its write lock; the rest is the older state in the index.
    busy: BusyReport | None = None
    updated_at: str | None = None  # the time of its last indexed record


Sees = Callable[[Collection[Reader]], bool]
"""Whether a person may know of a session, from its participants."""


async def sessions(
    world: World,
    opened: OpenSessions,
    *,
    sealed: Mapping[SessionId, SessionSealed],
    after: SessionId | None = None,
    limit: int | None = None,
    sees: Sees | None = None,
    reads_all: Sees | None = None,
) -> tuple[SessionLine, ...]:
    """
    Return one page of sessions, or all. The cost of a page does not depend on the total number.

    `sees` decides whether the reader may know of a session. `reads_all` decides whether the reader
    may read everything in it; otherwise title and preview are left out.
    """
    found: list[SessionLine] = []
    now, patience = world.now_ms(), LockWaitBudget(world.store)
    while page := await world.store.heads(after=after, limit=limit):
        rows = await _fresh_rows(world, opened, page, patience)
        for head in page:
            after = head[0]
            row, mark = rows.get(after), sealed.get(after)
            readers = () if sees is None else await _taking_part(opened, after, row, patience)
            if sees is None or sees(readers):
                line = (
                    _sealed_line(mark, row)
                    if mark is not None
                    else await _living_line(opened, head, row, now, patience)
                )
                found.append(
                    line
                    if reads_all is None or reads_all(readers)
                    else msgspec.structs.replace(line, preview="", title="")
                )
            if len(found) == limit:
                return tuple(found)
        if limit is None or len(page) < limit:
            break
    return tuple(found)


def _sealed_line(mark: SessionSealed, row: IndexRow | None) -> SessionLine:
    """
    Build the line from the home's journal. The mark is durable there, whatever the row says, and no
    journal is opened.
    """
    return SessionLine(
        session=mark.session,
        instance=mark.instance,
        phase=SEALED,
        seq=row.seq if row is not None else mark.at_seq or 0,
        sealed=SealedReport(mark.code, mark.detail, mark.at_seq),
        turns=row.turns if row is not None else 0,
        title=row.title if row is not None else "",
        preview=row.preview if row is not None else "",
        updated_at=_updated_at(row),
        parent=row.parent if row is not None else None,
    )


def _updated_at(row: IndexRow | None) -> str | None:
    return iso(row.updated_at) if row is not None else None


async def _taking_part(
    opened: OpenSessions, session: SessionId, row: IndexRow | None, patience: LockWaitBudget
) -> Collection[Reader]:
    """The participants. For a busy session that the index does not know, they are unknown."""
    if row is not None:
        return row.readers
    return await readers_of(opened, session) if await patience.busy(session) is None else ()


async def _living_line(
    opened: OpenSessions,
    head: tuple[SessionId, InstanceId, int],
    row: IndexRow | None,
    now: int,
    patience: LockWaitBudget,
) -> SessionLine:
    session = head[0]
    if session not in patience.found:
        if row is not None and row.phase in _AT_REST and not row.owes:
            return _line(row, now)
        if await patience.busy(session) is None:
            line = await _opened_line(opened, session, row, now, patience)
            if line is not None:
                return line
    return _busy_line(head, row, now, patience.found[session])


def _busy_line(
    head: tuple[SessionId, InstanceId, int], row: IndexRow | None, now: int, busy: Busy
) -> SessionLine:
    """The state in the index, up to the last acknowledged record, and the writer."""
    session, instance, seq = head
    line = (
        _line(row, now)
        if row is not None
        else SessionLine(session=session, instance=instance, phase="busy", seq=seq)
    )
    return msgspec.structs.replace(line, seq=seq, busy=busy_report(busy))


_AT_REST = frozenset({"idle", Phase.PARKED.value})
"""
The phases for which a row alone is enough: in any other phase the driver may have died since the
row was written.
"""
_NAMED_MAX = 256  # the rows of a page are read by name, and those of a long list in order


async def _fresh_rows(
    world: World,
    opened: OpenSessions,
    heads: Sequence[tuple[SessionId, InstanceId, int]],
    patience: LockWaitBudget,
) -> dict[SessionId, IndexRow]:
    """
    The rows of these sessions, as new as their journals. A row that is unavailable (sealed,
    unreadable) is missing; the row of a busy session is the old one.
    """
    if len(heads) > _NAMED_MAX:
        known = {row.session: row async for row in world.index.rows()}
    else:
        known = dict(await world.index.get_many([session for session, _, _ in heads]))
    for session, instance, seq in heads:
        row = known.get(session)
        if row is None or row.instance != instance or row.seq < seq:
            if row is not None and row.instance != instance:
                del known[session]
            if await patience.busy(session) is not None:
                continue
            try:
                await index_session(world, opened, session)
            except HoldfastError as exc:
                if not patience.caught(session, exc):
                    await world.index.forget(session)
                    known.pop(session, None)
                continue
            known.pop(session, None)
            if (noted := await world.index.get(session)) is not None:
                known[session] = noted
    return known


async def _opened_line(
    opened: OpenSessions,
    session: SessionId,
    row: IndexRow | None,
    now: int,
    patience: LockWaitBudget,
) -> SessionLine | None:
    """
    Open a session that owes work, is sealed, or cannot be read: there are few, and the index does
    not know enough of them. Return None if its lock was taken just now.
    """
    try:
        async with opened.use(session) as ledger:
            report = await session_report(ledger, now=now)
    except HoldfastError as exc:
        if patience.caught(session, exc):
            return None
        return SessionLine(
            session=session,
            instance="",
            phase=SEALED if isinstance(exc, Untrusted) else "unreadable",
            seq=0,
        )
    return SessionLine(
        session=session,
        instance=report.instance,
        phase=report.phase,
        seq=report.seq,
        sealed=report.sealed,
        turns=report.turns,
        waiting=report.waiting,
        owes=report.owes,
        title=report.title,
        preview=row.preview if row is not None else "",
        updated_at=_updated_at(row),
        parent=report.parent.session if report.parent is not None else None,
    )


async def show_session(runtime: Runtime, session: SessionId) -> SessionReport:
    async with runtime.sessions.use(session) as ledger:
        if ledger.journal.sealed is None and not ledger.driving:
            # A record of a newer version can't be folded. The report is of the records before it.
            with contextlib.suppress(NewerVersion):
                await ledger.catch_up_if_behind()
        return await session_report(ledger, now=runtime.world.clock.now_ms())


async def readers_of(opened: OpenSessions, session: SessionId) -> Collection[Reader]:
    """The participants, up to the head; for a sealed session, as far as it verifies."""
    async with opened.use(session) as ledger:
        if ledger.journal.sealed is None:
            await ledger.catch_up()
        return ledger.state.readers


async def is_seen(world: World, opened: OpenSessions, session: SessionId, sees: Sees) -> bool:
    """
    Whether the session exists for this reader. Participants are only added within one instance, so
    cached participants can prove access; only the journal can disprove it.
    """
    instance = await world.store.current(session)
    if instance is None:
        return False
    if (
        (ledger := opened.get(session)) is not None
        and ledger.instance == instance
        and sees(ledger.state.readers)
    ):
        return True
    row = await world.index.get(session)
    if row is not None and row.instance == instance and sees(row.readers):
        return True
    return sees(await readers_of(opened, session))


def _line(row: IndexRow, now: int) -> SessionLine:
    waiting = len(row.approvals)
    if row.expires_at is not None and row.expires_at <= now:
        waiting = sum(unix_ms(_decode_report(each).expires_at) > now for each in row.approvals)
    return SessionLine(
        session=row.session,
        instance=row.instance,
        phase=row.phase,
        seq=row.seq,
        turns=row.turns,
        waiting=waiting,
        title=row.title,
        preview=row.preview,
        updated_at=_updated_at(row),
        parent=row.parent,
    )
