"""
Read requests strictly, within a size and a time. Nothing is guessed, and unknown fields are
refused.
"""

import asyncio
import re
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from holdfast.errors import Refused
from holdfast.gateway.http.schemas import LIMIT_DEFAULT, LIMIT_MAX
from holdfast.journal.strict import strict_json

BODY_BYTES_MAX = (
    2 * 1024 * 1024
)  # the longest message, if every one of its characters is written as an escape
BODY_SECONDS = 20.0
_JSON = re.compile(r"application/json\s*(;\s*charset\s*=\s*\"?utf-8\"?\s*)?\Z", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,15}\Z")

T = TypeVar("T")


async def read_body(request: Request, kind: type[T], *, nothing: T | None = None) -> T:
    """
    Read the body into this struct, or raise `Refused`: malformed, media_type, too_large. An empty
    body means `nothing`, if that is given.
    """
    if nothing is None or "content-type" in request.headers:
        _check_type(request)
    raw = await _bytes(request)
    if nothing is not None and not raw:
        return nothing
    _check_type(request)
    value = strict_json(raw, what="the body's contents")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise Refused(
            f"the body is not as it must be: {exc}", code="malformed", hint="see /openapi.json"
        ) from exc


def _check_type(request: Request) -> None:
    given = request.headers.getlist("content-type")
    if len(given) != 1 or not _JSON.match(given[0]):
        raise Refused(
            "the body must be application/json",
            code="media_type",
            hint="Content-Type: application/json",
        )
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused("the body must not be encoded", code="media_type", hint="send plain JSON")


async def _bytes(request: Request) -> bytes:
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced[:20]) > BODY_BYTES_MAX:
        raise _too_large()
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                found += chunk
                if len(found) > BODY_BYTES_MAX:
                    raise _too_large()
    except TimeoutError:
        raise Refused(
            "the body did not arrive in time", code="malformed", hint="send it at once"
        ) from None
    except ClientDisconnect:
        raise Refused("the client left", code="malformed") from None
    return bytes(found)


def _too_large() -> Refused:
    return Refused(
        f"a body has at most {BODY_BYTES_MAX} bytes",
        code="too_large",
        hint="put it into a file and name the file",
    )


def query_of(request: Request, *known: str) -> dict[str, str]:
    """Return the query's values. Refuse an unknown or repeated key."""
    items = request.query_params.multi_items()
    found = dict(items)
    if len(found) != len(items) or any(key not in known for key in found):
        raise Refused(
            "the query has a key that is not known here, or has one twice",
            code="malformed",
            hint=f"known: {', '.join(known) or 'none'}",
        )
    return found


def page_of(query: dict[str, str]) -> tuple[int, str | None]:
    """Return `limit` and `after`."""
    limit = query.get("limit", str(LIMIT_DEFAULT))
    if not _NUMBER.match(limit) or not 1 <= int(limit) <= LIMIT_MAX:
        raise Refused(f"limit is a number from 1 to {LIMIT_MAX}", code="malformed")
    after = query.get("after")
    if after is not None and not 1 <= len(after) <= _AFTER_CHARS_MAX:
        raise Refused("after is the last name of the page before", code="malformed")
    return int(limit), after


_AFTER_CHARS_MAX = 200


def one_header(request: Request, name: str) -> str | None:
    """Return the header's value. Refuse a repeated header."""
    found = request.headers.getlist(name)
    if len(found) > 1:
        raise Refused(f"{name} stands twice", code="malformed")
    return found[0] if found else None


def cursor_of(request: Request) -> int | None:
    given = one_header(request, "last-event-id")
    if given is None or not given:
        return None
    if not _NUMBER.match(given):
        raise Refused("Last-Event-ID is the seq of a record", code="malformed")
    return int(given)


def page_from(
    names: Collection[tuple[str, Any]], limit: int, after: str | None
) -> tuple[list[Any], str | None]:
    """
    Return one page of named items in the order of their names, and the `after` of the next page.
    """
    wanted = sorted(
        (pair for pair in names if after is None or pair[0] > after), key=lambda pair: pair[0]
    )
    page = wanted[:limit]
    return [each for _, each in page], page[-1][0] if len(wanted) > limit else None
