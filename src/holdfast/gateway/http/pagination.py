"""Lists in pages: `limit` and `after` in, a page and the next `after` out."""

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

from holdfast.errors import Refused
from holdfast.gateway.http.router import Parameter

LIMIT_DEFAULT, LIMIT_MAX = 100, 500
AFTER_CHARS_MAX = 200
_NUMBER = re.compile(r"[0-9]{1,15}\Z")

T = TypeVar("T")


LIMIT = Parameter(
    "limit",
    "how many at most",
    {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
)


def after_name(pattern: str) -> Parameter:
    schema = {"type": "string", "minLength": 1, "maxLength": AFTER_CHARS_MAX, "pattern": pattern}
    return Parameter("after", "`next` of the page before", schema)


def page_asked_for(query: Mapping[str, str]) -> tuple[int, str | None]:
    """Return `limit` and `after`."""
    limit = query.get("limit", str(LIMIT_DEFAULT))
    if not _NUMBER.match(limit) or not 1 <= int(limit) <= LIMIT_MAX:
        raise Refused(
            f"limit is a number from 1 to {LIMIT_MAX}",
            code="malformed",
            hint=f"for example ?limit={LIMIT_DEFAULT}",
        )
    after = query.get("after")
    if after is not None and not 1 <= len(after) <= AFTER_CHARS_MAX:
        raise Refused(
            "after is the last name of the page before",
            code="malformed",
            hint="take `next` of that page",
        )
    return int(limit), after


def page_of(
    named: Collection[tuple[str, T]], limit: int, after: str | None
) -> tuple[tuple[T, ...], str | None]:
    """
    Return one page of named items in the order of their names, and the `after` of the next page.

    >>> page_of([("b", 2), ("a", 1), ("c", 3)], 2, None)
    ((1, 2), 'b')
    """
    wanted = sorted(
        (pair for pair in named if after is None or pair[0] > after), key=lambda pair: pair[0]
    )
    page = wanted[:limit]
    return tuple(each for _, each in page), page[-1][0] if len(wanted) > limit else None
