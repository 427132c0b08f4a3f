"""
Send: accept a message, durably, and drive its turn to its end or a pause.

If this process can drive, it claims first, so that one commit accepts the message and starts the
turn. A message that is not new (a repeat, or a bare answer word while a prompt is open) leaves
nothing behind, and returns the report of the earlier one.
"""

import msgspec

from holdfast.errors import CannotDrive
from holdfast.ids import SessionId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.runtime.context import World
from holdfast.runtime.delegates.delegation import Delegation
from holdfast.runtime.drive.drivability import code_in_reach, lacks
from holdfast.runtime.drive.driver import Driver
from holdfast.runtime.drive.turn import TurnRunner
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.memory.recall import remembers
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.types import ErrorReport, TurnReport
from holdfast.runtime.verbs.accept import (
    Incoming,
    accepting,
    ensure_session,
    no_answer,
    refuse_unfit,
)
from holdfast.session.commands import AcceptInput, Expire, SessionCommand, StartTurn
from holdfast.session.results import Accepted, Duplicate, OnlyAnAnswerWord


class Sending:
    """One per service; it keeps no state."""

    def __init__(
        self, world: World, shelf: OpenSessions, delegation: Delegation, drives: TurnRunner
    ) -> None:
        self._world = world
        self._shelf = shelf
        self._delegation = delegation
        self._drives = drives

    async def send(self, session: SessionId, incoming: Incoming, *, wait: bool) -> TurnReport:
        refuse_unfit(self._world, session, incoming)
        await ensure_session(self._world, session, by=incoming.sender)
        async with self._shelf.use(session) as ledger:
            driver = self._drives.driver(ledger)
            accept = accepting(self._world, ledger.state, incoming)
            if wait:
                self._refuse_code_in_reach(accept)
            accept = msgspec.structs.replace(
                accept, asked_below=await self._delegation.asked_below(ledger.state)
            )
            claimed = wait and await self._try_claim_quietly(driver, accept)
            try:
                accepted = await self._accept(ledger, accept, claimed=claimed)
                if not isinstance(accepted, Accepted):
                    return await self._not_new(
                        ledger, accepted, driver if claimed else None, wait=wait
                    )
                return await self._see_through(
                    ledger, driver, accepted.turn, claimed=claimed, wait=wait
                )
            finally:
                if wait:
                    await self._drives.leave(ledger, driver)
                else:
                    self._drives.hand_on(ledger)

    def _refuse_code_in_reach(self, accept: AcceptInput) -> None:
        """
        Refuse before the message is accepted: only a process that loads its program from elsewhere
        could drive it.
        """
        if accept.workspace is None or lacks(self._world, accept.agent, accept.model) is not None:
            return
        if (text := code_in_reach(self._world, accept.agent, accept.workspace.path)) is not None:
            raise CannotDrive(
                f"nothing was sent: {text}",
                hint='or count scripts again: approvals.consent in holdfast.toml with "script"',
            )

    async def _try_claim_quietly(self, driver: Driver, accept: AcceptInput) -> bool:
        """
        Claim before the message is accepted, so that one commit can accept it and start the turn.
        An error is reported later.
        """
        if lacks(self._world, accept.agent, accept.model) is not None:
            return False
        try:
            return await driver.claim()
        except CannotDrive:
            return False

    async def _accept(
        self, ledger: Ledger, accept: AcceptInput, *, claimed: bool
    ) -> Accepted | Duplicate | OnlyAnAnswerWord:
        commands: list[SessionCommand] = [Expire(), accept]
        epoch = ledger.epoch
        if (
            claimed
            and epoch is not None
            and ledger.state.running is None
            and not remembers(self._world)
        ):
            commands.append(StartTurn(epoch=epoch))
        outcome = await (ledger.drive if claimed else ledger.commit)(*commands, check=Check.FENCE)
        self._world.notifier.notify(ledger.session)
        return outcome.of(accept)

    async def _not_new(
        self,
        ledger: Ledger,
        known: Duplicate | OnlyAnAnswerWord,
        driver: Driver | None,
        *,
        wait: bool,
    ) -> TurnReport:
        report = await self._delegation.standing(ledger, known.turn)
        if isinstance(known, OnlyAnAnswerWord):
            return msgspec.structs.replace(report, error=ErrorReport.of(no_answer(known, report)))
        if wait and report.outcome in ("running", "queued"):
            own = driver or self._drives.driver(ledger)
            return await self._see_through(
                ledger, own, known.turn, claimed=driver is not None, wait=True
            )
        return report

    async def _see_through(
        self, ledger: Ledger, driver: Driver, turn: TurnId, *, claimed: bool, wait: bool
    ) -> TurnReport:
        if not wait:
            return await turn_report(ledger, turn)
        try:
            await self._drives.drive_turn(ledger, driver, turn, claimed=claimed)
        except CannotDrive as exc:  # a sender that does not know of the acceptance would send again
            raise CannotDrive(
                f"the message is kept as {turn}, but {exc.message}", hint=exc.hint
            ) from exc
        return await self._delegation.standing(ledger, turn)
