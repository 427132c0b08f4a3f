"""
One HTTP request as the handlers see it: headers, query, parts of the path, and a body that is read
strictly, within a size and a time.

Nothing is guessed. A repeated header or query key is refused where one value is expected.
"""

import asyncio
import re
from collections.abc import Collection
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.http.asgi import Receive, Scope
from holdfast.journal.strict import strict_json

# The longest message, if every one of its characters is written as an escape.
BODY_BYTES_MAX = 2 * 1024 * 1024
BODY_SECONDS = 20.0
_QUERY_KEYS_MAX = 32  # far more than any route has; bounds the work of parsing
_JSON = re.compile(r"application/json\s*(;\s*charset\s*=\s*\"?utf-8\"?\s*)?\Z", re.IGNORECASE)

T = TypeVar("T")


class HttpRequest:
    """Owned by the task that answers it. `scope` is uvicorn's, with our keys in it."""

    __slots__ = ("_receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._receive = receive

    @property
    def path_parts(self) -> dict[str, str]:
        parts: dict[str, str] = self.scope["holdfast.path_parts"]
        return parts

    def header_values(self, name: str) -> list[str]:
        wanted = name.encode("ascii")
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key == wanted]

    def header(self, name: str) -> str | None:
        """Return the header's value. Refuse a repeated header."""
        found = self.header_values(name)
        if len(found) > 1:
            raise Refused(
                f"the header {name} is given twice", code="malformed", hint="send it once"
            )
        return found[0] if found else None

    def query(self, known: Collection[str]) -> dict[str, str]:
        """Return the query's values. Refuse an unknown or repeated key."""
        try:
            items = parse_qsl(
                self.scope["query_string"].decode("latin-1"),
                keep_blank_values=True,
                max_num_fields=_QUERY_KEYS_MAX,
            )
        except ValueError as exc:
            raise Refused(
                "the query has too many keys", code="malformed", hint="see /openapi.json"
            ) from exc
        found = dict(items)
        if len(found) != len(items) or any(key not in known for key in found):
            raise Refused(
                "the query has a key that is not known here, or has one twice",
                code="malformed",
                hint=f"known: {', '.join(known) or 'none'}",
            )
        return found

    async def json(
        self, kind: type[T], *, nothing: T | None = None, bytes_max: int = BODY_BYTES_MAX
    ) -> T:
        """
        Read the body into this struct, or raise `Refused`: malformed, media_type, too_large. An
        empty body means `nothing`, if that is given.
        """
        if nothing is None or self.header_values("content-type"):
            self.check_media_type()
        raw = await self.raw(bytes_max)
        if nothing is not None and not raw:
            return nothing
        self.check_media_type()
        value = strict_json(raw, what="the body's contents")
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as exc:
            raise Refused(
                f"the request body is invalid: {exc}", code="malformed", hint="see /openapi.json"
            ) from exc

    def check_media_type(self) -> None:
        given = self.header_values("content-type")
        if len(given) != 1 or not _JSON.match(given[0]):
            raise Refused(
                "the body must be application/json",
                code="media_type",
                hint="Content-Type: application/json",
            )
        if self.header_values("content-encoding") not in ([], ["identity"]):
            raise Refused("the body must not be encoded", code="media_type", hint="send plain JSON")

    async def raw(self, bytes_max: int = BODY_BYTES_MAX) -> bytes:
        """Read the body as it is, within a size and a time."""
        announced = (self.header_values("content-length") or ["0"])[0]
        if not announced.isdecimal() or int(announced[:20]) > bytes_max:
            raise _too_large(bytes_max)
        found = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                is_more = True
                while is_more:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(
                            "the client left", code="malformed", hint="send the request again"
                        )
                    found += message.get("body", b"")
                    is_more = message.get("more_body", False)
                    if len(found) > bytes_max:
                        raise _too_large(bytes_max)
        except TimeoutError:
            raise Refused(
                "the body did not arrive in time", code="malformed", hint="send it at once"
            ) from None
        return bytes(found)


def _too_large(bytes_max: int) -> Refused:
    return Refused(
        f"a body has at most {bytes_max} bytes",
        code="too_large",
        hint="put it into a file and name the file",
    )
