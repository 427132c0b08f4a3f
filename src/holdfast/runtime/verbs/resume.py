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
from holdfast.runtime.context import World
from holdfast.runtime.delegates.delegation import Delegation
from holdfast.runtime.drive.drivability import why_cannot_drive
from holdfast.runtime.drive.driver import Until
from holdfast.runtime.drive.turn import TurnRunner, nothing_owed
from holdfast.runtime.jobs.watcher import JobKeeper
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.ledger.timekeeper import HomeTime
from holdfast.runtime.reports import listing
from holdfast.runtime.reports.index_writer import note
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.reports.open_prompts import has_expired
from holdfast.runtime.reports.types import TurnReport
from holdfast.session.commands import Expire, GiveModel
from holdfast.session.state import SessionState

_log = logging.getLogger("holdfast.service")


class Resuming:
    """One per service; it keeps no state."""

    def __init__(
        self,
        world: World,
        shelf: OpenSessions,
        home: HomeLedger,
        time: HomeTime,
        delegation: Delegation,
        jobs: JobKeeper,
        drives: TurnRunner,
    ) -> None:
        self._world = world
        self._shelf = shelf
        self._home = home
        self._time = time
        self._delegation = delegation
        self._jobs = jobs
        self._drives = drives

    async def resume(
        self, session: SessionId, *, by: str, model: str | None, since: int | None
    ) -> TurnReport:
        async with self._shelf.use(session) as ledger:
            driver = self._drives.driver(ledger)
            try:
                await ledger.commit(Expire(), check=Check.FENCE)
                await reminding.fire_due(self._world, ledger)
                await self._delegation.settle_lost(ledger)
                await self._jobs.settle(ledger)
                self._jobs.watch(ledger.session)
                if model is not None and (since is None or self._lacks_model(ledger.state)):
                    await self._give_model(ledger, model, by=by)
                before = _subject(ledger.state, since)
                await self._drives.drive_until(ledger, driver, nothing_owed)
                for turn in tuple(ledger.state.turns):
                    while await self._drives.moved_below(ledger, turn):
                        await self._drives.drive_until(ledger, driver, nothing_owed)
                await self._drives.drive_up(ledger)
                return await self._delegation.standing(ledger, before)
            finally:
                await self._drives.leave(ledger, driver)

    async def owing_heads(self, patience: LockWaitBudget | None = None) -> Mapping[SessionId, int]:
        owing = await self.owing(patience)
        seqs = (
            {session: seq for session, _, seq in await self._world.store.heads()} if owing else {}
        )
        return {session: seqs[session] for session in owing if session in seqs}

    def _lacks_model(self, state: SessionState) -> bool:
        """
        Whether a turn's own model is missing. A resume of all sessions gives another model only to
        such a session.
        """
        for name in (
            *(turn.model for turn in state.turns.values() if turn.loop != "foreign"),
            *(each.model for each in state.queued),
        ):
            try:
                self._world.model(name)
            except Unusable:
                return True
        return False

    async def _give_model(self, ledger: Ledger, model: str, *, by: str) -> None:
        self._world.model(model)
        await ledger.commit(GiveModel(model=model, by=by))

    # --- for a process that stays

    async def owing(self, patience: LockWaitBudget | None = None) -> Sequence[SessionId]:
        patience = patience or LockWaitBudget(self._world.store)
        owing = await listing.owing(
            self._world, self._shelf, sealed=(await self._home.refresh()).sealed, patience=patience
        )
        for session in listing.with_jobs(self._world):
            if (
                session not in owing
                and await patience.busy(session) is None
                and await self._settle_jobs(session)
            ):
                owing = [*owing, session]
        return owing

    async def _settle_jobs(self, session: SessionId) -> bool:
        """
        Record the ended jobs of a session; return whether there were any. Running jobs are watched
        from now on, for as long as this process runs.
        """
        try:
            async with self._shelf.use(session) as ledger:
                await ledger.refresh()
                ended = await self._jobs.settle(ledger)
        except HoldfastError as exc:
            _log.warning(
                "%s: its jobs could not be looked at (%s): %s", session, exc.code, exc.message
            )
            return False
        self._jobs.watch(session)
        return ended > 0

    async def drive_all(self, session: SessionId, until: Until | None) -> None:
        async with self._shelf.use(session) as ledger:
            if ledger.journal.sealed is not None or ledger.driving:
                return
            await ledger.look()  # every later append is decided on verified bytes
            await self._settle(ledger)
            if (
                nothing_owed(ledger.state)
                or why_cannot_drive(self._world, ledger.state) is not None
            ):
                return
            driver = self._drives.driver(ledger)
            if not await driver.claim_at_once():
                # Another driver exists, and sees the owed work. A notice from here would only wake
                # this process again, without end.
                return
            try:
                await self._drives.drive(ledger, driver, until or _never)
            finally:
                await self._drives.leave(ledger, driver)

    async def _settle(self, ledger: Ledger) -> None:
        """
        Append only if there is something to record: this runs every half minute, in every session
        that is owed anything.
        """
        if ledger.state.jobs:
            await self._jobs.settle(ledger)
            self._jobs.watch(ledger.session)
        if has_expired(ledger.state, self._time.moment(session_at=ledger.state.at)):
            await ledger.commit(Expire(), check=Check.FENCE)
            note(self._world, ledger)
        if await reminding.fire_due(self._world, ledger):
            note(self._world, ledger)
            self._world.notifier.notify(ledger.session)
        await self._delegation.settle_lost(ledger)


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
            return turn.turn
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


def _never(_: SessionState) -> bool:
    return False
