"""Cancel turns, durably. Their delegates are stopped, and the parents of a delegate go on."""

from contextlib import suppress

from holdfast.errors import HoldfastError
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Check
from holdfast.runtime.delegates.delegation import report_to_parent, stop_unwanted_below
from holdfast.runtime.drive.turn import drive_up
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.types import TurnReport
from holdfast.runtime.runtime import Runtime
from holdfast.session.commands import Cancel, Expire


async def cancel(runtime: Runtime, session: SessionId, command: Cancel) -> tuple[TurnReport, ...]:
    async with runtime.sessions.use(session) as ledger:
        outcome = await ledger.commit(Expire(), command, check=Check.FENCE)
        cancelled = outcome.of(command) or ()
        await stop_unwanted_below(runtime, ledger)
        await report_to_parent(runtime, ledger)
        return tuple([await turn_report(ledger, each) for each in cancelled])


async def drive_above(runtime: Runtime, session: SessionId) -> None:
    """
    After a delegate was cancelled, resume its parents. Errors while resuming do not undo the
    cancel; the rest stays owed, and any process may resume it.
    """
    async with runtime.sessions.use(session) as ledger:
        with suppress(HoldfastError):
            await drive_up(runtime, ledger)
