"""
Find what each session's index row says, without opening journals. Rows are believed only if they
verify and are as new as their journal's head.

Sessions that the index does not know well enough are opened, indexed and closed again, one at a
time: memory stays bounded, and a crash between append and index loses nothing. A survey waits no
longer for locks than its `LockWaitBudget`.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from holdfast.errors import HoldfastError, ReadOnly
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.index import IndexRow, Standing
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.reports.announcer import SEALED, write_row, write_sealed_row
from holdfast.runtime.reports.lock_budget import LockWaitBudget


async def refresh_index(world: World, opened: OpenSessions, patience: LockWaitBudget) -> None:
    """
    Index every session that the index does not know well enough. A busy session keeps its row.
    """
    for session in await world.index.behind(world.store.heads):
        await _note(world, opened, session, patience)


async def prompting(world: World, opened: OpenSessions, patience: LockWaitBudget) -> list[Standing]:
    """
    Every existing session with open prompts, sorted, as new as the journals; a busy one as the
    index knows it.
    """
    await refresh_index(world, opened, patience)
    return await _existing(world, world.index.prompting())


async def _existing(world: World, pages: AsyncIterator[Sequence[Standing]]) -> list[Standing]:
    """Leave out the rows of instances that are over."""
    found: list[Standing] = []
    async for page in pages:
        found += page
        await asyncio.sleep(0)  # let other tasks run: there may be tens of thousands
    living = await world.store.instances([each.session for each in found])
    return [each for each in found if living.get(each.session) == each.instance]


async def _note(
    world: World, opened: OpenSessions, session: SessionId, patience: LockWaitBudget
) -> None:
    """
    Index one session. A sealed one has no prompts then, and an unreadable one no row: `sessions`
    shows it as such, never from a stale row. A busy session keeps its row, since nothing else is
    available.
    """
    if await patience.busy(session) is not None:
        return
    try:
        await index_session(world, opened, session)
    except HoldfastError as exc:
        if patience.caught(session, exc):
            return
        if (
            exc.code == "no_key"
            # Without the key no session can be read, and an empty list would claim that nothing
            # waits.
        ):
            raise
        await world.index.forget(session)


async def index_session(world: World, opened: OpenSessions, session: SessionId) -> IndexRow | None:
    """Index the session by its journal; return None if it is sealed, and mark its row."""
    if (ledger := opened.get(session)) is not None and ledger.journal.sealed is None:
        await ledger.catch_up()
        return await write_row(world, ledger)
    try:
        ledger = await Ledger.open(await world.store.open(session))
    except ReadOnly as why:
        ledger = await Ledger.read_only(await world.store.open(session), why)
    try:
        if ledger.journal.sealed is None:
            return await write_row(world, ledger)
        await write_sealed_row(world, session, ledger.instance)
        return None
    finally:
        await ledger.close()


async def owing(
    world: World,
    opened: OpenSessions,
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
                await index_session(world, opened, session)
    now = world.now_ms()
    await refresh_index(world, opened, patience)
    standing = await _existing(world, world.index.due(until=now))
    living = await world.store.instances([name for each in standing for name, _ in each.awaits])
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


async def with_jobs(world: World) -> Sequence[SessionId]:
    """Sessions whose jobs run, or ran at the last check. Up to date after `owing`."""
    return [row.session async for row in world.index.with_jobs() if row.phase != SEALED]


def unix_ms(iso_text: str) -> int:
    return int(datetime.fromisoformat(iso_text).timestamp() * 1000)
