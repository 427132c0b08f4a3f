"""Reminders: set one, list, show, cancel."""

from holdfast.errors import Refused
from holdfast.ids import ReminderId, session_id
from holdfast.ports.journal_store import Check
from holdfast.runtime.reminders import ReminderRequest, set_by_source, when_of
from holdfast.runtime.reports import prompt_list
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.reports.types import ReminderReport
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.verbs.accept import Incoming, accept_command, ensure_session, refuse_unfit
from holdfast.session.commands import CancelReminder


class ReminderVerbs:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def set(
        self, session: str, wanted: ReminderRequest, incoming: Incoming
    ) -> ReminderReport:
        """
        Set a reminder for the source's person, durably, and notify the process that serves this
        home. The text and its time are those of `wanted`.
        """
        world, name = self._runtime.world, session_id(session)
        refuse_unfit(world, name, incoming)
        when = when_of(world, wanted)
        await ensure_session(world, name, by=incoming.sender)
        async with self._runtime.sessions.use(name) as ledger:
            await ledger.catch_up()
            return await set_by_source(
                world, ledger, wanted, when, accept=accept_command(world, ledger.state, incoming)
            )

    async def list(self, *, patience: LockWaitBudget | None = None) -> tuple[ReminderReport, ...]:
        """Return the active reminders of all sessions, the next one first."""
        return await prompt_list.reminders(
            self._runtime.world, self._runtime.sessions, patience=patience
        )

    async def show(self, reminder: str) -> ReminderReport:
        found = next((each for each in await self.list() if each.id == reminder), None)
        if found is None:
            raise Refused(
                f"no reminder {reminder}",
                code="unknown",
                hint="`holdfast reminders list` shows them",
            )
        return found

    async def cancel(self, reminder: str, *, by: str, may_all: bool = False) -> ReminderReport:
        """Cancel a reminder, durably: it never fires again, in any process."""
        found = await self.show(reminder)
        async with self._runtime.sessions.use(found.session) as ledger:
            await ledger.commit(
                CancelReminder(reminder=ReminderId(reminder), by=by, may_all=may_all),
                check=Check.FENCE,
            )
        return found
