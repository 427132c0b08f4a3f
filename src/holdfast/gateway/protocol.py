"""
HTTP/1.1 as uvicorn speaks it, with three things it leaves open: a request that can't be read is told as a problem (two Hosts as the wrong host they are),
a connection that asks for nothing is closed, and a stream can be cut when its client takes nothing.
"""

import asyncio
import sys
from typing import Any

import h11
import msgspec
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.gateway.guard import HEAD_BYTES_MAX
from holdfast.gateway.problems import PROBLEM_TYPE, problem

SILENT_SECONDS = 15.0  # from a connection's start, or the first byte after an answer, to the next whole request head


class Protocol(H11Protocol):
    """One connection."""

    _silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_a_head()
        app: Any = self.app

        async def with_abort(scope: Scope, receive: Receive, send: Send) -> None:
            scope["holdfast.abort"] = transport.abort
            await app(scope, receive, send)

        self.app = with_abort

    def data_received(self, data: bytes) -> None:
        """Every byte takes uvicorn's own bound on idle connections away: one that sends a head, or a body that nobody reads, byte by byte would stay for ever."""
        before: Any = self.cycle  # None until the first request, whatever its type says
        super().data_received(data)
        if self.cycle is not before:
            self._heard_a_head()
        elif self._silence is None and (before is None or before.response_complete):
            self._wait_for_a_head()

    def _wait_for_a_head(self) -> None:
        self._silence = self.loop.call_later(SILENT_SECONDS, self.transport.abort)

    def _heard_a_head(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard_a_head()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's own words
        """Called while h11's complaint is being handled, so it can be looked at."""
        complaint = str(sys.exception() or "")
        told = problem(400, "malformed", "this is no HTTP request that can be read")
        if "Host" in complaint:
            told = problem(403, "wrong_host", "a request has one Host, and it is this server's")
        elif "too long" in complaint or "too much" in complaint:
            told = problem(400, "malformed", f"a request's head has at most {HEAD_BYTES_MAX} bytes")
        body = msgspec.json.encode(told)
        headers = [("content-type", PROBLEM_TYPE), ("content-length", str(len(body))), ("connection", "close"), ("x-content-type-options", "nosniff")]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = h11.Response(status_code=told.status, headers=headers, reason=b"")
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
