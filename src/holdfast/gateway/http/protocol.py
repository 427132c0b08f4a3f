"""
HTTP/1.1 on one connection, as llhttp reads it and uvicorn answers it, with what both leave open
closed: one request at a time, and nothing that two readers could take for two different things.

llhttp refuses a length that stands twice or beside chunks, lines that end in half a line end,
folded lines and control characters. Here, also: a head has a bound, and must come in time; what
follows a body is no header; a target is taken as it stands; whatever comes before the answer to
what came before it ends the connection with that answer. What can't be read is told as a problem,
never into the middle of an answer. A stream can be cut when its client takes nothing.
"""

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
import msgspec
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from holdfast.gateway.http.problems import PROBLEM_TYPE, Problem, problem
from holdfast.gateway.http.request_guard import HEAD_BYTES_MAX

# from a connection's start, or the first byte after an answer, to the next whole request head
SILENT_SECONDS = 15.0
_UNREADABLE = problem(400, "malformed", "this is no HTTP request that can be read")
_TOO_LONG = problem(400, "malformed", f"a request's head has at most {HEAD_BYTES_MAX} bytes")
_VERSIONS = ("1.0", "1.1")
# A request to upgrade is whole, and the application refuses it; what comes after it is no HTTP.
_STOPS = (httptools.HttpParserError, httptools.HttpParserUpgrade)


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        # Fed to the parser since a head began, or since it last handed on a piece of body: more
        # than this it can't be keeping.
        self._kept_bytes = 0
        self._is_deaf = False  # nothing that still comes is read
        self._silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._listen_in_time()
        app: Any = self.app

        async def with_abort(scope: Scope, receive: Receive, send: Send) -> None:
            scope["holdfast.abort"] = transport.abort
            await app(
                scope,
                receive,
                _last_unless_asked(self.cycle, send) if self.expect_100_continue else send,
            )

        self.app = with_abort

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_silence()
        super().connection_lost(exc)

    # --- a head must come, and in time

    def _listen_in_time(self) -> None:
        if self._silence is None:
            self._silence = self.loop.call_later(SILENT_SECONDS, self.transport.abort)

    def _stop_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    # --- bytes

    def data_received(self, data: bytes) -> None:
        """In pieces, so that nothing grows far beyond its bound before it is looked at."""
        self._unset_keepalive_if_required()
        whole = memoryview(data)
        for start in range(0, len(data), HEAD_BYTES_MAX):
            if self._is_deaf:
                return
            self._feed(whole[start : start + HEAD_BYTES_MAX])
        cycle: RequestResponseCycle | None = self.cycle
        if (
            cycle is None or cycle.response_complete
        ):  # half a head, or what nobody reads: byte by byte it would hold the connection for ever
            self._listen_in_time()

    def _feed(self, piece: memoryview) -> None:
        self._kept_bytes += len(piece)
        try:
            self.parser.feed_data(piece)
        except _STOPS:
            self._refuse(_UNREADABLE)
        else:
            if self._kept_bytes > HEAD_BYTES_MAX:
                self._refuse(_TOO_LONG)

    def _refuse(self, why: Problem) -> None:
        """
        The request that is being read, if no answer to it has begun. What came too soon after one
        that is being answered ends the connection with that answer.
        """
        self._is_deaf = True
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False
                return
            begun, cycle.disconnected = (
                cycle.response_started,
                True,
            )  # whoever reads its body hears that the client left, and says no more
            cycle.message_event.set()
            if begun:
                self.transport.close()
                return
        body = msgspec.json.encode(why)
        head = f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\nx-content-type-options: nosniff\r\n\r\n"
        self.transport.write(STATUS_LINE[why.status] + head.encode() + body)
        self.transport.close()

    # --- what the parser finds; whatever is raised here stops it, and is refused

    def on_message_begin(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            raise ValueError("one at a time")
        super().on_message_begin()
        self._in_head, self._kept_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it stands behind a body, and says nothing
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        coding = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if version not in _VERSIONS or (coding and (version, coding) != ("1.1", [b"chunked"])):
            raise ValueError("not ours")
        self._in_head, self._kept_bytes = False, 0
        self._stop_silence()
        raw, _, query = self.url.partition(b"?")
        self.scope["method"], self.scope["http_version"] = (
            self.parser.get_method().decode("ascii"),
            version,
        )
        self.scope["path"], self.scope["raw_path"], self.scope["query_string"] = (
            unquote(raw.decode("ascii")),
            raw,
            query,
        )
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self._start_asgi_task(self.cycle, self.app)

    def on_body(self, body: bytes) -> None:
        self._kept_bytes = 0
        super().on_body(body)


def _last_unless_asked(cycle: RequestResponseCycle, send: Send) -> Send:
    """
    An answer to a client whose body was never asked for is the connection's last: nobody could say
    whether that body still comes, or the next request.
    """

    async def send_last(message: Message) -> None:
        if cycle.waiting_for_100_continue:
            cycle.keep_alive = False
        await send(message)

    return send_last
