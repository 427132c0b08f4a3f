"""
Begin a turn that an external loop drives, or take up the one of the same message wherever it
stands: queued, running, parked, left by a loop that died, or over.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import msgspec

from holdfast.errors import Busy, HoldfastError, Refused
from holdfast.ids import SessionId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.runtime.cancellation import finish, wait_for
from holdfast.runtime.drive.driver import Driver, Until
from holdfast.runtime.drive.turn import nothing_owed
from holdfast.runtime.external_loop.first_call import FirstCall
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.verbs.accept import (
    Incoming,
    accept_command,
    ensure_session,
    no_answer,
    refuse_unfit,
)
from holdfast.session.commands import (
    Cancel,
    Expire,
    LeaveLoop,
    SessionCommand,
    StartTurn,
    TakeUpLoop,
)
from holdfast.session.results import Accepted, OnlyAnAnswerWord
from holdfast.session.state import SessionState


class ExternalTurns:
    """One per service; it keeps no state."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._world = runtime.world

    async def begin(
        self,
        session: SessionId,
        incoming: Incoming,
        *,
        wait: bool,
        first: FirstCall | None = None,
    ) -> ExternalTurn:
        """
        Accept the message, durably, and come to its turn. While another message is driven, this one
        waits in the queue; with `wait` False it is refused as busy instead. `first` is made in the
        same commit if the turn begins at once.
        """
        refuse_unfit(self._world, session, incoming)
        await ensure_session(self._world, session, by=incoming.sender)

        async def come(ledger: Ledger, driver: Driver) -> TurnId:
            return await self._accepted(ledger, driver, incoming, wait=wait, first=first)

        return await self._opened(session, come)

    async def again(self, session: SessionId, turn: TurnId, *, wait: bool) -> ExternalTurn:
        """Take up an open turn by its id. Its authority comes from its journal."""

        async def come(ledger: Ledger, driver: Driver) -> TurnId:
            await ledger.catch_up()
            found = ledger.state.turns.get(turn)
            if found is None or found.loop != "foreign":
                raise Refused(
                    f"{session} has no open turn {turn} of an external loop",
                    code="unknown",
                    hint="it has ended, or Holdfast drives it; see follow",
                )
            await self._come_to(ledger, driver, turn, wait=wait)
            return turn

        return await self._opened(session, come)

    async def _opened(
        self, session: SessionId, come: Callable[[Ledger, Driver], Awaitable[TurnId]]
    ) -> ExternalTurn:
        async with AsyncExitStack() as stack:
            ledger = await stack.enter_async_context(self._runtime.sessions.use(session))
            driver = await stack.enter_async_context(Driver(self._runtime, ledger))
            try:
                turn = await come(ledger, driver)
            except BaseException:
                await finish(_left_unseen(ledger, driver))
                raise
            return ExternalTurn(driver, turn, close=stack.pop_all().aclose)
        raise AssertionError  # the block above returns or raises

    async def _accepted(
        self,
        ledger: Ledger,
        driver: Driver,
        incoming: Incoming,
        *,
        wait: bool,
        first: FirstCall | None,
    ) -> TurnId:
        claimed = await driver.claim()
        if not claimed and not wait:
            raise _busy(ledger)
        await ledger.catch_up_if_behind()  # the commit below verifies what it is decided on
        if claimed:
            await driver.run(nothing_owed)
        accept = accept_command(self._world, ledger.state, incoming)
        accept = msgspec.structs.replace(accept, loop="foreign", model="foreign")
        start = StartTurn(epoch=ledger.attempt.epoch or 0)
        if claimed:
            steps: list[SessionCommand] = [Expire(), accept, start]
            if first is not None:
                steps += await first.steps(ledger, steps, start.epoch)
            outcome = await ledger.drive(*steps, check=Check.FENCE)
            if first is not None:
                first.take(outcome)
        else:
            outcome = await ledger.commit(Expire(), accept, check=Check.FENCE)
        accepted = outcome.of(accept)
        if isinstance(accepted, OnlyAnAnswerWord):
            raise no_answer(accepted, await turn_report(ledger, accepted.turn))
        turn = accepted.turn
        if claimed and outcome.of(start) == turn:
            return turn
        try:
            await self._come_to(ledger, driver, turn, wait=wait)
        except BaseException:
            if isinstance(accepted, Accepted) and incoming.dedup is None:
                # Nobody could name this message again, so it is not left in the queue.
                await finish(_dropped(ledger, turn))
            raise
        return turn

    async def _come_to(self, ledger: Ledger, driver: Driver, turn: TurnId, *, wait: bool) -> None:
        """Become the driver, and go on until the turn runs here. A turn that is over stays so."""
        watch = ledger.watch()
        try:
            while not _is_over(ledger.state, turn):
                watch.clear()
                _refuse_ours(ledger, turn)
                if await driver.claim():
                    before = ledger.state.seq
                    if await self._taken(ledger, driver, turn):
                        return
                    if ledger.state.seq != before:
                        continue
                    await driver.give_up()
                if not wait:
                    raise _busy(ledger)
                await wait_for(watch)
                await ledger.catch_up()
        finally:
            ledger.unwatch(watch)

    async def _taken(self, ledger: Ledger, driver: Driver, turn: TurnId) -> bool:
        await ledger.catch_up()
        await driver.run(_is_next(turn))
        state, epoch = ledger.state, ledger.attempt.epoch or 0
        if turn in state.turns and state.running is None:
            await ledger.drive(Expire(), TakeUpLoop(turn=turn, epoch=epoch), check=Check.FENCE)
            return True
        if state.running is None and state.queued and state.queued[0].turn == turn:
            start = StartTurn(epoch=epoch)
            return (await ledger.drive(start, check=Check.FENCE)).of(start) == turn
        return _is_over(state, turn)


async def _left_unseen(ledger: Ledger, driver: Driver) -> None:
    """
    Leave a turn whose loop was stopped while the turn began, so that it has no object to leave it
    by. This process drives, so a running external turn is that one.
    """
    with suppress(HoldfastError):
        if not driver.owns_claim:
            return
        await ledger.catch_up()
        running = ledger.state.running
        if running is not None and ledger.state.turns[running].loop == "foreign":
            await ledger.drive(LeaveLoop(turn=running))


async def _dropped(ledger: Ledger, turn: TurnId) -> None:
    await ledger.commit(
        Cancel(by="holdfast: the program that sent it is gone", turn=turn, may_all=True)
    )


def _is_over(state: SessionState, turn: TurnId) -> bool:
    return turn not in state.turns and all(each.turn != turn for each in state.queued)


def _is_next(turn: TurnId) -> Until:
    def is_next(state: SessionState) -> bool:
        if _is_over(state, turn):
            return True
        if state.running is not None:
            return False
        return turn in state.turns or state.queued[0].turn == turn

    return is_next


def _refuse_ours(ledger: Ledger, turn: TurnId) -> None:
    found = ledger.state.turns.get(turn)
    queued = [each for each in ledger.state.queued if each.turn == turn]
    if (found is not None and found.loop != "foreign") or any(
        each.loop != "foreign" for each in queued
    ):
        raise Refused(
            f"the message of {turn} was sent to Holdfast's own loop",
            code="dedup_conflict",
            hint="use another dedup key for an external loop",
        )


def _busy(ledger: Ledger) -> Busy:
    return Busy(
        f"{ledger.session} is driven by another loop, in this process or another",
        hint="try again when its turn has ended, or wait",
    )
