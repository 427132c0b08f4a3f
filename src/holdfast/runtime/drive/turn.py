"""
Drive a turn to its end or pause, or follow the process that drives it. Includes the turn's
delegates and the parents that wait for it.

The verbs append first and call this module second. It accepts no input and decides nothing. It
keeps nothing between two calls, so a process that dies at any line leaves exactly the work that the
journal names. A driver is a context manager: it gives up on every way out.
"""

import asyncio
from contextlib import suppress

import msgspec

from holdfast.errors import CannotDrive, HoldfastError
from holdfast.ids import TurnId
from holdfast.ports.journal_store import Check
from holdfast.runtime.cancellation import most_useful_error, wait_for
from holdfast.runtime.delegates.delegation import prompts_below, settle_lost_delegates
from holdfast.runtime.drive.driver import Driver, Until
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.types import TurnReport
from holdfast.runtime.runtime import Runtime
from holdfast.session.commands import Expire
from holdfast.session.react import FIRST_TURN, is_wanted, owes_report, react, unsettled
from holdfast.session.state import Delegate, Phase, SessionState

# --- one session


async def drive_turn(driver: Driver, turn: TurnId, *, claimed: bool = False) -> None:
    """
    Drive the turn to its end, or to a pause that only a person can end. Its delegates run as
    far as they can without a person. A turn of an external loop is left to that loop.
    """
    ledger = driver.ledger
    if is_foreign(ledger.state, turn):
        return
    await drive_until(driver, _over_or_parked(turn), claimed=claimed)
    # The turn ended in the commit that accepted it, so no drive ran; its deliveries are still
    # owed.
    if driver.owns_claim:
        await driver.deliver_owed()
        # The turn may wait for a delegate. A claim kept meanwhile would keep every other driver
        # out, this process included.
        await driver.give_up()
    while await moved_below(driver, turn):
        await drive_until(driver, _over_or_parked(turn))


async def drive_until(driver: Driver, until: Until, *, claimed: bool = False) -> None:
    """
    Drive until `until` holds. If another process drives, follow it, and try the claim on each
    notice and every second.

    Raise CannotDrive if no process drives and this one cannot.
    """
    ledger = driver.ledger
    watch = ledger.watch()
    try:
        while not until(ledger.state):
            watch.clear()
            if claimed or (not ledger.driving and await driver.claim()):
                claimed, before = False, ledger.state.seq
                await drive(driver, until, watch)
                if ledger.state.seq != before:
                    # Without progress, another drive at once would not progress either.
                    continue
            await wait_for(watch)
            # A spent ledger has no driver any more; `catch_up` raises the reason.
            if not ledger.driving or ledger.attempt.stopped is not None:
                await ledger.catch_up()
    finally:
        ledger.unwatch(watch)


async def drive(driver: Driver, until: Until, watch: asyncio.Event | None = None) -> None:
    """
    Run one drive with a driver that holds the claim. The claim is released when this returns.
    """
    runtime, ledger = driver.runtime, driver.ledger
    try:
        await driver.run(until, watch)
    finally:
        await driver.give_up()
    for child in tuple(ledger.state.delegates.values()):
        if not is_wanted(ledger.state, child):
            # It was cancelled, and ends after the calls that it had started.
            await _drive_below(runtime, child)
    # After giving up, check again and notify if work is owed: a record may have come between
    # the last check and the release.
    await ledger.catch_up_if_behind()
    if react(ledger.state):
        runtime.world.notifier.notify(ledger.session)


# --- below and above


async def moved_below(driver: Driver, turn: TurnId) -> bool:
    """
    Drive the delegates of a parked turn, side by side, as far as they get. Return True if one
    of them ended, so the turn may continue.
    """
    runtime, ledger = driver.runtime, driver.ledger
    if not ledger.state.delegates:
        return False
    await settle_lost_delegates(runtime, ledger)
    before = ledger.state.find_turn(turn)
    if before is None or not before.delegated:
        return False
    children = [call.delegate for call in before.delegated if call.delegate is not None]
    try:
        async with asyncio.TaskGroup() as group:
            drives = [group.create_task(_drive_below(runtime, child)) for child in children]
    except BaseExceptionGroup as errors:
        raise most_useful_error(errors) from None
    await ledger.catch_up_if_behind()
    await settle_lost_delegates(runtime, ledger)
    after = ledger.state.find_turn(turn)
    if after is None or len(after.delegated) < len(before.delegated):
        return True
    if hindered := next((each.result() for each in drives if each.result() is not None), None):
        raise hindered
    return False


async def _drive_below(runtime: Runtime, child: Delegate) -> HoldfastError | None:
    """
    Drive one delegate to its end or its pause. Return its error; the caller raises it after the
    siblings had their chance.
    """
    try:
        async with runtime.sessions.use(child.session) as ledger, Driver(runtime, ledger) as driver:
            await ledger.commit(Expire(), check=Check.FENCE)
            await drive_turn(driver, FIRST_TURN)
    except HoldfastError as exc:
        return exc
    return None


async def drive_up(runtime: Runtime, ledger: Ledger) -> TurnReport | None:
    """
    After a delegate moved, drive the parents that wait for it, up to the request that a person
    made. Return the report of that request, or None if the session is not a delegate.
    """
    parent = ledger.state.parent
    if parent is None or await runtime.world.store.current(parent.session) != parent.instance:
        return None
    async with runtime.sessions.use(parent.session) as above, Driver(runtime, above) as driver:
        if above.journal.sealed is None and ledger.state.reported:
            # The delegate's end stands. A process that has the parent's parts continues the
            # parent.
            with suppress(CannotDrive):
                await drive_turn(driver, parent.turn)
        return await drive_up(runtime, above) or await turn_standing(runtime, above, parent.turn)


async def turn_standing(runtime: Runtime, ledger: Ledger, turn: TurnId | None) -> TurnReport:
    """Report a turn's state; its delegates' prompts count as its own."""
    report = await turn_report(ledger, turn)
    open_turn = ledger.state.find_turn(turn) if turn is not None else None
    if open_turn is None or not open_turn.delegated:
        return report
    asked = (*report.approvals, *await prompts_below(runtime, open_turn))
    return msgspec.structs.replace(
        report,
        approvals=asked,
        outcome="waiting" if asked and open_turn.parked else report.outcome,
    )


def is_foreign(state: SessionState, turn: TurnId) -> bool:
    """Only the external loop can advance this turn, so waiting here could block forever."""
    found = state.find_turn(turn)
    return found is not None and found.loop == "foreign"


def _over_or_parked(turn: TurnId) -> Until:
    def over_or_parked(state: SessionState) -> bool:
        if state.queued and any(each.turn == turn for each in state.queued):
            return False
        open_turn = state.find_turn(turn)
        if open_turn is None:
            return not owes_report(state)
        return open_turn.phase is Phase.PARKED and (bool(open_turn.waiting) or open_turn.only_waits)

    return over_or_parked


def nothing_owed(state: SessionState) -> bool:
    return not react(state) and not unsettled(state)
