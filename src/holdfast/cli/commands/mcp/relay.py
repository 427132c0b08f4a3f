"""
The stdio side of the proxy: lines of a client to the gateway, and its answers back.

It decides nothing and keeps nothing. It reads no file of the home. A line has a bound, and one that
two readers could read differently is refused here already. A request that the gateway did not
answer is sent again under the same key, so it counts once.
"""

import http.client
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, NoReturn
from urllib.parse import urlsplit

import msgspec

from holdfast.gateway.http.response import JSON_TYPE
from holdfast.gateway.mcp.answer import STREAM_TYPE
from holdfast.gateway.mcp.rpc import (
    INVALID_REQUEST,
    SERVER_ERROR,
    ClientMessage,
    RpcProblem,
    problem_message,
    read_client_message,
)
from holdfast.gateway.mcp.versions import NAME_MEMBERS, PREFIX, header_value
from holdfast.limits import MCP_CLIENT_MESSAGE_BYTES_MAX, MCP_MESSAGE_BYTES_MAX

KEY_HEADER = "holdfast-request"
_DATA = b"data: "
_READ_BYTES = 64 * 1024
_IN_FLIGHT_MAX = 64  # requests of one client; the next line is read when one has ended
_ANSWER_BYTES_MAX = 2 * MCP_MESSAGE_BYTES_MAX  # with every character of a result as an escape
_AGAIN_FOR_SECONDS = 30.0  # a server that is started again is back by then
_AGAIN_SECONDS = 0.3
_SILENT_SECONDS = 24 * 3600.0  # the gateway bounds every wait; this only ends a dead connection
_LOST = (ConnectionError, http.client.HTTPException, OSError)


class GatewayAddress(NamedTuple):
    """The address and the token."""

    url: str
    token: str

    def connect(self) -> http.client.HTTPConnection:
        found = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection if found.scheme == "https" else http.client.HTTPConnection
        )
        return kind(found.hostname or "", found.port, timeout=_SILENT_SECONDS)


class StdioRelay:
    def __init__(self, gateway: GatewayAddress, path: str) -> None:
        self._gateway, self._path = gateway, path
        self._out = sys.stdout.buffer
        self._writing = threading.Lock()
        self._room = threading.BoundedSemaphore(_IN_FLIGHT_MAX)
        self._idle: list[http.client.HTTPConnection] = []
        self._open: dict[int | str, http.client.HTTPConnection] = {}
        self._cancelled: set[int | str] = set()
        self._session: str | None = None

    def run(self, lines: BinaryIO) -> None:
        """Relay until the client closes its end. Calls that wait go on without it."""
        for line, message in read_messages(lines, self._say):
            self._take(line, message)

    def _take(self, line: bytes, message: ClientMessage) -> None:
        if message.method == "notifications/cancelled":
            self._cancel(message.params.get("requestId"))
        elif message.is_request:
            self._room.acquire()
            threading.Thread(target=self._relay, args=(line, message), daemon=True).start()

    def _relay(self, line: bytes, message: ClientMessage) -> None:
        try:
            answer = self._answered(line, message)
        finally:
            self._room.release()
        if message.id not in self._cancelled:
            self._say(answer)

    def _answered(self, line: bytes, message: ClientMessage) -> bytes:
        headers = self._headers(message)
        until = time.monotonic() + _AGAIN_FOR_SECONDS
        connection = self._idle.pop() if self._idle else self._gateway.connect()
        while True:
            try:
                return self._exchanged(connection, line, message, headers)
            except RpcProblem as problem:
                return problem_message(message.id, problem)
            except _LOST:
                connection.close()
                if message.id in self._cancelled or time.monotonic() > until:
                    why = f"Holdfast does not answer at {self._gateway.url}; start `holdfast serve`"
                    return problem_message(message.id, RpcProblem(SERVER_ERROR, why))
                time.sleep(_AGAIN_SECONDS)
                connection = self._gateway.connect()
            finally:
                self._open.pop(message.id or 0, None)

    def _exchanged(
        self,
        connection: http.client.HTTPConnection,
        line: bytes,
        message: ClientMessage,
        headers: dict[str, str],
    ) -> bytes:
        if connection.sock is None:
            connection.connect()  # sends small writes at once
        self._open[message.id or 0] = connection
        connection.request("POST", self._path, body=line, headers=headers)
        response = connection.getresponse()
        kind = (response.getheader("content-type") or "").partition(";")[0]
        if kind == STREAM_TYPE:
            body = self._streamed(response, message)
        else:
            body = response.read(_ANSWER_BYTES_MAX + 1)
        if len(body) > _ANSWER_BYTES_MAX:
            connection.close()
            raise RpcProblem(SERVER_ERROR, "the answer is too long")
        if message.method == "initialize":
            self._session = response.getheader("mcp-session-id")
        if not response.isclosed() or response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return body if kind in (JSON_TYPE, STREAM_TYPE) else _refusal(response, body)

    def _streamed(self, response: http.client.HTTPResponse, message: ClientMessage) -> bytes:
        """Pass on each note that comes before the answer, and return the answer."""
        answer = b""
        while line := response.readline(_ANSWER_BYTES_MAX + 1):
            if len(line) > _ANSWER_BYTES_MAX:
                return line
            if not line.startswith(_DATA):
                continue
            event = line.removeprefix(_DATA).strip()
            if msgspec.json.decode(event, type=_Event).method is None:
                answer = event
            elif message.id not in self._cancelled:
                self._say(event)
        if not answer:
            raise http.client.IncompleteRead(answer)
        return answer

    def _headers(self, message: ClientMessage) -> dict[str, str]:
        headers = {
            "authorization": f"Bearer {self._gateway.token}",
            "content-type": "application/json",
            "accept": f"{JSON_TYPE}, {STREAM_TYPE}",
            KEY_HEADER: secrets.token_hex(16),
        }
        meta = message.params.get("_meta")
        version = meta.get(f"{PREFIX}protocolVersion") if isinstance(meta, dict) else None
        if isinstance(version, str):
            headers["mcp-protocol-version"] = header_value(version)
            headers["mcp-method"] = header_value(message.method or "")
            name = message.params.get(NAME_MEMBERS.get(message.method or "", ""))
            if isinstance(name, str):
                headers["mcp-name"] = header_value(name)
        elif self._session is not None:
            headers["mcp-session-id"] = self._session
        return headers

    def _cancel(self, ident: object) -> None:
        """Stop listening to a request. The gateway sees the client leave; nothing is undone."""
        if not isinstance(ident, int | str):
            return
        connection = self._open.get(ident)
        if connection is not None and connection.sock is not None:
            self._cancelled.add(ident)
            connection.sock.shutdown(socket.SHUT_RDWR)

    def _say(self, answer: bytes) -> None:
        """Write one line. JSON has line breaks only between its parts, where a space does too."""
        line = answer.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
        with self._writing:
            try:
                self._out.write(line)
                self._out.flush()
            except OSError:
                os._exit(0)  # the client is gone, and other threads may hold its pipes


def read_messages(
    source: BinaryIO, say: Callable[[bytes], None]
) -> Iterator[tuple[bytes, ClientMessage]]:
    """Yield each line with its message. A line that cannot be read is answered by `say`."""
    for line in read_lines(source):
        if line is None:
            most = MCP_CLIENT_MESSAGE_BYTES_MAX
            too_long = RpcProblem(INVALID_REQUEST, f"a message has at most {most} bytes")
            say(problem_message(None, too_long))
        elif line.strip():
            try:
                message = read_client_message(line)
            except RpcProblem as problem:
                say(problem_message(None, problem))
            else:
                yield line, message


def read_lines(source: BinaryIO) -> Iterator[bytes | None]:
    """Yield each line; None for one that is too long, of which nothing is kept."""
    line, is_too_long = bytearray(), False
    while chunk := os.read(source.fileno(), _READ_BYTES):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line += end
            yield None if is_too_long or len(line) > MCP_CLIENT_MESSAGE_BYTES_MAX else bytes(line)
            line, is_too_long = bytearray(), False
        line += rest
        if len(line) > MCP_CLIENT_MESSAGE_BYTES_MAX:
            line, is_too_long = bytearray(), True


class _Event(msgspec.Struct):
    method: str | None = None  # an answer has none


class _ProblemText(msgspec.Struct):
    detail: str = ""
    hint: str | None = None


def _refusal(response: http.client.HTTPResponse, body: bytes) -> NoReturn:
    try:
        details = msgspec.json.decode(body, type=_ProblemText)
    except msgspec.MsgspecError:
        details = _ProblemText()
    text = "; ".join(each for each in (details.detail, details.hint) if each)
    raise RpcProblem(SERVER_ERROR, text or f"Holdfast answered with the status {response.status}")
