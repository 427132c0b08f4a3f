"""
The answer to one request over streamable HTTP: one JSON body, or a stream of events if something
has to be said before it. The stream ends with the answer. There is nothing to resume.
"""

from collections.abc import Mapping

from holdfast.gateway.http.asgi import Send
from holdfast.gateway.http.response import JSON_TYPE, HttpResponse

STREAM_TYPE = "text/event-stream"
_STREAM_HEADERS = [
    (b"content-type", STREAM_TYPE.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class McpAnswer:
    """`accepts` is the request's header of that name: a client may not want a stream."""

    def __init__(self, send: Send, accepts: str | None) -> None:
        self._send = send
        self._may_stream = STREAM_TYPE in (accepts or "")
        self._is_stream = False

    async def note(self, message: bytes) -> None:
        """Send a message that is not the answer. A client that wants no stream misses it."""
        if not self._may_stream:
            return
        if not self._is_stream:
            self._is_stream = True
            start = {"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS}
            await self._send(start)
        await self._event(message, is_last=False)

    async def end(
        self, message: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send the answer. A stream has had its status and headers already."""
        if self._is_stream:
            await self._event(message, is_last=True)
            return
        response = HttpResponse(message, status=status, media_type=JSON_TYPE, headers=headers)
        await response(self._send)

    async def _event(self, message: bytes, *, is_last: bool) -> None:
        # JSON has line breaks only between its parts, where a space does too.
        line = message.replace(b"\r", b" ").replace(b"\n", b" ")
        body = b"event: message\ndata: " + line + b"\n\n"
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
