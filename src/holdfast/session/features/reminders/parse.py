"""
Parse a schedule as people and models write it: `at`, `every` or `cron`, with a `time_zone` where
one is needed.

Pure: zones come in as a function, and now as a number. An invalid schedule is refused with the
field's name and the nearest valid form.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from holdfast import limits
from holdfast.errors import Unusable
from holdfast.session.features.reminders.cron import cron_table
from holdfast.session.features.reminders.schedule import (
    Cron,
    Every,
    FindZone,
    Once,
    Schedule,
    instant_of,
    iso_minute,
    next_after,
    span_in_words,
)

_AT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?P<offset>Z|[+-]\d\d:\d\d)?\Z", re.ASCII
)
_EVERY = re.compile(r"([1-9][0-9]{0,8})([smhdw])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_HORIZON_WORDS = f"{limits.REMINDER_HORIZON_SECONDS // 86400 // 366} years"


def read_schedule(
    *,
    at: str | None,
    every: str | None,
    cron: str | None,
    time_zone: str | None,
    find_zone: FindZone,
    now: int,
) -> Schedule:
    """Parse exactly one of the three. `Unusable` names the field and the error."""
    given = [
        name for name, value in (("at", at), ("every", every), ("cron", cron)) if value is not None
    ]
    if len(given) != 1:
        what = (
            "none of at, every and cron is given"
            if not given
            else f"{' and '.join(given)} are given together"
        )
        raise _wrong(
            what,
            "give exactly one: at '2026-11-17T09:00:00Z', every '2h', or cron '0 9 * * MON-FRI' "
            "with time_zone",
        )
    if at is not None:
        schedule: Schedule = _read_at(at, time_zone, find_zone)
    elif every is not None:
        schedule = _read_every(every, time_zone)
    else:
        schedule = _read_cron(cron or "", time_zone, find_zone)
    zone = find_zone(schedule.time_zone) if isinstance(schedule, Cron) else None
    first_instant(schedule, now, zone)
    return schedule


def first_instant(schedule: Schedule, now: int, zone: tzinfo | None) -> int:
    """
    Return the first due time after now. Raise `Unusable` if that is never, in the past, or too far
    away.
    """
    if isinstance(schedule, Every):
        return now + schedule.seconds * 1000
    found = next_after(schedule, now, zone)
    if found is None and isinstance(schedule, Cron):
        raise _wrong(
            f"cron: {schedule.expression!r} never fires (no such day within {_HORIZON_WORDS})",
            "check its day of month against its month",
        )
    if found is None:
        raise _wrong(f"at: it is {iso_minute(now)} already", "name a time that is still to come")
    if found > now + limits.REMINDER_HORIZON_SECONDS * 1000:
        raise _wrong(
            f"at: {iso_minute(found)} is more than {_HORIZON_WORDS} away", "name a nearer time"
        )
    return found


def _wrong(what: str, hint: str) -> Unusable:
    return Unusable(what, code="malformed", hint=hint)


def _read_at(text: str, time_zone: str | None, find_zone: FindZone) -> Once:
    read = _AT.match(text)
    if read is None:
        raise _no_date(text)
    if read["offset"] is not None and time_zone is not None:
        raise _wrong(
            f"time_zone: at {text!r} has an offset already",
            f"leave time_zone out, or write at {text[: read.start('offset')]!r}",
        )
    zone = find_zone(time_zone) if time_zone is not None else None
    try:
        moment = _whole_second(datetime.fromisoformat(text))
        if read["offset"] is not None:
            return Once(int(moment.astimezone(UTC).timestamp()) * 1000)
        if zone is not None:
            return Once(instant_of(moment, zone))
    except (
        ValueError,
        OverflowError,
    ) as exc:  # no such day, or a day that is outside the calendar in UTC
        raise _no_date(text) from exc
    raise _wrong(
        f"at: {text!r} does not say in which time zone",
        f"write {text}Z, or name a time_zone such as Europe/Berlin",
    )


def _no_date(text: str) -> Unusable:
    hint = "write 2026-11-17T09:00:00Z, 2026-11-17T09:00+01:00, or 2026-11-17T09:00 with time_zone"
    return _wrong(f"at: {text[:80]!r} is not a date and time", hint)


def _whole_second(moment: datetime) -> datetime:
    """Return the first whole second that is not before it: a reminder never comes early."""
    return moment.replace(microsecond=0) + timedelta(seconds=1 if moment.microsecond else 0)


def _read_every(text: str, time_zone: str | None) -> Every:
    read = _EVERY.match(text)
    if read is None:
        raise _wrong(
            f"every: {text[:80]!r} is not a span of time",
            "write a whole number and s, m, h, d or w, as in 90m or 1d",
        )
    if time_zone is not None:
        raise _wrong(
            "time_zone: an even pace has none", "leave it out, or use cron for a time of day"
        )
    seconds = int(read[1]) * _SECONDS[read[2]]
    if not limits.REMINDER_EVERY_SECONDS_MIN <= seconds <= limits.REMINDER_HORIZON_SECONDS:
        least = span_in_words(limits.REMINDER_EVERY_SECONDS_MIN)
        raise _wrong(
            f"every: {text} is not between {least} and {_HORIZON_WORDS}",
            f"{least} is the least; to act more often, run a program of your own",
        )
    return Every(seconds, 0)


def _read_cron(text: str, time_zone: str | None, find_zone: FindZone) -> Cron:
    cron_table(text)
    if time_zone is None:
        raise _wrong(f"time_zone: cron {text!r} needs one", "name it, such as Europe/Berlin or UTC")
    find_zone(time_zone)
    return Cron(" ".join(text.split()), time_zone)
