"""
One live stream over one connection: plain ASGI, two tasks, no buffer of its own.

`sse-starlette` keeps four tasks and a queue for each follower, so it is not used. Here a tail is
read at the client's own speed. The stream sends the bytes that `LiveStream.read` returns. While the
client reads nothing, nothing is read for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from holdfast.errors import HoldfastError, Untrusted
from holdfast.gateway.http.asgi import Receive, Scope, Send
from holdfast.gateway.streams.registry import LiveStream
from holdfast.ids import InstanceId

_log = logging.getLogger("holdfast.gateway.streams.sse_response")
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class SseResponse:
    """
    An ASGI response. `first` is sent before anything else. `instance` is the one that its
    seqs belong to.
    """

    def __init__(
        self, follower: LiveStream, first: bytes = b"", *, instance: InstanceId | None = None
    ) -> None:
        self._follower = follower
        self._first = first
        self._headers = (
            [*_HEADERS, (b"holdfast-instance", instance.encode())]
            if instance is not None
            else _HEADERS
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        follower = self._follower
        abort: Callable[[], None] | None = scope.get("holdfast.abort")
        if abort is not None:
            follower.abort = abort
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(receive))
            try:
                await self._send(send, b": holdfast\nretry: 1000\n\n" + self._first)
                await self._send_all(send)
            finally:
                watching.cancel()

    async def _send_all(self, send: Send) -> None:
        follower = self._follower
        while follower.ended is None:
            data = await self._read()
            if data:
                await self._send(send, data)
            elif follower.ended is None and follower.is_quiet:
                await self._send(send, follower.keep_alive)
            elif follower.ended is None:
                await follower.wake.wait()
        if follower.ended != "left":
            last = {"type": "http.response.body", "body": follower.closing, "more_body": False}
            await send(last)

    async def _read(self) -> bytes:
        """
        Read the next bytes. On an error end the stream with its reason: the answer has begun, so it
        can't become a problem.
        """
        try:
            return await self._follower.read()
        except HoldfastError as exc:
            self._follower.end(
                "sealed"
                if isinstance(exc, Untrusted)
                else "gone"
                if exc.code == "unknown"
                else exc.code
            )
        except OSError as exc:
            _log.warning("a stream could not be read on: %s", exc)
            self._follower.end("io")
        return b""

    async def _send(self, send: Send, data: bytes) -> None:
        follower = self._follower
        follower.blocked_since = time.monotonic()
        await send({"type": "http.response.body", "body": data, "more_body": True})
        follower.blocked_since, follower.sent_at, follower.is_quiet = None, time.monotonic(), False

    async def _watch(self, receive: Receive) -> None:
        """Wait until the client leaves. Ignore the bytes that it sends."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._follower.end("left")
