"""
Compute when a reminder is due: once, at an even pace, or by a cron expression in a time zone. Pure:
instants are Unix milliseconds, zones come in as values.

* `every` counts from its first instant, so it never drifts: late or missed firings move nothing.
* A local time that does not exist (clocks go forward) is due at the first instant that does exist.
  One that occurs twice (clocks go back) is due the first time.
* The next instant is always later than the one before. Each is journalled when it is computed, so a
  replay needs no zone and no clock.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

import msgspec

from holdfast import limits
from holdfast.session.features.reminders.cron import cron_table

_SECOND = timedelta(seconds=1)
_HORIZON_MS = limits.REMINDER_HORIZON_SECONDS * 1000

FindZone = Callable[[str], tzinfo]
"""Finds a time zone by its name. Raises Unusable with the nearest name if the zone is unknown."""


class Once(msgspec.Struct, frozen=True, gc=False, tag="once", tag_field="kind"):
    at: int


class Every(msgspec.Struct, frozen=True, gc=False, tag="every", tag_field="kind"):
    """`first` is set when the reminder is set, and never moves."""

    seconds: int
    first: int


class Cron(msgspec.Struct, frozen=True, gc=False, tag="cron", tag_field="kind"):
    expression: str
    time_zone: str


Schedule = Once | Every | Cron


class Passed(NamedTuple):
    """
    The firings between a due instant and now: how many more were due, the last of them, and the
    next to come.
    """

    missed: int
    last_at: int
    next_at: int | None


def next_after(schedule: Schedule, after: int, zone: tzinfo | None = None) -> int | None:
    """
    Return the first instant strictly after `after`, or None if there is none before the horizon.

    >>> next_after(Every(60, 1_000), 61_000)
    121000
    """
    match schedule:
        case Once(at=at):
            return at if at > after else None
        case Every(seconds=seconds, first=first):
            return (
                first
                if after < first
                else first + ((after - first) // (seconds * 1000) + 1) * seconds * 1000
            )
        case Cron(expression=expression):
            return _next_cron(expression, after, zone or UTC)


def passed(schedule: Schedule, due: int, now: int, zone: tzinfo | None = None) -> Passed:
    """
    Count the instants after `due` that are over by `now`. The count is bounded, because the caller
    holds the lock meanwhile.
    """
    if isinstance(schedule, Every):
        missed = max(0, (now - due) // (schedule.seconds * 1000))
        return Passed(
            missed, due + missed * schedule.seconds * 1000, next_after(schedule, max(due, now))
        )
    missed, last = 0, due
    while (following := next_after(schedule, last, zone)) is not None and following <= now:
        if missed == limits.REMINDER_MISSED_COUNTED_MAX:
            return Passed(missed, last, next_after(schedule, now, zone))
        missed, last = missed + 1, following
    return Passed(missed, last, following)


def _next_cron(expression: str, after: int, zone: tzinfo) -> int | None:
    table = cron_table(expression)
    began = _moment(after)
    until = (began + timedelta(milliseconds=_HORIZON_MS)).astimezone(zone).replace(tzinfo=None)
    local: datetime | None = began.astimezone(zone).replace(tzinfo=None)
    while local is not None and (local := table.next_minute(local, until=until)) is not None:
        found = instant_of(local, zone)
        if found > after:  # else it is the second occurrence of an hour that has passed
            return found
    return None


def instant_of(local: datetime, zone: tzinfo) -> int:
    """
    Return the instant at which a wall clock in the zone shows this time. If the clock shows it
    twice, return the first; if never, return the first instant after the gap.
    """
    first = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == local:
        return _ms(first)
    # The time is in a gap. With the offset before the gap, it lies past the change. With the offset
    # after the gap, it lies before the change. So the change is in between.
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    after, offset = first, first.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return _ms(after)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def _ms(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def iso_minute(ms: int) -> str:
    """
    For people: UTC, to the second.

    >>> iso_minute(0)
    '1970-01-01T00:00:00Z'
    """
    return _moment(ms).isoformat(timespec="seconds").replace("+00:00", "Z")


def in_words(schedule: Schedule) -> str:
    """
    >>> in_words(Every(7200, 0)), in_words(Cron("0 9 * * 1", "Europe/Berlin"))
    ('every 2h', "by cron '0 9 * * 1' in Europe/Berlin")
    """
    match schedule:
        case Once(at=at):
            return f"once, at {iso_minute(at)}"
        case Every(seconds=seconds):
            return f"every {span_in_words(seconds)}"
        case Cron(expression=expression, time_zone=zone):
            return f"by cron {expression!r} in {zone}"


def span_in_words(seconds: int) -> str:
    unit, size = next(
        (unit, size)
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
        if seconds % size == 0
    )
    return f"{seconds // size}{unit}"
