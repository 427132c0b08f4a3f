"""Set a reminder for a person: read its schedule, make sure of its session, and commit it."""

from holdfast.ids import SessionId
from holdfast.runtime.reminders import Wanted, set_by_source, when_of
from holdfast.runtime.reports.types import ReminderReport
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.verbs.accept import Incoming, accepting, ensure_session, refuse_unfit


async def remind(
    runtime: Runtime, session: SessionId, wanted: Wanted, incoming: Incoming
) -> ReminderReport:
    world = runtime.world
    refuse_unfit(world, session, incoming)
    when = when_of(world, wanted)
    await ensure_session(world, session, by=incoming.sender)
    async with runtime.sessions.use(session) as ledger:
        await ledger.catch_up()
        return await set_by_source(
            world, ledger, wanted, when, accept=accepting(world, ledger.state, incoming)
        )
