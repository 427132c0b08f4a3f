"""
A server on stdin and stdout behind an address, for the conformance suite, which speaks HTTP alone.

It carries messages and decides nothing: each session of an older client has a process of its own,
newer clients share one. Every answer is a stream, so notes and questions of the server go with it.
"""

import json
import subprocess
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

_REPLY_SECONDS = 60.0
_SESSION = "mcp-session-id"


class StdioServer:
    """One process. Ids of requests are its own, since several clients may use the same."""

    def __init__(self, command: Sequence[str], env: dict[str, str] | None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        )
        self._numbers = count(1)
        self._open: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._writing = threading.Lock()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def exchange(self, message: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Send a request; yield each message that comes until its reply, and the reply."""
        number, came = next(self._numbers), SimpleQueue[dict[str, Any]]()
        self._open[number] = came
        self.write({**message, "id": number})
        try:
            while True:
                found = came.get(timeout=_REPLY_SECONDS)
                if "method" not in found:
                    yield {**found, "id": message["id"]}
                    return
                yield found
        finally:
            del self._open[number]

    def write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with self._writing:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._reading.join()
        with self._process, suppress(BrokenPipeError):
            pass  # waits for it, and closes its pipes

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            number = message.get("id") if "method" not in message else None
            for each, came in list(self._open.items()):
                # A note names its request by a token that only its client knows. The suite waits
                # for one request at a time, so a message that is not a reply belongs to that one.
                if number in (None, each):
                    came.put(message)


def _is_newer(message: dict[str, Any]) -> bool:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and "io.modelcontextprotocol/protocolVersion" in meta


@contextmanager
def bridged(
    command: Sequence[str], env: dict[str, str] | None = None
) -> Generator[str, None, None]:
    """Yield an address that leads to the command's stdin and stdout."""
    sessions: dict[str, StdioServer] = {}
    numbers, starting = count(1), threading.Lock()
    spare = [StdioServer(command, env)]  # it starts while the last one is in use

    def server_of(session: str) -> StdioServer:
        with starting:
            if session not in sessions:
                sessions[session] = spare.pop()
                spare.append(StdioServer(command, env))
            return sessions[session]

    class Bridge(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            # A server speaks one way on one connection, the way of its first message.
            session = self.headers.get(_SESSION) or ("newer" if _is_newer(message) else "odd")
            headers = {}
            if message.get("method") == "initialize":
                session = str(next(numbers))
                headers = {_SESSION: session}
            server = server_of(session)
            if "method" not in message or "id" not in message:
                server.write(message)
                self._head(202, headers)
                return
            self._head(200, {**headers, "content-type": "text/event-stream"})
            try:
                for each in server.exchange(message):
                    self.wfile.write(
                        b"event: message\ndata: " + json.dumps(each).encode() + b"\n\n"
                    )
                    self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError, Empty):
                pass  # the suite did not wait for the end, or none came

        def do_GET(self) -> None:
            self._head(405, {})

        def do_DELETE(self) -> None:
            self._head(405, {})

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "content-type" not in headers:
                self.send_header("content-length", "0")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Bridge) as http_server:
        thread = threading.Thread(target=http_server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http_server.server_address[1]}/mcp"
        finally:
            http_server.shutdown()
            thread.join()
            for each in (*sessions.values(), *spare):
                each.close()
