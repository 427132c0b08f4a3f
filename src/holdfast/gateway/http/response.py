"""One whole answer: a status, headers and a body, sent in two messages."""

from collections.abc import Mapping

from holdfast.gateway.http.asgi import Send

JSON_TYPE = "application/json"
_WITHOUT_BODY = frozenset({204, 304})


class HttpResponse:
    """A 204 or 304 has neither a body nor a length. Every other answer states its length."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        media_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in (headers or {}).items()
        ]
        if media_type is not None:
            self.headers.append((b"content-type", media_type.encode("latin-1")))
        if status not in _WITHOUT_BODY:
            self.headers.append((b"content-length", b"%d" % len(body)))

    async def __call__(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})
