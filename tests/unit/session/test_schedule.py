"""
When a reminder is due: no drift, each instant once, and what clocks that go forward and back do to
it.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.errors import Unusable
from holdfast.session.features.reminders.cron import cron_table
from holdfast.session.features.reminders.parse import first_instant, read_schedule
from holdfast.session.features.reminders.schedule import (
    Cron,
    Every,
    Once,
    Passed,
    instant_of,
    next_after,
    passed,
)

MINUTE = 60_000
ZONES = {
    "Europe/Berlin": "an hour, in the night",
    "America/New_York": "an hour, on other days",
    "Australia/Lord_Howe": "half an hour, in the south",
    "America/Santiago": "at midnight: a day begins at one",
    "Asia/Kathmandu": "no change, and a quarter of an hour off",
    "Africa/Casablanca": "twice a year, around Ramadan",
    "UTC": "nothing ever",
}


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def local(instant: int, zone: str) -> str:
    return (
        datetime.fromtimestamp(instant / 1000, UTC)
        .astimezone(ZoneInfo(zone))
        .strftime("%m-%d %H:%M %z")
    )


def instants(expression: str, zone: str, after: str, count: int) -> list[str]:
    found, at = [], ms(after)
    for _ in range(count):
        following = next_after(Cron(expression, zone), at, ZoneInfo(zone))
        assert following is not None
        at = following
        found.append(local(at, zone))
    return found


# --- clocks that go forward and back


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # Forward, 2027-03-28 02:00 -> 03:00: what would be in between comes at once, when the hour
        # is over, and once.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2027-03-27T00:00+01:00",
            ["03-27 02:30 +0100", "03-28 03:00 +0200", "03-29 02:30 +0200"],
        ),
        (
            "*/20 2 * * *",
            "Europe/Berlin",
            "2027-03-28T00:00+01:00",
            ["03-28 03:00 +0200", "03-29 02:00 +0200"],
        ),
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2027-03-28T01:15+01:00",
            ["03-28 01:30 +0100", "03-28 03:00 +0200", "03-28 03:30 +0200"],
        ),
        # Back, 2027-10-31 03:00 -> 02:00: the first time counts.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2027-10-30T12:00+02:00",
            ["10-31 02:30 +0200", "11-01 02:30 +0100"],
        ),
        (
            "0 * * * *",
            "Europe/Berlin",
            "2027-10-31T01:30+02:00",
            ["10-31 02:00 +0200", "10-31 03:00 +0100"],
        ),
        ("*/20 2 * * *", "Europe/Berlin", "2027-10-31T02:30+01:00", ["11-01 02:00 +0100"]),
        # Half an hour.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00+10:30",
            ["10-04 02:30 +1100", "10-05 02:15 +1100"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2027-04-03T12:00+11:00",
            ["04-04 01:45 +1100", "04-05 01:45 +1030"],
        ),
        # A day that begins at one o'clock.
        (
            "0 0 * * *",
            "America/Santiago",
            "2026-09-05T12:00-04:00",
            ["09-06 01:00 -0300", "09-07 00:00 -0300"],
        ),
    ],
)
def test_a_time_that_is_missing_comes_when_it_can_and_one_that_is_there_twice_comes_once(
    expression: str, zone: str, after: str, expected: list[str]
) -> None:
    assert instants(expression, zone, after, len(expected)) == expected


def test_a_whole_day_that_is_missing_comes_when_it_is_over() -> None:
    """Samoa had no 30 December 2011."""
    assert instants("0 9 30 12 *", "Pacific/Apia", "2011-12-29T00:00-10:00", 1) == [
        "12-31 00:00 +1400"
    ]


@pytest.mark.parametrize(
    ("wall", "expected"),
    [("2027-03-28T02:30", "2027-03-28T01:00Z"), ("2027-10-31T02:30", "2027-10-31T00:30Z")],
)
def test_a_single_time_of_day_follows_the_same_rule(wall: str, expected: str) -> None:
    schedule = read(at=wall, time_zone="Europe/Berlin", now=ms("2027-01-01T00:00Z"))
    assert schedule == Once(ms(expected))


# --- against a reference that is too slow to be wrong


def reference(expression: str, zone: tzinfo, after: int, until: int) -> list[int]:
    """
    Minute by minute: what the wall clock shows, whether it shows it for the first time, and what it
    has just left out.
    """
    table, found = cron_table(expression), []
    minute = datetime.fromtimestamp(after / 1000, UTC).replace(second=0, microsecond=0)
    shown = minute.astimezone(zone)
    while (minute := minute + timedelta(minutes=1)).timestamp() * 1000 <= until:
        before, shown = shown.replace(tzinfo=None), minute.astimezone(zone)
        here = shown.replace(tzinfo=None, fold=0)
        skipped = [
            before + timedelta(minutes=step)
            for step in range(1, max(1, int((here - before) / timedelta(minutes=1))))
        ]
        fits = [
            each
            for each in (*skipped, *([here] if shown.fold == 0 else []))
            if table.has_day(each.date()) and each.hour * 60 + each.minute in table.minutes
        ]
        if fits:
            found.append(int(minute.timestamp() * 1000))
    return found


def field(first: int, last: int) -> st.SearchStrategy[str]:
    value = st.integers(first, last)
    ranges = st.tuples(value, value).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.tuples(st.one_of(st.just("*"), ranges), st.integers(1, last)).map(
        lambda pair: f"{pair[0]}/{pair[1]}"
    )
    part = st.one_of(value.map(str), ranges, steps)
    return st.one_of(
        st.just("*"), st.just("*"), part, st.lists(part, min_size=2, max_size=3).map(",".join)
    )


EXPRESSIONS = st.tuples(
    field(0, 59),
    field(0, 23),
    st.one_of(st.just("*"), field(1, 31)),
    st.just("*"),
    st.one_of(st.just("*"), field(0, 7)),
).map(" ".join)
# Days around a change somewhere, and days without one.
DAYS = st.sampled_from(
    [
        "2027-03-13",
        "2027-03-27",
        "2027-10-30",
        "2026-11-01",
        "2026-10-03",
        "2027-04-03",
        "2026-09-05",
        "2027-02-06",
        "2027-03-13",
        "2026-06-01",
    ]
)


@given(
    expression=EXPRESSIONS,
    zone=st.sampled_from(sorted(ZONES)),
    day=DAYS,
    offset=st.integers(0, 1440 * MINUTE),
)
def test_cron_says_what_a_look_at_every_minute_says(
    expression: str, zone: str, day: str, offset: int
) -> None:
    """In every zone, across every change, from any millisecond."""
    after = ms(f"{day}T00:00Z") + offset
    until = after + 26 * 60 * MINUTE
    found, at = [], after
    while (
        following := next_after(Cron(expression, zone), at, ZoneInfo(zone))
    ) is not None and following <= until:
        assert following > at
        at = following
        found.append(at)
    assert found == reference(expression, ZoneInfo(zone), after, until)


# --- no drift


@given(
    seconds=st.integers(60, 10**7),
    first=st.integers(10**12, 2 * 10**12),
    since=st.integers(-(10**6), 10**12),
)
def test_an_even_pace_never_drifts(seconds: int, first: int, since: int) -> None:
    """
    Every instant lies a whole number of steps after the first, strictly after what was asked, and
    none is left out.
    """
    after = first + since
    found = next_after(Every(seconds, first), after)
    assert found is not None
    assert found > after
    assert (found - first) % (seconds * 1000) == 0
    assert found == first or found - seconds * 1000 <= after


@given(seconds=st.integers(60, 10**5), due=st.integers(0, 50), late=st.integers(0, 10**9))
def test_missed_times_of_an_interval_are_counted_and_do_not_shift_it(
    seconds: int, due: int, late: int
) -> None:
    schedule = Every(seconds, 10**12)
    at = schedule.first + due * seconds * 1000
    now = at + late
    gone = passed(schedule, at, now)
    between = late // (seconds * 1000)
    assert gone == Passed(
        between, at + between * seconds * 1000, at + (between + 1) * seconds * 1000
    )
    assert gone.next_at is not None
    assert gone.next_at > now


def test_missed_cron_times_are_counted_up_to_a_bound_and_the_next_is_after_now() -> None:
    schedule, utc = Cron("* * * * *", "UTC"), UTC
    assert passed(schedule, 0, 5 * MINUTE + 1, utc) == Passed(5, 5 * MINUTE, 6 * MINUTE)
    year = 525_600 * MINUTE
    gone = passed(schedule, 0, year, utc)
    assert gone == Passed(
        limits.REMINDER_MISSED_COUNTED_MAX,
        limits.REMINDER_MISSED_COUNTED_MAX * MINUTE,
        year + MINUTE,
    )


def test_a_single_one_is_over_after_its_time() -> None:
    assert passed(Once(1_000), 1_000, 9_000) == Passed(0, 1_000, None)
    assert (next_after(Once(1_000), 999), next_after(Once(1_000), 1_000)) == (1_000, None)


def test_a_leap_day_is_always_within_the_horizon() -> None:
    assert next_after(Cron("0 0 29 2 *", "UTC"), ms("2028-02-29T00:00Z"), UTC) == ms(
        "2032-02-29T00:00Z"
    )


# --- as people write it


def zone_named(name: str) -> tzinfo:
    return ZoneInfo(name)


def read(*, now: int = ms("2026-11-16T12:00Z"), **given: str) -> Once | Every | Cron:
    return read_schedule(
        **{"at": None, "every": None, "cron": None, "time_zone": None, **given},
        find_zone=zone_named,
        now=now,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"at": "2026-11-17T09:00:00Z"}, Once(ms("2026-11-17T09:00Z"))),
        ({"at": "2026-11-17 09:00+01:00"}, Once(ms("2026-11-17T08:00Z"))),
        ({"at": "2026-11-17T09:00", "time_zone": "Europe/Berlin"}, Once(ms("2026-11-17T08:00Z"))),
        ({"at": "2026-11-17T09:00:00.000Z"}, Once(ms("2026-11-17T09:00Z"))),
        ({"at": "2026-11-17T08:59:59.000001+00:00"}, Once(ms("2026-11-17T09:00Z"))),  # never early
        ({"at": "2026-11-17T08:59:59.5", "time_zone": "UTC"}, Once(ms("2026-11-17T09:00Z"))),
        ({"every": "90m"}, Every(5400, 0)),
        ({"every": "1w"}, Every(604800, 0)),
        ({"cron": "0  9 * * MON", "time_zone": "UTC"}, Cron("0 9 * * MON", "UTC")),
    ],
)
def test_a_schedule_is_read_as_it_is_meant(given: dict[str, str], expected: object) -> None:
    assert read(**given) == expected


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({}, "none of at, every and cron", "exactly one"),
        (
            {"at": "2026-11-17T09:00Z", "every": "1h"},
            "at and every are given together",
            "exactly one",
        ),
        ({"at": "tomorrow"}, "at: 'tomorrow' is not a date and time", "2026-11-17T09:00:00Z"),
        ({"at": "2026-11-17"}, "at: '2026-11-17' is not a date and time", "time_zone"),
        (
            {"at": "2026-11-17T09:00.5Z"},
            "at: '2026-11-17T09:00.5Z' is not a date and time",
            "write",
        ),
        (
            {"at": "9999-12-31T23:59:59.9Z"},
            "at: '9999-12-31T23:59:59.9Z' is not a date and time",
            "write",
        ),
        ({"at": "2026-02-30T09:00Z"}, "at: '2026-02-30T09:00Z' is not a date and time", "write"),
        (
            {"at": "9999-12-31T23:59:59-12:00"},
            "at: '9999-12-31T23:59:59-12:00' is not a date and time",
            "write",
        ),
        (
            {"at": "0001-01-01T00:00+14:00"},
            "at: '0001-01-01T00:00+14:00' is not a date and time",
            "write",
        ),
        (
            {"at": "9999-12-31T23:59", "time_zone": "America/New_York"},
            "at: '9999-12-31T23:59' is not a date and time",
            "write",
        ),
        (
            {"at": "0001-01-01T00:00", "time_zone": "Asia/Tokyo"},
            "at: '0001-01-01T00:00' is not a date and time",
            "write",
        ),
        ({"at": "2026-11-17T09:00"}, "does not say in which time zone", "2026-11-17T09:00Z"),
        ({"at": "2026-11-17T09:00Z", "time_zone": "UTC"}, "time_zone: at", "'2026-11-17T09:00'"),
        ({"at": "2026-11-16T11:59Z"}, "at: it is 2026-11-16T12:00:00Z already", "still to come"),
        ({"at": "2026-11-16T12:00Z"}, "already", "still to come"),
        ({"at": "2036-11-16T12:00Z"}, "more than 5 years away", "nearer"),
        ({"every": "soon"}, "every: 'soon' is not a span of time", "90m"),
        ({"every": "59s"}, "every: 59s is not between 1m and", "1m is the least"),
        ({"every": "9999w"}, "every: 9999w is not between 1m and", "1m is the least"),
        ({"every": "1h", "time_zone": "UTC"}, "time_zone: an even pace has none", "cron"),
        ({"cron": "0 9 * * MON"}, "time_zone: cron '0 9 * * MON' needs one", "Europe/Berlin"),
        ({"cron": "0 9 30 2 *", "time_zone": "UTC"}, "never fires", "day of month"),
        ({"cron": "61 * * * *", "time_zone": "UTC"}, "the minute 61", "0-59"),
    ],
)
def test_a_schedule_that_can_not_be_taken_names_the_field_and_the_nearest_form(
    given: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(Unusable) as caught:
        read(**given)
    assert caught.value.code == "malformed"
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_first_instant_of_an_even_pace_is_one_step_away() -> None:
    assert first_instant(Every(60, 0), 5_000, None) == 65_000


@given(day=DAYS, minute=st.integers(0, 3 * 1440), zone=st.sampled_from(sorted(ZONES)))
def test_a_wall_clock_time_is_the_first_instant_that_shows_it_or_the_first_after_the_gap(
    day: str, minute: int, zone: str
) -> None:
    wall = datetime.fromisoformat(day) + timedelta(minutes=minute)
    found = instant_of(wall, ZoneInfo(zone))
    shown = (
        datetime.fromtimestamp(found / 1000, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    )
    assert shown == wall or (
        shown > wall
        and datetime.fromtimestamp(found / 1000 - 1, UTC)
        .astimezone(ZoneInfo(zone))
        .replace(tzinfo=None)
        < wall
    )
