"""
Time zones from the system's database (`/usr/share/zoneinfo`, or the package `tzdata` where that is
installed).
"""

import re
from datetime import UTC, tzinfo

from holdfast.errors import Unusable

_NAME = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,2}\Z")


def find_zone(name: str) -> tzinfo:
    """
    A zone by its exact name; raises Unusable with the nearest one.

    >>> find_zone("Europe/Berlin").key
    'Europe/Berlin'
    """
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        if _NAME.match(name):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there; a folder; not a zone's file; not readable
        pass
    raise Unusable(f"time_zone: there is no {name[:80]!r} here", code="malformed", hint=_hint(name))


def _hint(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    known = available_timezones()
    if not known:
        return "this system has no time zone database: install its tzdata, or use UTC"
    folded = {each.casefold(): each for each in sorted(known)}
    near = get_close_matches(name.casefold()[:80], folded, n=1)
    return (
        f"did you mean {folded[near[0]]}?"
        if near
        else "use a name of the IANA database, such as Europe/Berlin or UTC"
    )
