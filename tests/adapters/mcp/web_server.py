"""
An HTTP server on loopback that answers as a plan says, in the test's own loop.

It reads whole requests and writes whole bytes, so that it can break off anywhere.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

# None: close the connection without a word. Parts: a stream that goes on.
Answer = bytes | AsyncIterator[bytes] | None


class Got(NamedTuple):
    method: str  # of HTTP
    headers: dict[str, str]
    message: dict[str, Any]


class WebServer:
    """`answer` makes the bytes for a JSON-RPC request; everything that came is in `got`."""

    def __init__(self, answer: Callable[["WebServer", Got], Answer]) -> None:
        self.answer = answer
        self.got: list[Got] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def calls(self, method: str = "tools/call") -> list[Got]:
        return [each for each in self.got if each.message.get("method") == method]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value for name, value in (each.split(": ", 1) for each in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            got = Got(first.split()[0], headers, json.loads(body) if body else {})
            self.got.append(got)
            answer = self.answer(self, got)
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            elif answer is not None:
                async for part in answer:
                    writer.write(part)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer: Callable[[WebServer, Got], Answer]) -> AsyncGenerator[WebServer, None]:
    server = WebServer(answer)
    listening = await asyncio.start_server(server._serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


def http(status: str, body: bytes, *headers: str, kind: str = "application/json") -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
        *headers,
    ]
    return ("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode() + body


def reply(got: Got, result: dict[str, Any], *headers: str) -> bytes:
    body = {"jsonrpc": "2.0", "id": got.message["id"], "result": result}
    return http("200 OK", json.dumps(body).encode(), *headers)


def events(*messages: dict[str, Any]) -> bytes:
    body = "".join(f"event: message\r\ndata: {json.dumps(each)}\r\n\r\n" for each in messages)
    return http("200 OK", body.encode(), kind="text/event-stream")
