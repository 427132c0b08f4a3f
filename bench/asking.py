"""
An HTTP client in a process of its own, so that what it costs to ask is not counted with what it
costs to answer.

It is a bare socket that stays open: a request goes out in one piece, an answer is read by its
length. Whoever measures tells it what to ask, a line of JSON each, and is told when the request
began and when its answer was there, by CLOCK_MONOTONIC, which is one clock for all processes of a
machine.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

ROOM = 1 << 20


class Reply(NamedTuple):
    """`began` and `ended` are `time.monotonic()` of the client."""

    status: int
    body: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def json(self) -> Any:
        return json.loads(self.body)


class Asker:
    """The process that asks, from the side of who measures."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, token: str) -> None:
        self._process = process
        self._port = port
        self._token = token

    def ask(self, method: str, path: str, body: Any = None) -> Reply:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = request_text(
            method, path, self._port, self._token, body="" if body is None else json.dumps(body)
        )
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Reply(*json.loads(self._process.stdout.readline()))


@contextmanager
def asking(port: int, token: str) -> Iterator[Asker]:
    """One connection, ended with its process before this returns."""
    command = [sys.executable, "-m", "bench.asking", str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Asker(process, port, token)  # its stdin closes with it, which ends it


def request_text(
    method: str, path: str, port: int, token: str, *headers: str, body: str = ""
) -> str:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        *headers,
    ]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body.encode())}"]
    return "\r\n".join(lines) + "\r\n\r\n" + body


def main(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in sys.stdin:
            request = json.loads(line).encode()
            began = time.monotonic()
            connection.sendall(request)
            status, body = _answer(connection)
            ended = time.monotonic()
            print(json.dumps([status, body.decode(), began, ended]), flush=True)


def _answer(connection: socket.socket) -> tuple[int, bytes]:
    found = b""
    while b"\r\n\r\n" not in found:
        found += _more(connection)
    head, _, body = found.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0] or b"0")
    while len(body) < length:
        body += _more(connection)
    return status, body


def _more(connection: socket.socket) -> bytes:
    if not (found := connection.recv(ROOM)):
        raise ConnectionError("the server closed the connection")
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
