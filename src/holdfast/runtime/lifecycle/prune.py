"""
Delete sessions that `[retention]` calls old. The index names the candidates; the journal decides,
and again at the moment of deletion.

A session is deleted only if nothing is open, queued, waiting or owed in it, if it is not sealed,
and if nothing was written to it since the check. Each deletion is a record of the home's journal.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import Busy, HoldfastError, Refused
from holdfast.ids import SessionId
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.verbs.resume import owing
from holdfast.session.react import react, unsettled
from holdfast.session.state import SessionState

_BREATH = 64  # rows between two moments in which other tasks run


class Old(NamedTuple):
    """A session that may be deleted as long as this is its last record."""

    session: SessionId
    seq: int


async def old_sessions(
    runtime: Runtime, *, before_ms: int, most: int | None = None
) -> Sequence[Old]:
    """Return sessions without a record since `before_ms`, at most `most`."""
    await owing(runtime)  # brings the index up to date
    found: list[Old] = []
    number = 0
    async for row in runtime.world.index.rows():
        number += 1
        if number % _BREATH == 0:
            await asyncio.sleep(0)
        if row.updated_at >= before_ms or row.approvals or row.owes:
            continue
        old = await _if_old(runtime, row.session, before_ms)
        found += [old] if old is not None else []
        if len(found) == most:
            break
    return found


async def _if_old(runtime: Runtime, session: SessionId, before_ms: int) -> Old | None:
    try:
        async with runtime.sessions.use(session) as ledger:
            if ledger.only_read is not None or ledger.journal.sealed is not None:
                return None
            await ledger.catch_up()
            return (
                Old(session, ledger.folded_seq)
                if _is_idle(ledger.state) and ledger.state.at < before_ms
                else None
            )
    except HoldfastError:
        return None


def _is_idle(state: SessionState) -> bool:
    return not (
        state.turns
        or state.queued
        or state.jobs
        or state.deliveries
        or state.reminders
        or state.delegates
        or react(state)
        or unsettled(state)
    )


async def delete_old(runtime: Runtime, sessions: Sequence[Old], *, by: str) -> list[SessionId]:
    """
    Delete these sessions; return the deleted ones. A session that is being written to, or is gone
    already, is skipped.
    """
    gone: list[SessionId] = []
    for old in sessions:
        try:
            await runtime.world.store.delete(old.session, by=by, at_seq=old.seq)
        except (Busy, Refused):
            continue
        await runtime.world.index.forget(old.session)
        gone.append(old.session)
    return gone
