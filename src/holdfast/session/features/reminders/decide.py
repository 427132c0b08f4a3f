"""
Set, fire and cancel reminders.

A reminder gets its creator's authority, or less, and none from anywhere else. It fires once for all
processes: firing is decided under the write lock, on the folded state. The commit that accepts the
input also moves the next instant.
"""

import msgspec

from holdfast import limits
from holdfast.errors import Refused, Unusable
from holdfast.ids import InputId, TurnId, turn_id
from holdfast.session.authority.context import (
    Audience,
    LostContext,
    Principal,
    TurnContext,
    context_from_source,
    narrowed,
)
from holdfast.session.commands import CancelReminder, FireReminders, SetReminder
from holdfast.session.decide.decision import Decided, refused
from holdfast.session.decide.inputs import DELEGATE_HINT
from holdfast.session.events import (
    InputAccepted,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
    SessionEvent,
)
from holdfast.session.evolve.inputs import dedup_key
from holdfast.session.features.reminders.evolve import REMINDER, firing_key, reader_set_of
from holdfast.session.features.reminders.parse import first_instant
from holdfast.session.features.reminders.schedule import (
    Cron,
    Every,
    Passed,
    Schedule,
    iso_minute,
    passed,
)
from holdfast.session.results import ReminderStanding
from holdfast.session.state import CallStatus, Reminder, SessionState

OURSELVES = "holdfast"


def set_reminder(state: SessionState, command: SetReminder, now: int) -> Decided[ReminderStanding]:
    if (known := state.reminders.get(command.reminder)) is not None:
        return Decided(outcome=ReminderStanding(command.reminder, known.next_at))
    if command.reminder in state.reminders_over:
        return Decided(outcome=ReminderStanding(command.reminder, None))
    if (over := no_reminder(state)) is not None:
        return refused(over[0], over[1], hint=DELEGATE_HINT)
    if problem := _too_much(state, command):
        return problem
    try:
        context = _authority(state, command)
        next_at = first_instant(command.schedule, now, command.zone)
    except Refused as exc:
        return Decided(refusal=exc)
    except Unusable as exc:
        return refused(exc.code, exc.message, hint=exc.hint)
    if isinstance(command.schedule, Cron) and command.zone is None:
        return refused(
            "malformed",
            f"time_zone: {command.schedule.time_zone} can't be read here",
            hint="name a zone that this machine has",
        )
    turn = state.turns.get(command.turn) if command.turn is not None else None
    event = ReminderSet(
        reminder=command.reminder,
        text=command.text,
        schedule=_anchored(command.schedule, next_at),
        context=msgspec.Raw(msgspec.json.encode(context)),
        by=context.requester or "",
        agent=turn.agent if turn is not None else command.agent,
        model=turn.model if turn is not None else command.model,
        next_at=next_at,
        may_prompt=command.may_prompt,
        turn=command.turn,
        call=command.call,
        asserted_by=command.source.asserted_by if command.source is not None else None,
    )
    return Decided((event,), outcome=ReminderStanding(command.reminder, next_at))


def no_reminder(state: SessionState) -> tuple[str, str] | None:
    """Return why no reminder can be set here, as a code and a text for the model, or None."""
    if state.parent is None:
        return None
    # A delegate's session ends with its one answer. A later turn would belong to nobody, and a
    # cancel of the request would not reach it.
    return (
        "delegate_reminder",
        (
            "a delegate sets no reminders: it is over once it has answered; leave it to the agent"
            " that asked you"
        ),
    )


def _anchored(schedule: Schedule, first: int) -> Schedule:
    return Every(schedule.seconds, first) if isinstance(schedule, Every) else schedule


def _too_much(state: SessionState, command: SetReminder) -> Decided[ReminderStanding] | None:
    try:
        size = len(command.text.encode())
    except UnicodeEncodeError:
        return refused(
            "malformed",
            "text: it holds half a character (a lone surrogate)",
            hint="write well-formed Unicode text",
        )
    if not command.text.strip():
        return refused("malformed", "text: it is empty", hint="say what the turn should be about")
    if size > limits.REMINDER_TEXT_BYTES_MAX:
        return refused(
            "too_large",
            f"text: it has {size} bytes; {limits.REMINDER_TEXT_BYTES_MAX} are the most",
            hint="put it into a file and name the file",
        )
    if len(state.reminders) >= limits.REMINDERS_PER_SESSION_MAX:
        return refused(
            "too_many",
            f"this session has {len(state.reminders)} reminders already",
            hint="cancel some, or use another session",
        )
    return None


def _authority(state: SessionState, command: SetReminder) -> TurnContext:
    """
    Return the creator's authority, narrowed: no wider audience, no more than automation. Prompts
    are possible only if the creator could be asked and allows them.
    """
    parent = _creator(state, command)
    if parent.requester is None:
        raise Refused(
            "nobody is known to ask for this reminder, so it would have no authority",
            code="no_authority",
        )
    if parent.audience is Audience.PUBLIC:
        raise Refused(
            "a public turn sets no reminders",
            code="no_authority",
            hint="ask in a conversation of your own",
        )
    untrusted = parent.principal is Principal.UNTRUSTED_EXTERNAL
    return narrowed(
        parent,
        session=state.session,
        instance=state.instance,
        turn=TurnId(command.reminder),  # until it fires and its turn has an id
        kind=REMINDER,
        principal=Principal.UNTRUSTED_EXTERNAL if untrusted else Principal.VERIFIED_AUTOMATION,
        interactive=command.may_prompt,
        channel=REMINDER,
    )


def _creator(state: SessionState, command: SetReminder) -> TurnContext:
    if command.turn is None:
        return context_from_source(
            command.source,
            session=state.session,
            instance=state.instance,
            turn=TurnId(command.reminder),
            workspace=command.workspace,
        )
    turn = state.turns.get(command.turn)
    call = state.open_call(command.turn, command.call) if command.call is not None else None
    if turn is None or call is None or call.status is not CallStatus.STARTED:
        raise Refused(
            f"no started call of {command.turn} asks for this reminder", code="no_authority"
        )
    if isinstance(turn.context, LostContext):
        raise Refused(turn.context.reason, code="no_authority")
    return turn.context


def is_due(reminder: Reminder, now: int) -> bool:
    return reminder.next_at <= now


def fire_reminders(
    state: SessionState, command: FireReminders, now: int
) -> Decided[tuple[TurnId, ...] | None]:
    """
    Turn each due reminder into one input, however often it was missed. A reminder that lost its
    authority is cancelled instead, with the reason.
    """
    events: list[SessionEvent] = []
    turns: list[TurnId] = []
    room = limits.QUEUED_INPUTS_MAX - len(state.queued)
    for reminder in sorted(
        state.reminders.values(), key=lambda each: (each.next_at, each.reminder)
    ):
        if state.carrying or not is_due(reminder, now):
            continue
        if isinstance(reminder.context, LostContext):
            events.append(
                ReminderCancelled(
                    reminder=reminder.reminder,
                    by=OURSELVES,
                    reason=f"never fired: {reminder.context.reason}",
                )
            )
            continue
        if (over := no_reminder(state)) is not None:
            events.append(
                ReminderCancelled(
                    reminder=reminder.reminder, by=OURSELVES, reason=f"never fired: {over[1]}"
                )
            )
            continue
        named = reminder.schedule.time_zone if isinstance(reminder.schedule, Cron) else None
        if len(turns) >= room or (named is not None and named not in command.zones):
            # It stays due until the queue has room again, or until a process that has the zone
            # fires it.
            continue
        gone = passed(
            reminder.schedule,
            reminder.next_at,
            now,
            command.zones[named] if named is not None else None,
        )
        accepted = _accepted(
            state, reminder, reminder.context, gone, now, ordinal=state.inputs + 1 + len(turns)
        )
        # Write the input first. If a crash keeps only the input, its key is known, and only the
        # record after it is written again. In the other order, the firing would be lost.
        if isinstance(accepted, InputAccepted):
            events.append(accepted)
            turns.append(accepted.turn)
        fired = ReminderFired(
            reminder=reminder.reminder,
            turn=accepted.turn if isinstance(accepted, InputAccepted) else accepted,
            scheduled_at=reminder.next_at,
            fired_at=now,
            missed=gone.missed,
            next_at=gone.next_at,
        )
        events.append(fired)
    return Decided(tuple(events), outcome=tuple(turns))


def _accepted(
    state: SessionState,
    reminder: Reminder,
    context: TurnContext,
    gone: Passed,
    now: int,
    *,
    ordinal: int,
) -> InputAccepted | TurnId:
    """Return the input, under the stored context only, or the turn that has it already."""
    key = firing_key(reminder.reminder, reminder.next_at)
    if (seen := state.dedup.get(dedup_key(context, key))) is not None:
        return seen.turn
    turn = turn_id(ordinal)
    return InputAccepted(
        input=InputId(f"i{ordinal}"),
        turn=turn,
        text=firing_text(reminder, gone, now),
        context=msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(context, turn=turn))),
        agent=reminder.agent,
        model=reminder.model,
        kind=REMINDER,
        dedup=key,
        asserted_by=reminder.asserted_by,
    )


LATE = "\n\n(This reminder comes late: "


def firing_text(reminder: Reminder, gone: Passed, now: int) -> str:
    """Return the reminder's text, with a remark if it comes late or stands for several firings."""
    if not gone.missed and now - reminder.next_at < limits.REMINDER_LATE_SECONDS * 1000:
        return reminder.text
    missed = ""
    if gone.missed:
        many = (
            f"{gone.missed} or more"
            if gone.missed == limits.REMINDER_MISSED_COUNTED_MAX
            else str(gone.missed)
        )
        missed = (
            f" {many} later one{'s were' if gone.missed > 1 else ' was'} missed too, the last at"
            f" {iso_minute(gone.last_at)}; this turn stands for all."
        )
    return (
        f"{reminder.text}{LATE}it was due at {iso_minute(reminder.next_at)}, and it is"
        f" {iso_minute(now)}.{missed})"
    )


def cancel_reminder(state: SessionState, command: CancelReminder) -> Decided[str]:
    known = state.reminders.get(command.reminder)
    over = state.reminders_over.get(command.reminder)
    if (
        known is None
        and over is not None
        and command.reader_set in (None, (over.audience, over.boundary))
    ):
        return Decided(outcome=f"is over already: {over.how}")
    if known is None or command.reader_set not in (None, reader_set_of(known)):
        return refused(
            "unknown",
            f"no reminder {command.reminder} here",
            hint="list the reminders, and name one by its whole id",
        )
    if known.by != command.by and not command.may_all:
        return refused(
            "no_authority",
            f"{known.by} set {command.reminder}, and {command.by} may not cancel it",
            hint="who set it, or the operator, may",
        )
    return Decided(
        (ReminderCancelled(reminder=command.reminder, by=command.by),), outcome="is cancelled"
    )
