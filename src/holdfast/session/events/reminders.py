"""Turns that a person wished for later."""

import msgspec

from holdfast.ids import (
    CallId,
    ReminderId,
    TurnId,
)
from holdfast.session.events.base import Event
from holdfast.session.features.reminders.schedule import Schedule


class ReminderSet(Event, frozen=True):
    """
    A turn is wished for later. `context` is its whole authority, narrowed from the creator's;
    without it, or with less of it, nothing fires.
    """

    reminder: ReminderId
    text: str
    schedule: Schedule
    context: msgspec.Raw
    by: str
    agent: str
    model: str
    next_at: int
    may_prompt: bool = False  # the creator's permission: prompts of its turns may reach the creator
    turn: TurnId | None = None  # the turn in which a tool set it, and the call
    call: CallId | None = None
    asserted_by: str | None = None


class ReminderFired(Event, frozen=True):
    """
    Its input was accepted right before this record, once for all processes. `next_at` None: it was
    the last time.
    """

    reminder: ReminderId
    turn: TurnId
    scheduled_at: int
    fired_at: int
    missed: int = 0  # further instants that passed meanwhile; they get no turn of their own
    next_at: int | None = None


class ReminderCancelled(Event, frozen=True):
    reminder: ReminderId
    by: str
    reason: str = ""
