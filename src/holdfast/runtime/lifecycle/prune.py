"""
Letting go of sessions that `[retention]` calls old. The index says who may be; the journal decides,
and again at the moment of going.

A session goes only when nothing is open, queued, waiting or owed in it, when it is not sealed, and
when nobody has written to it since it was looked at. Each deletion is a record of the home's
journal.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import Busy, HoldfastError, Refused
from holdfast.ids import SessionId
from holdfast.runtime.service import Service
from holdfast.session.react import react, unsettled
from holdfast.session.state import SessionState

_BREATH = 64  # rows between two moments in which others go on


class Old(NamedTuple):
    """A session that may go as long as this is its last record."""

    session: SessionId
    seq: int


async def old_sessions(
    service: Service, *, before_ms: int, most: int | None = None
) -> Sequence[Old]:
    """Those in which nothing happened since `before_ms`; at most so many."""
    await service.owing()  # what the index had missed, it knows now
    found: list[Old] = []
    for number, row in enumerate(service.world.index.rows()):
        if number % _BREATH == 0:
            await asyncio.sleep(0)
        if row.updated_at >= before_ms or row.approvals or row.owes:
            continue
        old = await _if_old(service, row.session, before_ms)
        found += [old] if old is not None else []
        if len(found) == most:
            break
    return found


async def _if_old(service: Service, session: SessionId, before_ms: int) -> Old | None:
    try:
        async with service.shelf.use(session) as ledger:
            if ledger.only_read is not None or ledger.journal.sealed is not None:
                return None
            await ledger.refresh()
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


async def let_go(service: Service, sessions: Sequence[Old], *, by: str) -> list[SessionId]:
    """
    Returns those that are gone. One that somebody writes to, or that is gone already, is left
    alone.
    """
    gone: list[SessionId] = []
    for old in sessions:
        try:
            await service.world.store.delete(old.session, by=by, at_seq=old.seq)
        except (Busy, Refused):
            continue
        service.world.index.forget(old.session)
        gone.append(old.session)
    return gone
