"""
Reminders in the runtime: set and cancel them by a command or a tool call, and fire the due ones.

Everything is decided under the write lock, on the journal. This file only reads the clock and the
time zones, and formats the results.
"""

import logging
from datetime import tzinfo
from typing import NamedTuple

import msgspec

from holdfast.errors import Refused, Unusable
from holdfast.ids import CallId, ReminderId, SessionId, TurnId, reminder_id
from holdfast.ports.journal_store import Check
from holdfast.ports.tools import OnOutput, ProcessFacts, ToolReturned
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.types import ReminderReport, iso, reminder_report
from holdfast.session.authority.context import TurnContext
from holdfast.session.commands import AcceptInput, CancelReminder, FireReminders, SetReminder
from holdfast.session.features.reminders.decide import is_due
from holdfast.session.features.reminders.evolve import reader_set_of
from holdfast.session.features.reminders.parse import read_schedule
from holdfast.session.features.reminders.schedule import Cron, Schedule
from holdfast.session.state import SessionState

_log = logging.getLogger("holdfast.reminding")


class ReminderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A requested reminder: the arguments of the tool, and the options of the command."""

    text: str
    at: str | None = None
    every: str | None = None
    cron: str | None = None
    time_zone: str | None = None
    may_prompt: bool = False


class When(NamedTuple):
    schedule: Schedule
    zone: tzinfo | None


def when_of(world: World, wanted: ReminderRequest) -> When:
    """
    Read the schedule before anything is created, so that a mistake in it leaves nothing behind.
    """
    schedule = read_schedule(
        at=wanted.at,
        every=wanted.every,
        cron=wanted.cron,
        time_zone=wanted.time_zone,
        find_zone=world.zones,
        now=world.clock.now_ms(),
    )
    return When(schedule, world.zones(schedule.time_zone) if isinstance(schedule, Cron) else None)


# --- firing


def has_due(state: SessionState, now: int) -> bool:
    return any(is_due(each, now) for each in state.reminders.values())


def firing(world: World, state: SessionState) -> FireReminders:
    """
    Build the command, with the time zones of all active reminders. A reminder whose zone this
    system lacks is left for a process that has it, with a log line.
    """
    zones: dict[str, tzinfo] = {}
    for each in state.reminders.values():
        if isinstance(each.schedule, Cron) and each.schedule.time_zone not in zones:
            try:
                zones[each.schedule.time_zone] = world.zones(each.schedule.time_zone)
            except Unusable as exc:
                _log.warning(
                    "%s: the reminder %s waits: %s", state.session, each.reminder, exc.message
                )
    return FireReminders(zones=zones)


async def fire_due(world: World, ledger: Ledger) -> bool:
    """
    Turn due reminders into inputs, and return whether any was due.

    Commit point. Crash before it: nothing has happened, and the next process finds the same
    reminders due. Crash after it: the inputs are owed like any other.
    """
    if not has_due(ledger.state, world.clock.now_ms()):
        return False
    outcome = await ledger.commit(firing(world, ledger.state), check=Check.FENCE)
    return bool(outcome.events)


# --- setting and cancelling by a command


async def set_by_source(
    world: World,
    ledger: Ledger,
    wanted: ReminderRequest,
    when: When,
    *,
    accept: AcceptInput,
) -> ReminderReport:
    """Set it with the source, agent, model and workspace that its message would have."""
    command = SetReminder(
        reminder=reminder_id(ledger.instance, world.random_bytes(16).hex()),
        text=wanted.text,
        schedule=when.schedule,
        zone=when.zone,
        may_prompt=wanted.may_prompt,
        source=accept.source,
        workspace=accept.workspace,
        agent=accept.agent,
        model=accept.model,
    )
    outcome = await ledger.commit(command, check=Check.FENCE)
    made = outcome.of(command)
    return reminder_report(ledger.session, ledger.instance, ledger.state.reminders[made.reminder])


def reports_of(
    session: SessionId, state: SessionState, reader_set: tuple[str, str] | None = None
) -> tuple[ReminderReport, ...]:
    """
    The active reminders, the next one first; with a reader set (audience, boundary), only those
    that a turn of it may see.
    """
    standing = sorted(state.reminders.values(), key=lambda each: (each.next_at, each.reminder))
    return tuple(
        reminder_report(session, state.instance, each)
        for each in standing
        if reader_set in (None, reader_set_of(each))
    )


# --- the tools


class ReminderWork:
    """
    A prepared call of one of the three reminder tools: its effect is an append to its own session.
    See `holdfast.ports.tools.Prepared`.
    """

    process: ProcessFacts | None = None

    def __init__(
        self, world: World, ledger: Ledger, turn: TurnId, call: CallId, tool: str, arguments: str
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._turn = turn
        self._call = call
        self._tool = tool
        self._arguments = arguments

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        del timeout_seconds  # one append; the lock has its own bound
        try:
            text = await self._work()
        except (Refused, Unusable) as exc:
            return ToolReturned(
                outcome="error", text=exc.message + (f" ({exc.hint})" if exc.hint else "")
            )
        on_output(text.encode())
        return ToolReturned(outcome="ok", text=text)

    async def abandon(self) -> None:
        """Nothing has begun."""

    async def _work(self) -> str:
        match self._tool:
            case "set_reminder":
                return await self._set(msgspec.json.decode(self._arguments, type=ReminderRequest))
            case "cancel_reminder":
                return await self._cancel(
                    msgspec.json.decode(self._arguments, type=_Named).reminder
                )
            case _:
                return self._listed()

    async def _set(self, wanted: ReminderRequest) -> str:
        when = when_of(self._world, wanted)
        command = SetReminder(
            reminder=reminder_id(self._ledger.instance, self._call),
            text=wanted.text,
            schedule=when.schedule,
            zone=when.zone,
            may_prompt=wanted.may_prompt,
            turn=self._turn,
            call=self._call,
        )
        # Crash before this commit: nothing is set, and the call runs again. Crash after it: the
        # call runs again too, and finds the reminder set.
        outcome = await self._ledger.drive(command, check=Check.FENCE)
        made = outcome.of(command)
        return f"{made.reminder} is set" + (
            f"; it is due at {iso(made.next_at)}"
            if made.next_at is not None
            else ", and has fired since"
        )

    async def _cancel(self, reminder: str) -> str:
        context = self._context()
        reader_set = (context.audience.value, context.boundary)
        command = CancelReminder(
            reminder=ReminderId(reminder), by=context.requester or "", reader_set=reader_set
        )
        outcome = await self._ledger.drive(command, check=Check.FENCE)
        return f"{reminder} {outcome.of(command)}"

    def _listed(self) -> str:
        context = self._context()
        found = reports_of(
            self._ledger.session, self._ledger.state, (context.audience.value, context.boundary)
        )
        return (
            "\n".join(
                f"{each.id}  next {each.next_at}  {each.when}  by {each.by}: {each.text}"
                for each in found
            )
            or "no reminders are set here"
        )

    def _context(self) -> TurnContext:
        turn = self._ledger.state.turns.get(self._turn)
        if turn is None or not isinstance(turn.context, TurnContext):
            raise Refused(
                "the turn's authority can't be restored, so nothing is there for it",
                code="no_authority",
            )
        return turn.context


class _Named(msgspec.Struct):
    reminder: str
