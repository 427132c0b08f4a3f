"""
HTTP/1.1 on one connection, parsed by llhttp and answered by uvicorn, without ambiguity.

llhttp refuses a duplicate length, a length beside chunks, half line ends, folded lines and control
characters. This module adds:

- A head has a bound and a deadline.
- A trailer is not a header.
- A target is taken as it stands.
- One request at a time: a request that arrives before the last answer is complete ends the
  connection with that answer.
- An unreadable request gets a problem as its answer, never in the middle of another answer.
- A stream can be cut when its client reads nothing.
"""

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from holdfast.gateway.http.asgi import Message, Receive, Scope, Send
from holdfast.gateway.http.problems import PROBLEM_TYPE, ProblemDetails, problem
from holdfast.gateway.http.request_guard import HEAD_BYTES_MAX

# From a connection's start, or the first byte after an answer, to the next complete request head.
SILENT_SECONDS = 15.0
_UNREADABLE = problem(400, "malformed", "this is not a readable HTTP request")
_TOO_LONG = problem(400, "malformed", f"a request's head has at most {HEAD_BYTES_MAX} bytes")
_VERSIONS = ("1.0", "1.1")
# An upgrade request is complete, and the application refuses it. The bytes after it are not HTTP.
_STOPS = (httptools.HttpParserError, httptools.HttpParserUpgrade)


class Protocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        # Bytes fed to the parser since a head began or since it last passed on a piece of body. The
        # parser can't hold more than this.
        self._kept_bytes = 0
        self._is_deaf = False  # true once the rest of the input is ignored
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

    # --- a head must arrive in time

    def _listen_in_time(self) -> None:
        if self._silence is None:
            self._silence = self.loop.call_later(SILENT_SECONDS, self.transport.abort)

    def _stop_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    # --- bytes

    def data_received(self, data: bytes) -> None:
        """
        Feed the parser in pieces, so that nothing grows far beyond its bound before it is checked.
        """
        self._unset_keepalive_if_required()
        whole = memoryview(data)
        for start in range(0, len(data), HEAD_BYTES_MAX):
            if self._is_deaf:
                return
            self._feed(whole[start : start + HEAD_BYTES_MAX])
        cycle: RequestResponseCycle | None = self.cycle
        if (
            cycle is None or cycle.response_complete
        ):  # half a head or unread input: without a deadline it would hold the connection for ever
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

    def _refuse(self, why: ProblemDetails) -> None:
        """
        Refuse the request being read if its answer has not begun. If it arrived while an earlier
        one is being answered, end the connection with that answer.
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
            )  # the reader of its body sees a disconnected client and sends nothing more
            cycle.message_event.set()
            if begun:
                self.transport.close()
                return
        body = msgspec.json.encode(why)
        head = (
            f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(body)}\r\nconnection:"
            " close\r\nx-content-type-options: nosniff\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[why.status] + head.encode() + body)
        self.transport.close()

    # --- parser callbacks; an exception raised here stops the parser, and the request is refused

    def on_message_begin(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            raise ValueError("one at a time")
        super().on_message_begin()
        self._in_head, self._kept_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a later one is a trailer and is ignored
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
    Close the connection after an answer if the client's body was never asked for (100-continue).
    Otherwise the next bytes could be that body or the next request.
    """

    async def send_last(message: Message) -> None:
        if cycle.waiting_for_100_continue:
            cycle.keep_alive = False
        await send(message)

    return send_last
