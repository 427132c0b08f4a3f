"""Turns that a person wishes for later."""

from collections.abc import Mapping
from datetime import tzinfo

from holdfast.ids import CallId, ReminderId, TurnId
from holdfast.session.authority.context import MessageSource, Workspace
from holdfast.session.commands.base import Command
from holdfast.session.features.reminders.schedule import Schedule
from holdfast.session.results import (
    ReminderStanding,
)


class SetReminder(Command[ReminderStanding], frozen=True):
    """
    Set a reminder, which starts a turn later. A tool sets it from the named turn and call; the
    journalled context is then its only authority. A command sets it from the caller's source.
    """

    reminder: ReminderId
    text: str
    schedule: Schedule
    zone: tzinfo | None = None  # the time zone that the schedule names
    may_prompt: bool = False
    turn: TurnId | None = None
    call: CallId | None = None
    source: MessageSource | None = None
    workspace: Workspace | None = None
    agent: str = ""
    model: str = ""


class FireReminders(Command[tuple[TurnId, ...] | None], frozen=True):
    """
    Turn due reminders into inputs. `zones` are the time zones that the set reminders name. A
    reminder whose zone is missing waits.
    """

    zones: Mapping[str, tzinfo] = {}


class CancelReminder(Command[str], frozen=True):
    """
    Cancel a reminder. `reader set` is the (audience, boundary) of the turn that asks; a reminder
    outside of it is not found. `may_all`: the operator, who may cancel other people's reminders.
    """

    reminder: ReminderId
    by: str
    may_all: bool = False
    reader_set: tuple[str, str] | None = None
