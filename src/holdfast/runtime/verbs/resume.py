"""
Drive the owed work of a session: once, for a caller (`resume`), or again and again, for a process
that stays (`drive_all`).

Before a drive, changes by time or by other processes are settled: expired prompts, due reminders,
delegates that can never report, ended jobs. That is decided under the write lock too, so any number
of processes may do it.
"""

import logging
from collections.abc import Mapping, Sequence

from holdfast.errors import HoldfastError, Unusable
from holdfast.ids import SessionId, TurnId, turn_id
from holdfast.ports.journal_store import Check
from holdfast.runtime import reminders as reminding
from holdfast.runtime.delegates.delegation import settle_lost_delegates
from holdfast.runtime.drive.drivability import why_cannot_drive
from holdfast.runtime.drive.driver import Driver, Until
from holdfast.runtime.drive.turn import (
    drive,
    drive_until,
    drive_up,
    moved_below,
    nothing_owed,
    turn_standing,
)
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports import survey
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.reports.open_prompts import has_expired
from holdfast.runtime.reports.types import TurnReport
from holdfast.runtime.runtime import Runtime
from holdfast.session.commands import Expire, GiveModel
from holdfast.session.state import SessionState

_log = logging.getLogger("holdfast.service")


async def resume(
    runtime: Runtime, session: SessionId, *, by: str, model: str | None, since: int | None
) -> TurnReport:
    async with runtime.sessions.use(session) as ledger, Driver(runtime, ledger) as driver:
        await ledger.commit(Expire(), check=Check.FENCE)
        await runtime.pins.settle(ledger)
        await reminding.fire_due(runtime.world, ledger)
        await settle_lost_delegates(runtime, ledger)
        await runtime.job_keeper.settle(ledger)
        runtime.job_keeper.watch(ledger.session)
        if model is not None and (since is None or _lacks_model(runtime, ledger.state)):
            await _give_model(runtime, ledger, model, by=by)
        before, owed = _subject(ledger.state, since), _owed(ledger.state)
        await drive_until(driver, nothing_owed)
        for turn in tuple(ledger.state.turns):
            while await moved_below(driver, turn):
                await drive_until(driver, nothing_owed)
        await drive_up(runtime, ledger)
        return await turn_standing(runtime, ledger, _gravest(ledger.state, owed) or before)


async def owing_heads(
    runtime: Runtime, patience: LockWaitBudget | None = None
) -> Mapping[SessionId, int]:
    sessions = await owing(runtime, patience)
    heads = await runtime.world.store.heads_of(sessions)
    seqs = {session: seq for session, _, seq in heads}
    return {session: seqs[session] for session in sessions if session in seqs}


def _lacks_model(runtime: Runtime, state: SessionState) -> bool:
    """
    Whether a turn's own model is missing. A resume of all sessions gives another model only to
    such a session.
    """
    for name in (
        *(turn.model for turn in state.turns.values() if turn.loop != "foreign"),
        *(each.model for each in state.queued),
    ):
        try:
            runtime.world.models.resolve(name)
        except Unusable:
            return True
    return False


async def _give_model(runtime: Runtime, ledger: Ledger, model: str, *, by: str) -> None:
    runtime.world.models.resolve(model)
    await ledger.commit(GiveModel(model=model, by=by))


# --- for a process that stays


async def owing(runtime: Runtime, patience: LockWaitBudget | None = None) -> Sequence[SessionId]:
    patience = patience or LockWaitBudget(runtime.world.store)
    found = await survey.owing(
        runtime.world,
        runtime.sessions,
        sealed=(await runtime.home.refresh()).sealed,
        patience=patience,
    )
    for session in await survey.with_jobs(runtime.world):
        if (
            session not in found
            and await patience.busy(session) is None
            and await _settle_jobs(runtime, session)
        ):
            found = [*found, session]
    return found


async def _settle_jobs(runtime: Runtime, session: SessionId) -> bool:
    """
    Record the ended jobs of a session; return whether there were any. Running jobs are watched
    from now on, for as long as this process runs.
    """
    try:
        async with runtime.sessions.use(session) as ledger:
            await ledger.catch_up()
            ended = await runtime.job_keeper.settle(ledger)
    except HoldfastError as exc:
        _log.warning("%s: its jobs could not be looked at (%s): %s", session, exc.code, exc.message)
        return False
    runtime.job_keeper.watch(session)
    return ended > 0


async def drive_all(runtime: Runtime, session: SessionId, until: Until | None) -> None:
    async with runtime.sessions.use(session) as ledger:
        if ledger.journal.sealed is not None or ledger.driving:
            return
        await ledger.catch_up_if_behind()  # every later append is decided on verified bytes
        await _settle(runtime, ledger)
        if nothing_owed(ledger.state) or why_cannot_drive(runtime.world, ledger.state) is not None:
            return
        async with Driver(runtime, ledger) as driver:
            # If another driver exists, it sees the owed work.
            if await driver.claim_at_once():
                await drive(driver, until or _never)


async def _settle(runtime: Runtime, ledger: Ledger) -> None:
    """
    Append only if there is something to record: this runs every half minute, in every session
    that is owed anything.
    """
    if ledger.state.jobs:
        await runtime.job_keeper.settle(ledger)
        runtime.job_keeper.watch(ledger.session)
    if has_expired(ledger.state, runtime.home.moment(session_at=ledger.state.at)):
        await ledger.commit(Expire(), check=Check.FENCE)
    await runtime.pins.settle(ledger)
    await reminding.fire_due(runtime.world, ledger)
    await settle_lost_delegates(runtime, ledger)


def _subject(state: SessionState, since: int | None) -> TurnId | None:
    """
    The turn that `resume` reports: the running one, else one that can continue, else the next, else
    one that waits, else the last if it completed.

    A turn that ended after record `since` is reported whatever its outcome: driving an earlier
    session drove it too.
    """
    if state.running is not None:
        return state.running
    for turn in state.turns.values():
        if not turn.waiting:
            return turn.id
    if state.queued:
        return state.queued[0].turn
    if state.turns:
        return next(reversed(state.turns))
    last = turn_id(state.inputs)
    result = state.results.get(last)
    is_news = result is not None and (
        result.outcome == "completed" or (since is not None and result.seq > since)
    )
    return last if is_news else None


def _owed(state: SessionState) -> tuple[TurnId, ...]:
    """The turns that this drive moves: begun ones that need nobody's answer, then queued ones."""
    begun = [turn.id for turn in state.turns.values() if not turn.waiting]
    return (*begun, *(each.turn for each in state.queued))


_GRAVEST = ("failed", "cancelled", "superseded", "waiting")


def _gravest(state: SessionState, turns: Sequence[TurnId]) -> TurnId | None:
    """
    The first of the turns whose outcome is the gravest, in the order of the exit codes. None if all
    completed: a caller of one session gets one report, which must not hide a prompt or a failure.
    """
    outcomes = {turn: _outcome(state, turn) for turn in turns}
    graver = [turn for turn, outcome in outcomes.items() if outcome in _GRAVEST]
    return min(graver, key=lambda turn: _GRAVEST.index(outcomes[turn]), default=None)


def _outcome(state: SessionState, turn: TurnId) -> str:
    found = state.find_turn(turn)
    if found is not None:
        return "waiting" if found.waiting or found.parked else "running"
    result = state.results.get(turn)
    return result.outcome if result is not None else ""


def _never(_: SessionState) -> bool:
    return False
