"""
Apply the three reminder events to the state. Every fold restores a reminder's authority here, and
no part of it has a default.

A reminder that lost a part of its context stays in the list, gives the reason, and never fires. If
one fires out of turn, Holdfast did not write that record, and history is not believed.
"""

from typing import Final

from msgspec.structs import replace

from holdfast.errors import Unusable
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.authority.restore import restore
from holdfast.session.events import InputAccepted, ReminderCancelled, ReminderFired, ReminderSet
from holdfast.session.features.reminders.cron import cron_table
from holdfast.session.features.reminders.schedule import Cron, Every, Schedule
from holdfast.session.state import Reminder, ReminderOver, SessionState
from holdfast.session.transitions import IllegalTransition

REMINDER: Final = "reminder"


def reminder_moved(
    state: SessionState, event: ReminderSet | ReminderFired | ReminderCancelled, at: int
) -> SessionState:
    match event:
        case ReminderSet():
            return _set(state, event, at)
        case ReminderFired():
            return _fired(state, event)
        case ReminderCancelled():
            return _cancelled(state, event)


def _set(state: SessionState, event: ReminderSet, at: int) -> SessionState:
    if event.reminder in state.reminders:
        raise IllegalTransition(None, event, f"{event.reminder} stands already")
    reminder = Reminder(
        reminder=event.reminder,
        text=event.text,
        schedule=event.schedule,
        context=_restored(state, event),
        by=event.by,
        agent=event.agent,
        model=event.model,
        set_at=at,
        next_at=event.next_at,
        may_prompt=event.may_prompt,
        turn=event.turn,
        asserted_by=event.asserted_by,
    )
    return replace(state, reminders={**state.reminders, event.reminder: reminder})


def _restored(state: SessionState, event: ReminderSet) -> TurnContext | LostContext:
    """
    Restore the reminder's context. It must be whole, belong to this instance and agree with the
    rest of the record. Otherwise it is lost, with the field's name.
    """
    context = restore(event.context, session=state.session, instance=state.instance)
    if isinstance(context, LostContext):
        return context
    if context.provenance.kind != REMINDER:
        return LostContext(
            f"the reminder's context is that of a {context.provenance.kind}", "provenance"
        )
    if context.requester is None or context.requester != event.by:
        return LostContext(
            f"the reminder was set by {event.by}, and its context is another's", "requester"
        )
    if context.interactive != event.may_prompt:
        return LostContext("whether prompts may reach somebody is said in two ways", "interactive")
    if flaw := _flaw_of(event.schedule):
        return LostContext(f"the reminder's schedule can't be kept: {flaw}", "schedule")
    return context


def _flaw_of(schedule: Schedule) -> str | None:
    """Return a flaw that would make a later step fail instead of this one, or None."""
    match schedule:
        case Every(seconds=seconds) if seconds < 1:
            return f"a pace of {seconds} s"
        case Cron(expression=expression):
            try:
                cron_table(expression)
            except Unusable as exc:
                return exc.message
        case _:
            pass
    return None


def _fired(state: SessionState, event: ReminderFired) -> SessionState:
    known = state.reminders.get(event.reminder)
    if (
        known is None
        or known.next_at != event.scheduled_at
        or (event.next_at is not None and event.next_at <= event.scheduled_at)
    ):
        raise IllegalTransition(
            None, event, f"{event.reminder} was not due at {event.scheduled_at}"
        )
    if event.next_at is None:
        return _over(state, known, "fired")
    moved = replace(known, next_at=event.next_at, fired=known.fired + 1, fired_at=event.fired_at)
    return replace(state, reminders={**state.reminders, event.reminder: moved})


def _cancelled(state: SessionState, event: ReminderCancelled) -> SessionState:
    known = state.reminders.get(event.reminder)
    if known is None:
        raise IllegalTransition(None, event, f"{event.reminder} does not stand")
    return _over(state, known, f"cancelled by {event.by}")


def _over(state: SessionState, known: Reminder, how: str) -> SessionState:
    left = {name: each for name, each in state.reminders.items() if name != known.reminder}
    over = ReminderOver(how, *(reader_set_of(known) or ("", "")))
    return replace(
        state, reminders=left, reminders_over=state.reminders_over.add(known.reminder, over)
    )


def reader_set_of(reminder: Reminder) -> tuple[str, str] | None:
    """Return the audience and boundary, or None for a lost context."""
    context = reminder.context
    return (context.audience.value, context.boundary) if isinstance(context, TurnContext) else None


def firing_key(reminder: str, scheduled_at: int) -> str:
    """
    Return the dedup key of one firing. If a crash kept the input without the record after it, the
    input is not accepted again.
    """
    return f"{reminder}@{scheduled_at}"


def was_fired(state: SessionState, event: InputAccepted) -> bool:
    """
    Check that an input comes from a reminder that is set here, and not from a channel with the same
    name.
    """
    return (
        event.kind == REMINDER
        and event.dedup is not None
        and event.dedup.partition("@")[0] in state.reminders
    )
