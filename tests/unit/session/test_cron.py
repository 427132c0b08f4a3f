"""
The times that a cron expression matches, and the refusal of an invalid one: by field, with the
nearest form that can.
"""

from datetime import datetime, timedelta

import pytest

from holdfast.errors import Unusable
from holdfast.session.features.reminders.cron import cron_table

MONDAY = datetime(2026, 11, 16)  # noqa: DTZ001  # local wall-clock time, as cron means it


def following(expression: str, count: int = 3, after: datetime = MONDAY) -> list[str]:
    found = []
    for _ in range(count):
        following_one = cron_table(expression).next_minute(
            after, until=after + timedelta(days=366 * 9)
        )
        if following_one is None:
            break
        after = following_one
        found.append(after.strftime("%a %Y-%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * *", ["Mon 2026-11-16 09:00", "Tue 2026-11-17 09:00", "Wed 2026-11-18 09:00"]),
        (
            "*/20 9-10 * * *",
            ["Mon 2026-11-16 09:00", "Mon 2026-11-16 09:20", "Mon 2026-11-16 09:40"],
        ),
        (
            "0 9 * * MON-FRI",
            ["Mon 2026-11-16 09:00", "Tue 2026-11-17 09:00", "Wed 2026-11-18 09:00"],
        ),
        (
            "0 9 * * sat,SUN",
            ["Sat 2026-11-21 09:00", "Sun 2026-11-22 09:00", "Sat 2026-11-28 09:00"],
        ),
        ("0 0 * * 7", ["Sun 2026-11-22 00:00", "Sun 2026-11-29 00:00", "Sun 2026-12-06 00:00"]),
        (
            "30 6 1 JAN,jul *",
            ["Fri 2027-01-01 06:30", "Thu 2027-07-01 06:30", "Sat 2028-01-01 06:30"],
        ),
        ("0 0 29 2 *", ["Tue 2028-02-29 00:00", "Sun 2032-02-29 00:00", "Fri 2036-02-29 00:00"]),
        (
            "5,10-12/2 0 16 11 *",
            ["Mon 2026-11-16 00:05", "Mon 2026-11-16 00:10", "Mon 2026-11-16 00:12"],
        ),
        # Both days given: either fits.
        ("0 0 20 * MON", ["Fri 2026-11-20 00:00", "Mon 2026-11-23 00:00", "Mon 2026-11-30 00:00"]),
        # One of them begins with *: both must fit.
        (
            "0 0 */10 * MON",
            ["Mon 2026-12-21 00:00", "Mon 2027-01-11 00:00", "Mon 2027-02-01 00:00"],
        ),
        ("0 0 31 4,6 *", []),
    ],
)
def test_an_expression_matches_these_minutes(expression: str, expected: list[str]) -> None:
    assert following(expression) == expected


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("0 9 * *", "'0 9 * *' has 4 fields", "five are needed"),
        ("0 0 9 * * *", "has 6 fields", "five are needed"),
        ("", "is empty or too long", "five are needed"),
        ("1," * 150 + "1 * * * *", "is empty or too long", "five are needed"),
        ("@daily", "'@daily' is a short form", "'0 0 * * *'"),
        ("60 * * * *", "the minute 60 is not within 0-59", "0-59"),
        ("* 24 * * *", "the hour 24 is not within 0-23", "0-23"),
        ("* * 0 * *", "the day of month 0 is not within 1-31", "1-31"),
        ("* * * 13 *", "the month 13 is not within 1-12", "JAN-DEC"),
        ("* * * * 8", "the day of week 8 is not within 0-7", "SUN-SAT"),
        ("* * * * MOO", "the day of week 'MOO' is neither a name nor a number", "SUN-SAT"),
        ("* * JAN * *", "the day of month 'JAN' is neither a name nor a number", "1-31"),
        ("*/0 * * * *", "a step of 0", "least step is 1"),
        ("5/10 * * * *", "a step and no end", "5-59/10"),
        ("* 22-4 * * *", "ends before it begins", "22-23,0-4"),
        ("*-5 * * * *", "can't be read", "* has no end"),
        ("1, * * * *", "the minute '' can't be read", "lists with commas"),
        ("L * * * *", "the minute 'L' can't be read", "*/n"),
        ("１ * * * *", "can't be read", "*/n"),
    ],
)
def test_an_unreadable_cron_expression_is_refused_with_a_hint(
    expression: str, message: str, hint: str
) -> None:
    with pytest.raises(Unusable) as caught:
        cron_table(expression)
    assert caught.value.message.startswith("cron: ")
    assert message in caught.value.message
    assert hint in caught.value.hint
