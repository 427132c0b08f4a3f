"""Lists of open prompts and reminders over all sessions, and the session of one prompt."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress

import msgspec

from holdfast.errors import HoldfastError, Refused, Untrusted
from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.ports.index import Standing
from holdfast.runtime.context import World
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.reports.prompt_history import prompts_ever
from holdfast.runtime.reports.survey import prompting, refresh_index, unix_ms
from holdfast.runtime.reports.types import (
    ApprovalReport,
    ReminderReport,
)

_decode_reminder = msgspec.json.Decoder(ReminderReport).decode


_decode_reports = msgspec.json.Decoder(tuple[ApprovalReport, ...]).decode


async def approvals(
    world: World,
    opened: OpenSessions,
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
            for standing in await prompting(world, opened, patience)
            for each in _waiting(standing, now)
        ]
    return tuple(each for each in found if for_ is None or for_ in each.may_answer)


async def approvals_json(
    world: World, opened: OpenSessions, *, patience: LockWaitBudget | None = None
) -> msgspec.Raw:
    """
    Like `approvals`, as one JSON array, from the rows' own bytes: ten thousand prompts are not
    decoded and encoded again.
    """
    now = world.now_ms()
    found: list[bytes] = []
    for standing in await prompting(world, opened, patience or LockWaitBudget(world.store)):
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
    return [each for each in reports if unix_ms(each.expires_at) > now]


async def reminders(
    world: World, opened: OpenSessions, *, patience: LockWaitBudget | None = None
) -> tuple[ReminderReport, ...]:
    """
    The active reminders of all sessions, the next one first. None comes from a row behind its
    journal, unless its session is busy.
    """
    await refresh_index(world, opened, patience or LockWaitBudget(world.store))
    sessions = await world.index.reminding(after=0, until=_EVER)
    living = await world.store.instances(sessions)
    rows = await world.index.get_many(sessions)
    found: list[ReminderReport] = []
    for session, row in rows.items():
        if living.get(session) == row.instance:
            found += map(_decode_reminder, row.reminders)
    return tuple(sorted(found, key=lambda each: (each.next_at, each.session, each.id)))


_EVER = 2**62


async def session_of(world: World, opened: OpenSessions, approval: ApprovalId) -> SessionId | None:
    """
    The session of a prompt; only whole ids are known. The index decides.

    It knows every prompt of a session whose history was entered and whose row is as new as the
    journal. If it does not, because it was deleted, is behind or was never written, that session's
    journal is read once and entered, so the next miss reads no journal.
    """
    if (known := await world.index.session_of(approval)) is not None and await world.store.current(
        known
    ) is not None:
        return known
    patience = LockWaitBudget(world.store)
    await _enter_histories(world, opened, patience)
    if (known := await world.index.session_of(approval)) is not None and await world.store.current(
        known
    ) is not None:
        return known
    for session in await world.store.unsettled():
        if (busy := patience.found.get(session)) is not None:
            raise busy  # the prompt may be there: a denial needs a complete search
    return None


async def _enter_histories(world: World, opened: OpenSessions, patience: LockWaitBudget) -> None:
    """Enter every prompt of each session that the index may not know completely."""
    heads = await world.store.heads()
    behind, unsettled = (
        set(await world.index.stale(heads)),
        frozenset(await world.store.unsettled()),
    )
    sealed: Collection[SessionId] = ()
    with suppress(HoldfastError):  # a home that can only be read still lists its prompts
        sealed = await world.store.seals()
    for session, instance, _ in heads:
        entered = await world.index.session_of(_entered(session, instance)) == session
        if entered and session not in unsettled and (session not in behind or session in sealed):
            continue
        if session in unsettled and await patience.busy(session) is not None:
            continue
        # Found damaged just now, and sealed; the next miss enters the records that verify.
        with suppress(Untrusted):
            for approval in await prompts_ever(world, session):
                await world.index.put_approval(approval, session)
        await world.index.put_approval(_entered(session, instance), session)
    if behind or unsettled:
        await refresh_index(world, opened, patience)


def _entered(session: SessionId, instance: InstanceId) -> ApprovalId:
    """
    An id that no prompt has. Stored beside prompts, it says that all prompts of that instance were
    entered.
    """
    return ApprovalId(f"entered {session} {instance}")


async def approval(world: World, opened: OpenSessions, wanted: ApprovalId) -> ApprovalReport:
    session = await session_of(world, opened, wanted)
    found = (await prompts_ever(world, session)).get(wanted) if session is not None else None
    if found is None and session is not None:
        async with opened.use(session) as ledger:
            if ledger.journal.sealed is not None:
                _ = ledger.attempt  # raises the reason: the prompt may lie past the damage
    if found is None:
        raise Refused(
            f"no approval {wanted}",
            code="unknown",
            hint="`holdfast approvals list` shows the prompts that wait",
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
