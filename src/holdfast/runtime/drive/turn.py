"""
Drive a turn to its end or pause, or follow the process that drives it. Includes the turn's
delegates and the parents that wait for it.

The verbs append first and call this module second. It accepts no input and decides nothing. It
keeps nothing between two calls, so a process that dies at any line leaves exactly the work that the
journal names. Every caller leaves by `leave` or `hand_on`, on every way out.
"""

import asyncio
from contextlib import suppress

from holdfast.errors import CannotDrive, HoldfastError
from holdfast.ids import TurnId
from holdfast.ports.journal_store import Check
from holdfast.runtime.cancellation import most_useful_error, wait_for
from holdfast.runtime.context import World
from holdfast.runtime.delegates.delegation import Delegation
from holdfast.runtime.drive.driver import Driver, Until
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.reports.index_writer import IndexWriter
from holdfast.runtime.reports.types import TurnReport
from holdfast.runtime.streams.feed import Feed
from holdfast.session.commands import Expire
from holdfast.session.react import FIRST_TURN, is_wanted, owes_report, react, unsettled
from holdfast.session.state import Delegate, Phase, SessionState
from holdfast.session.turn_ids import find_turn


class TurnRunner:
    """One per service; it keeps no state."""

    def __init__(
        self,
        world: World,
        shelf: OpenSessions,
        home: HomeLedger,
        feed: Feed,
        delegation: Delegation,
        noting: IndexWriter,
    ) -> None:
        self._world = world
        self._shelf = shelf
        self._home = home
        self._feed = feed
        self._delegation = delegation
        self._noting = noting

    def driver(self, ledger: Ledger) -> Driver:
        """Create the driver for one drive; it has no claim yet."""
        return Driver(self._world, ledger, self._home, self._feed, self._delegation)

    # --- one session

    async def drive_turn(
        self, ledger: Ledger, driver: Driver, turn: TurnId, *, claimed: bool = False
    ) -> None:
        """
        Drive the turn to its end, or to a pause that only a person can end. Its delegates run as
        far as they can without a person. A turn of an external loop is left to that loop.
        """
        if is_foreign(ledger.state, turn):
            return
        await self.drive_until(ledger, driver, _over_or_parked(turn), claimed=claimed)
        # The turn ended in the commit that accepted it, so no drive ran; its deliveries are still
        # owed.
        if driver.owns_claim:
            await driver.deliver_owed()
            # The turn may wait for a delegate. A claim kept meanwhile would keep every other driver
            # out, this process included.
            await driver.give_up()
        while await self.moved_below(ledger, turn):
            await self.drive_until(ledger, driver, _over_or_parked(turn))

    async def drive_until(
        self, ledger: Ledger, driver: Driver, until: Until, *, claimed: bool = False
    ) -> None:
        """
        Drive until `until` holds. If another process drives, follow it, and try the claim on each
        notice and every second.

        Raise CannotDrive if no process drives and this one cannot.
        """
        watch = ledger.watch()
        try:
            while not until(ledger.state):
                watch.clear()
                if claimed or (not ledger.driving and await driver.claim()):
                    claimed, before = False, ledger.state.seq
                    await self.drive(ledger, driver, until)
                    if ledger.state.seq != before:
                        # Without progress, another drive at once would not progress either.
                        continue
                await wait_for(watch)
                # A spent ledger has no driver any more; `refresh` raises the reason.
                if not ledger.driving or ledger.attempt.stopped is not None:
                    await ledger.refresh()
        finally:
            ledger.unwatch(watch)

    async def drive(self, ledger: Ledger, driver: Driver, until: Until) -> None:
        """
        Run one drive with a driver that holds the claim. The claim is released when this returns.
        """
        try:
            await driver.run(until)
        finally:
            await driver.give_up()
        for child in tuple(ledger.state.delegates.values()):
            if not is_wanted(ledger.state, child):
                # It was cancelled, and ends after the calls that it had started.
                await self._drive_below(child)
        # After giving up, check again and notify if work is owed: a record may have come between
        # the last check and the release.
        await ledger.look()
        if react(ledger.state):
            self._world.notifier.notify(ledger.session)

    # --- below and above

    async def moved_below(self, ledger: Ledger, turn: TurnId) -> bool:
        """
        Drive the delegates of a parked turn, side by side, as far as they get. Return True if one
        of them ended, so the turn may continue.
        """
        await self._delegation.settle_lost(ledger)
        before = find_turn(ledger.state, turn)
        if before is None or not before.delegated:
            return False
        children = [call.delegate for call in before.delegated if call.delegate is not None]
        try:
            async with asyncio.TaskGroup() as group:
                drives = [group.create_task(self._drive_below(child)) for child in children]
        except BaseExceptionGroup as errors:
            raise most_useful_error(errors) from None
        await ledger.look()
        await self._delegation.settle_lost(ledger)
        after = find_turn(ledger.state, turn)
        if after is None or len(after.delegated) < len(before.delegated):
            return True
        if hindered := next((each.result() for each in drives if each.result() is not None), None):
            raise hindered
        return False

    async def _drive_below(self, child: Delegate) -> HoldfastError | None:
        """
        Drive one delegate to its end or its pause. Return its error; the caller raises it after the
        siblings had their chance.
        """
        try:
            async with self._shelf.use(child.session) as ledger:
                driver = self.driver(ledger)
                try:
                    await ledger.commit(Expire(), check=Check.FENCE)
                    await self.drive_turn(ledger, driver, FIRST_TURN)
                finally:
                    await self.leave(ledger, driver)
        except HoldfastError as exc:
            return exc
        return None

    async def drive_up(self, ledger: Ledger) -> TurnReport | None:
        """
        After a delegate moved, drive the parents that wait for it, up to the request that a person
        made. Return the report of that request, or None if the session is not a delegate.
        """
        parent = ledger.state.parent
        if parent is None or await self._world.store.current(parent.session) != parent.instance:
            return None
        async with self._shelf.use(parent.session) as above:
            driver = self.driver(above)
            try:
                if above.journal.sealed is None and ledger.state.reported:
                    # The delegate's end stands. A process that has the parent's parts continues the
                    # parent.
                    with suppress(CannotDrive):
                        await self.drive_turn(above, driver, parent.turn)
                return await self.drive_up(above) or await self._delegation.standing(
                    above, parent.turn
                )
            finally:
                await self.leave(above, driver)

    # --- leaving

    async def leave(self, ledger: Ledger, driver: Driver) -> None:
        """
        On every way out: release the claim, make the anchor durable, update the index and notify
        followers.
        """
        if (
            ledger.only_read is not None
            or ledger.journal.sealed is not None
            or ledger.attempt.stopped is not None
        ):
            driver.let_go()
            return
        await driver.give_up()
        # Where a thread syncs the anchor, it runs while the index is written.
        syncing = ledger.journal.sync_anchor()
        try:
            self._noting.now(ledger)
            self._world.notifier.notify(ledger.session)
        finally:
            await syncing
        await ledger.keep_snapshot_if_due()

    def hand_on(self, ledger: Ledger) -> None:
        """
        Leave after an append that another process drives on. The append is durable, and the anchor
        may lag. The index is updated in a moment.
        """
        if ledger.journal.sealed is None and ledger.attempt.stopped is None:
            self._noting.soon(ledger)


def is_foreign(state: SessionState, turn: TurnId) -> bool:
    """Only the external loop can advance this turn, so waiting here could block forever."""
    found = find_turn(state, turn)
    return found is not None and found.loop == "foreign"


def _over_or_parked(turn: TurnId) -> Until:
    def over_or_parked(state: SessionState) -> bool:
        if state.queued and any(each.turn == turn for each in state.queued):
            return False
        open_turn = find_turn(state, turn)
        if open_turn is None:
            return not owes_report(state)
        return open_turn.phase is Phase.PARKED and (bool(open_turn.waiting) or open_turn.only_waits)

    return over_or_parked


def nothing_owed(state: SessionState) -> bool:
    return not react(state) and not unsettled(state)
