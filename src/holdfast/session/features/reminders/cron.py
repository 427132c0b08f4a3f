"""
Cron expressions of five fields: minute, hour, day of month, month, day of week. Pure: an expression
matches local wall-clock minutes, without any zone.

Fields take numbers, names of months and days, lists, ranges and steps. If both day fields are given
(neither begins with `*`), a day that fits either one fires, as in every cron. An invalid expression
is refused with the field's name and the nearest valid form.
"""

import re
from bisect import bisect_right
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from holdfast.errors import Unusable

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SHORT_FORMS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EXPRESSION_CHARS_MAX = (
    200  # long enough with ranges; only a list of every value of every field is longer
)
_PART = re.compile(
    r"(?P<from>\*|[0-9]{1,4}|[A-Za-z]{3})(?:-(?P<to>[0-9]{1,4}|[A-Za-z]{3}))?(?:/(?P<step>[0-9]{1,4}))?\Z"
)


class _Field(NamedTuple):
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


class CronTable(NamedTuple):
    """
    The matches of an expression. `minutes` are minutes of the day, ascending. Days of the week
    count from Sunday as 0.
    """

    minutes: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def has_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week

    def next_minute(self, after: datetime, *, until: datetime) -> datetime | None:
        """
        Return the first matching minute strictly after `after`, or None if there is none before
        `until`.
        """
        day, done = after.date(), after.hour * 60 + after.minute
        while day <= until.date():
            if self.has_day(day) and (place := bisect_right(self.minutes, done)) < len(
                self.minutes
            ):
                return datetime(day.year, day.month, day.day) + timedelta(  # noqa: DTZ001
                    minutes=self.minutes[place]
                )  # local wall-clock time
            day, done = day + timedelta(days=1), -1
        return None


@lru_cache(maxsize=256)
def cron_table(expression: str) -> CronTable:
    """
    Parse an expression. Raise Unusable with the field's name if it is invalid.

    >>> cron_table("30 9 * * MON-FRI").minutes
    (570,)
    """
    if (spelled := _SHORT_FORMS.get(expression.strip().lower())) is not None:
        raise _wrong(f"{expression.strip()!r} is a short form", f"write {spelled!r}")
    fields = expression.split() if len(expression) <= _EXPRESSION_CHARS_MAX else []
    if len(fields) != len(_FIELDS):
        number = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        count = f"has {number}" if fields else "is empty or too long"
        raise _wrong(
            f"{expression[:_EXPRESSION_CHARS_MAX]!r} {count}",
            "five are needed: minute hour day-of-month month day-of-week, as in '0 9 * * MON-FRI'",
        )
    minutes, hours, days, months, weekdays = (
        _values(text, field) for text, field in zip(fields, _FIELDS, strict=True)
    )
    return CronTable(
        minutes=tuple(hour * 60 + minute for hour in sorted(hours) for minute in sorted(minutes)),
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=not fields[2].startswith("*") and not fields[4].startswith("*"),
    )


def _wrong(what: str, hint: str) -> Unusable:
    return Unusable(f"cron: {what}", code="malformed", hint=hint)


def _values(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        found |= _part(part, field)
    return frozenset(found)


def _part(part: str, field: _Field) -> set[int]:
    read = _PART.match(part)
    if read is None:
        raise _wrong(
            f"the {field.name} {part!r} can't be read",
            f"use *, a value, a-b, */n or a-b/n, with {_span(field)}; lists with commas",
        )
    if read["from"] == "*":
        if read["to"] is not None:
            raise _wrong(f"the {field.name} {part!r} can't be read", "* has no end; write * or a-b")
        first, last = field.first, field.last
    else:
        first = _value(read["from"], field)
        last = _value(read["to"], field) if read["to"] is not None else first
    step = int(read["step"]) if read["step"] is not None else 1
    if read["step"] is not None and read["from"] != "*" and read["to"] is None:
        raise _wrong(
            f"the {field.name} {part!r} has a step and no end", f"write {first}-{field.last}/{step}"
        )
    if step < 1:
        raise _wrong(f"the {field.name} {part!r} has a step of 0", "the least step is 1")
    if first > last:
        raise _wrong(
            f"the {field.name} {part!r} ends before it begins",
            f"write {first}-{field.last},{field.first}-{last}",
        )
    return set(range(first, last + 1, step))


def _value(word: str, field: _Field) -> int:
    if word.isdigit():
        value = int(word)
        if not field.first <= value <= field.last:
            raise _wrong(
                f"the {field.name} {word} is not within {field.first}-{field.last}",
                f"use {_span(field)}",
            )
        return value
    if word.upper() not in field.names:
        raise _wrong(
            f"the {field.name} {word!r} is neither a name nor a number", f"use {_span(field)}"
        )
    return field.names.index(word.upper()) + field.first


def _span(field: _Field) -> str:
    return f"{field.first}-{field.last}" + (
        f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
    )
