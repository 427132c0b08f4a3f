"""
Time zones by their IANA names: a function from a name to a `tzinfo`, brought by an adapter with the
database.

It raises Unusable, with the field's name and the nearest known name, if the zone is unknown. It is
called only when a schedule is read or a reminder fires, never on replay.
"""

from datetime import UTC, tzinfo

from holdfast.errors import Unusable
from holdfast.session.features.reminders.schedule import FindZone

__all__ = ["FindZone", "utc_alone"]


def utc_alone(name: str) -> tzinfo:
    """The fallback without a time zone database."""
    if name == "UTC":
        return UTC
    raise Unusable(
        f"time_zone: only UTC is known here, and not {name[:80]!r}",
        code="malformed",
        hint="use UTC",
    )
