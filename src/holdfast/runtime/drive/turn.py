"""
Seeing a turn through, whoever drives it: driven here if nobody does, else followed, with the
delegates below it and whoever waits for it above.

The verbs append first and come here second: nothing here takes anything in, and nothing decides.
Nothing is remembered between two calls either, so that a process that dies at any line leaves what
the journal says is owed. Whoever comes here leaves by `leave` or `hand_on`, on every way out.
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
    """One per service; it remembers nothing."""

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
        """For one drive; it holds no claim yet."""
        return Driver(self._world, ledger, self._home, self._feed, self._delegation)

    # --- one session

    async def drive_turn(
        self, ledger: Ledger, driver: Driver, turn: TurnId, *, claimed: bool = False
    ) -> None:
        """
        To its end, or to a pause that only a person ends: what its delegates can do without one is
        done. One of a foreign loop goes on with its loop.
        """
        if is_foreign(ledger.state, turn):
            return
        await self.drive_until(ledger, driver, _over_or_parked(turn), claimed=claimed)
        if (
            driver.owns_claim
        ):  # over in the commit that took it in: nobody drove, and its end is still to be told
            await driver.deliver_owed()
            # it waits for a delegate, perhaps: a claim that is kept meanwhile keeps everybody else
            # out, and ourselves
            await driver.give_up()
        while await self.moved_below(ledger, turn):
            await self.drive_until(ledger, driver, _over_or_parked(turn))

    async def drive_until(
        self, ledger: Ledger, driver: Driver, until: Until, *, claimed: bool = False
    ) -> None:
        """
        Until it holds, drive if nobody does; else follow whoever does, trying the claim on each
        notice and every second.

        Raises CannotDrive when nobody drives and this process can't.
        """
        watch = ledger.watch()
        try:
            while not until(ledger.state):
                watch.clear()
                if claimed or (not ledger.driving and await driver.claim()):
                    claimed, before = False, ledger.state.seq
                    await self.drive(ledger, driver, until)
                    if ledger.state.seq != before:
                        continue  # else another drive at once would come no further either
                await wait_for(watch)
                if (
                    not ledger.driving or ledger.attempt.stopped is not None
                ):  # of a spent ledger nobody drives any more: the reason is raised
                    await ledger.refresh()
        finally:
            ledger.unwatch(watch)

    async def drive(self, ledger: Ledger, driver: Driver, until: Until) -> None:
        """One drive, by a driver that has the claim; it has given it up when this returns."""
        try:
            await driver.run(until)
        finally:
            await driver.give_up()
        for child in tuple(ledger.state.delegates.values()):
            if not is_wanted(ledger.state, child):
                await self._drive_below(
                    child
                )  # it was cancelled, and ends once what it had started has
        # Whoever gives up looks once more: what came in between the last look and the release is
        # told to all.
        await ledger.look()
        if react(ledger.state):
            self._world.notifier.notify(ledger.session)

    # --- below and above

    async def moved_below(self, ledger: Ledger, turn: TurnId) -> bool:
        """
        Drive the delegates of a parked turn, side by side, as far as they come. True: one of them
        ended, and the turn may go on.
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
        One delegate to its end or its pause. What hinders it is said by whoever waits for it, after
        its siblings had their chance.
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
        After a delegate moved: drive on whoever waits for it, up to the request that a person made,
        and tell of that. None: it is nobody's delegate.
        """
        parent = ledger.state.parent
        if parent is None or await self._world.store.current(parent.session) != parent.instance:
            return None
        async with self._shelf.use(parent.session) as above:
            driver = self.driver(above)
            try:
                if above.journal.sealed is None and ledger.state.reported:
                    with suppress(
                        CannotDrive
                    ):  # the delegate's own end stands; who has what the parent needs goes on
                        await self.drive_turn(above, driver, parent.turn)
                return await self.drive_up(above) or await self._delegation.standing(
                    above, parent.turn
                )
            finally:
                await self.leave(above, driver)

    # --- leaving

    async def leave(self, ledger: Ledger, driver: Driver) -> None:
        """
        On every way out: the claim is given up, the anchor is durable, the index knows, followers
        are told.
        """
        if (
            ledger.only_read is not None
            or ledger.journal.sealed is not None
            or ledger.attempt.stopped is not None
        ):
            driver.let_go()
            return
        await driver.give_up()
        syncing = (
            ledger.journal.sync_anchor()
        )  # where a thread does it, it is on its way: the index is written meanwhile
        try:
            self._noting.now(ledger)
            self._world.notifier.notify(ledger.session)
        finally:
            await syncing
        await ledger.keep_snapshot_if_due()

    def hand_on(self, ledger: Ledger) -> None:
        """
        After an append that somebody else drives on: it is durable already, and the anchor may lag.
        The index knows in a moment.
        """
        if ledger.journal.sealed is None and ledger.attempt.stopped is None:
            self._noting.soon(ledger)


def is_foreign(state: SessionState, turn: TurnId) -> bool:
    """Its next step is nobody's but its own loop's: to wait here for it may be for ever."""
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
