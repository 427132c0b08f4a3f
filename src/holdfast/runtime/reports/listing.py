"""
Lists, without opening journals: from the index, whose rows are believed only if they verify and are
as new as their journal's head.

Sessions that the index does not know well enough are opened, indexed and closed again, one at a
time: memory stays bounded, and a crash between append and index loses nothing. A session whose lock
is held is listed as the index knows it, and as busy: a list waits no longer than its
`LockWaitBudget`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from holdfast.errors import Busy, HoldfastError, ReadOnly, Refused, Untrusted
from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.ports.index import IndexRow, Standing
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.reports.builder import session_report
from holdfast.runtime.reports.index_writer import SEALED, note
from holdfast.runtime.reports.lock_budget import LockWaitBudget, busy_report
from holdfast.runtime.reports.prompt_history import prompts_ever
from holdfast.runtime.reports.types import (
    ApprovalReport,
    BusyReport,
    ReminderReport,
    SealedReport,
    iso,
)
from holdfast.session.home.events import SessionSealed
from holdfast.session.state import Phase, Reader

_decode_report = msgspec.json.Decoder(ApprovalReport).decode
_decode_reminder = msgspec.json.Decoder(ReminderReport).decode
_decode_reports = msgspec.json.Decoder(tuple[ApprovalReport, ...]).decode


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
    preview: str = ""
    parent: SessionId | None = None  # the session that a delegate works for
    # Another process holds its write lock; the rest is the older state in the index.
    busy: BusyReport | None = None
    updated_at: str | None = None  # the time of its last indexed record


async def _survey(world: World, shelf: OpenSessions, patience: LockWaitBudget) -> list[Standing]:
    """
    The state of every existing session, sorted, as new as the journals. A session that the index
    does not know well enough is opened and indexed.

    A busy session is listed as the index knew it, if it did.
    """
    heads = await world.store.heads()
    known: dict[SessionId, Standing] = {}
    for page in world.index.survey():
        known.update({each.session: each for each in page})
        await asyncio.sleep(0)  # let other tasks run: there may be tens of thousands
    found: list[Standing] = []
    for session, instance, seq in heads:
        standing = known.get(session)
        if standing is None or standing.instance != instance or standing.seq < seq:
            before = standing if standing is not None and standing.instance == instance else None
            standing = await _noted(world, shelf, session, patience, before)
        if standing is not None:
            found.append(standing)
    return found


async def _noted(
    world: World,
    shelf: OpenSessions,
    session: SessionId,
    patience: LockWaitBudget,
    before: Standing | None,
) -> Standing | None:
    """
    Index one session and return its state. Return None for a sealed or unreadable one: `sessions`
    shows it as such, never from a stale row. For a busy session return the stale row, since nothing
    else is available.
    """
    if await patience.busy(session) is not None:
        return before
    try:
        row = await _note_one(world, shelf, session)
    except HoldfastError as exc:
        if patience.caught(session, exc):
            return before
        if (
            exc.code == "no_key"
            # Without the key no session can be read, and an empty list would claim that nothing
            # waits.
        ):
            raise
        world.index.forget(session)
        return None
    if row is None:
        return None
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


async def _note_one(world: World, shelf: OpenSessions, session: SessionId) -> IndexRow | None:
    """Index the session by its journal; return None if it is sealed."""
    if (ledger := shelf.get(session)) is not None and ledger.journal.sealed is None:
        await ledger.refresh()
        return note(world, ledger)
    try:
        ledger = await Ledger.open(await world.store.open(session))
    except ReadOnly as why:
        ledger = await Ledger.read_only(await world.store.open(session), why)
    try:
        return note(world, ledger) if ledger.journal.sealed is None else None
    finally:
        await ledger.close()


async def owing(
    world: World,
    shelf: OpenSessions,
    *,
    sealed: Collection[SessionId] = (),
    patience: LockWaitBudget | None = None,
) -> Sequence[SessionId]:
    patience = patience or LockWaitBudget(world.store)
    for session in await world.store.unsettled():
        # The only change may be an answer that was written and never acknowledged: no head shows
        # it.
        with suppress(HoldfastError):
            if await patience.busy(session) is None:
                await _note_one(world, shelf, session)
    now = world.now_ms()
    standing = await _survey(world, shelf, patience)
    living = {each.session: each.instance for each in standing}
    return [
        each.session
        for each in standing
        if _is_due(each, now) or _awaits_in_vain(each, living, sealed)
    ]


def _is_due(standing: Standing, now: int) -> bool:
    return standing.owes or any(
        at is not None and at <= now for at in (standing.expires_at, standing.remind_at)
    )


def _awaits_in_vain(
    standing: Standing, living: Mapping[SessionId, InstanceId], sealed: Collection[SessionId]
) -> bool:
    """
    Whether it waits for a delegate that was deleted, sealed or replaced by another instance. Only
    opening the session settles that.
    """
    return any(
        living.get(session) != instance or session in sealed
        for session, instance in standing.awaits
    )


def with_jobs(world: World) -> Sequence[SessionId]:
    """Sessions whose jobs run, or ran at the last check. Up to date after `owing`."""
    return [row.session for row in world.index.rows() if row.jobs and row.phase != SEALED]


Sees = Callable[[Collection[Reader]], bool]
"""Whether a person may know of a session, from its participants."""


async def sessions(
    world: World,
    shelf: OpenSessions,
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
    may read everything in it; otherwise the preview is left out.
    """
    found: list[SessionLine] = []
    now, patience = world.now_ms(), LockWaitBudget(world.store)
    while page := await world.store.heads(after=after, limit=limit):
        rows = await _fresh_rows(world, shelf, page, patience)
        for head in page:
            after = head[0]
            row, mark = rows.get(after), sealed.get(after)
            readers = () if sees is None else await _taking_part(shelf, after, row, patience)
            if sees is None or sees(readers):
                line = (
                    _sealed_line(mark, row)
                    if mark is not None
                    else await _living_line(shelf, head, row, now, patience)
                )
                found.append(
                    line
                    if reads_all is None or reads_all(readers)
                    else msgspec.structs.replace(line, preview="")
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
        preview=row.preview if row is not None else "",
        updated_at=_updated_at(row),
        parent=row.parent if row is not None else None,
    )


def _updated_at(row: IndexRow | None) -> str | None:
    return iso(row.updated_at) if row is not None else None


async def _taking_part(
    shelf: OpenSessions, session: SessionId, row: IndexRow | None, patience: LockWaitBudget
) -> Collection[Reader]:
    """The participants. For a busy session that the index does not know, they are unknown."""
    if row is not None:
        return row.readers
    return await readers_of(shelf, session) if await patience.busy(session) is None else ()


async def _living_line(
    shelf: OpenSessions,
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
            line = await _opened_line(shelf, session, row, now, patience)
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
_ONE_BY_ONE = 256  # rows are read one by one for a page, and all at once for a long list


async def _fresh_rows(
    world: World,
    shelf: OpenSessions,
    heads: Sequence[tuple[SessionId, InstanceId, int]],
    patience: LockWaitBudget,
) -> dict[SessionId, IndexRow]:
    """
    The rows of these sessions, as new as their journals. A row that is unavailable (sealed,
    unreadable) is missing; the row of a busy session is the old one.
    """
    if len(heads) > _ONE_BY_ONE:
        known = {row.session: row for row in world.index.rows()}
    else:
        known = {
            session: row for session, _, _ in heads if (row := world.index.get(session)) is not None
        }
    for session, instance, seq in heads:
        row = known.get(session)
        if row is None or row.instance != instance or row.seq < seq:
            if row is not None and row.instance != instance:
                del known[session]
            if await patience.busy(session) is not None:
                continue
            try:
                await _note_one(world, shelf, session)
            except HoldfastError as exc:
                if not patience.caught(session, exc):
                    world.index.forget(session)
                    known.pop(session, None)
                continue
            known.pop(session, None)
            if (noted := world.index.get(session)) is not None:
                known[session] = noted
    return known


async def _opened_line(
    shelf: OpenSessions,
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
        async with shelf.use(session) as ledger:
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
        preview=row.preview if row is not None else "",
        updated_at=_updated_at(row),
        parent=report.parent.session if report.parent is not None else None,
    )


async def readers_of(shelf: OpenSessions, session: SessionId) -> Collection[Reader]:
    """The participants, up to the head; for a sealed session, as far as it verifies."""
    async with shelf.use(session) as ledger:
        if ledger.journal.sealed is None:
            await ledger.refresh()
        return ledger.state.readers


async def is_seen(world: World, shelf: OpenSessions, session: SessionId, sees: Sees) -> bool:
    """
    Whether the session exists for this reader. Participants are only added within one instance, so
    cached participants can prove access; only the journal can disprove it.
    """
    instance = await world.store.current(session)
    if instance is None:
        return False
    if (
        (ledger := shelf.get(session)) is not None
        and ledger.instance == instance
        and sees(ledger.state.readers)
    ):
        return True
    row = world.index.get(session)
    if row is not None and row.instance == instance and sees(row.readers):
        return True
    return sees(await readers_of(shelf, session))


def _line(row: IndexRow, now: int) -> SessionLine:
    waiting = len(row.approvals)
    if row.expires_at is not None and row.expires_at <= now:
        waiting = sum(_ms(_decode_report(each).expires_at) > now for each in row.approvals)
    return SessionLine(
        session=row.session,
        instance=row.instance,
        phase=row.phase,
        seq=row.seq,
        turns=row.turns,
        waiting=waiting,
        preview=row.preview,
        updated_at=_updated_at(row),
        parent=row.parent,
    )


async def approvals(
    world: World,
    shelf: OpenSessions,
    *,
    for_: str | None,
    everything: bool,
    patience: LockWaitBudget | None = None,
) -> tuple[ApprovalReport, ...]:
    """Return the open prompts; with `everything`, every prompt there ever was."""
    patience = patience or LockWaitBudget(world.store)
    if everything:
        found = [each async for story in _histories(world, patience) for each in story.values()]
    else:
        now = world.now_ms()
        found = [
            each
            for standing in await _survey(world, shelf, patience)
            for each in _waiting(standing, now)
        ]
    return tuple(each for each in found if for_ is None or for_ in each.may_answer)


async def approvals_json(
    world: World, shelf: OpenSessions, *, patience: LockWaitBudget | None = None
) -> msgspec.Raw:
    """
    Like `approvals`, as one JSON array, from the rows' own bytes: ten thousand prompts are not
    decoded and encoded again.
    """
    now = world.now_ms()
    found: list[bytes] = []
    for standing in await _survey(world, shelf, patience or LockWaitBudget(world.store)):
        if standing.expires_at is not None and standing.expires_at <= now:
            found += [msgspec.json.encode(each) for each in _waiting(standing, now)]
        elif standing.prompts:
            found.append(standing.prompts[1:-1])
    return msgspec.Raw(b"[" + b",".join(found) + b"]")


def _waiting(standing: Standing, now: int) -> Sequence[ApprovalReport]:
    """The session's prompts that have not expired."""
    if not standing.prompts:
        return ()
    reports = _decode_reports(standing.prompts)
    if standing.expires_at is None or standing.expires_at > now:
        return reports
    return [each for each in reports if _ms(each.expires_at) > now]


async def reminders(
    world: World, shelf: OpenSessions, *, patience: LockWaitBudget | None = None
) -> tuple[ReminderReport, ...]:
    """
    The active reminders of all sessions, the next one first. None comes from a row behind its
    journal, unless its session is busy.
    """
    living = {
        each.session
        for each in await _survey(world, shelf, patience or LockWaitBudget(world.store))
    }
    rows = (world.index.get(session) for session in world.index.reminding(after=0, until=_EVER))
    found = [
        _decode_reminder(raw)
        for row in rows
        if row is not None and row.session in living
        for raw in row.reminders
    ]
    return tuple(sorted(found, key=lambda each: (each.next_at, each.session, each.id)))


_EVER = 2**62


def _ms(iso_text: str) -> int:
    return int(datetime.fromisoformat(iso_text).timestamp() * 1000)


async def session_of(world: World, shelf: OpenSessions, approval: ApprovalId) -> SessionId | None:
    """
    The session of a prompt; only whole ids are known. The index decides.

    It knows every prompt of a session whose history was entered and whose row is as new as the
    journal. If it does not, because it was deleted, is behind or was never written, that session's
    journal is read once and entered, so the next miss reads no journal.
    """
    if (known := world.index.session_of(approval)) is not None and await world.store.current(
        known
    ) is not None:
        return known
    patience = LockWaitBudget(world.store)
    await _enter_histories(world, shelf, patience)
    if (known := world.index.session_of(approval)) is not None and await world.store.current(
        known
    ) is not None:
        return known
    for session in await world.store.unsettled():
        if (busy := patience.found.get(session)) is not None:
            raise busy  # the prompt may be there: a denial needs a complete search
    return None


async def _enter_histories(world: World, shelf: OpenSessions, patience: LockWaitBudget) -> None:
    """Enter every prompt of each session that the index may not know completely."""
    heads = await world.store.heads()
    behind, unsettled = set(world.index.stale(heads)), frozenset(await world.store.unsettled())
    sealed: Collection[SessionId] = ()
    with suppress(HoldfastError):  # a home that can only be read still lists its prompts
        sealed = await world.store.seals()
    for session, instance, _ in heads:
        entered = world.index.session_of(_entered(session, instance)) == session
        if entered and session not in unsettled and (session not in behind or session in sealed):
            continue
        if session in unsettled and await patience.busy(session) is not None:
            continue
        # Found damaged just now, and sealed; the next miss enters the records that verify.
        with suppress(Untrusted):
            for approval in await prompts_ever(world, session):
                world.index.put_approval(approval, session)
        world.index.put_approval(_entered(session, instance), session)
    if behind or unsettled:
        await _survey(world, shelf, patience)


def _entered(session: SessionId, instance: InstanceId) -> ApprovalId:
    """
    An id that no prompt has. Stored beside prompts, it says that all prompts of that instance were
    entered.
    """
    return ApprovalId(f"entered {session} {instance}")


async def approval(world: World, shelf: OpenSessions, wanted: ApprovalId) -> ApprovalReport:
    session = await session_of(world, shelf, wanted)
    found = (await prompts_ever(world, session)).get(wanted) if session is not None else None
    if found is None and session is not None:
        async with shelf.use(session) as ledger:
            if ledger.journal.sealed is not None:
                _ = ledger.attempt  # raises the reason: the prompt may lie past the damage
    if found is None:
        raise Refused(
            f"there is no approval {wanted}",
            code="unknown",
            hint="`holdfast approvals list` shows what waits",
        )
    return found


async def _histories(
    world: World, patience: LockWaitBudget
) -> AsyncIterator[dict[ApprovalId, ApprovalReport]]:
    """
    Every prompt of every session. A journal is read without its lock up to the last acknowledged
    record; one with later records is read only if its lock is free.
    """
    unsettled = frozenset(await world.store.unsettled())
    for session in await world.store.sessions():
        if session not in unsettled or await patience.busy(session) is None:
            yield await prompts_ever(world, session)
