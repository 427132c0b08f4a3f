"""
A provider on the loopback, for the official clients to talk to: it says, byte by byte, what a test
tells it to.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest


class Seen(NamedTuple):
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Line:
    """One request's way back to the client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def refuse(self, status: int, body: object, **headers: str) -> None:
        """Answer with an error, whole."""
        text = json.dumps(body).encode()
        fields = {"content-type": "application/json", "content-length": str(len(text))} | headers
        self._writer.write(self._head(status, fields) + text)
        await self._writer.drain()

    async def open_stream(self) -> None:
        fields = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        self._writer.write(self._head(200, fields))
        await self._writer.drain()

    async def send(self, *events: bytes) -> None:
        for event in events:
            self._writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await self._writer.drain()

    async def end_stream(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def die(self) -> None:
        """Drop the connection in the middle of a chunk, as a killed process does."""
        self._writer.write(b"ff\r\ndata: {")
        self._writer.transport.abort()

    async def wait_until_hung_up(self) -> None:
        """Until the client has closed its side."""
        try:
            while await self._reader.read(1024):
                pass
        except ConnectionError:
            pass

    @staticmethod
    def _head(status: int, fields: dict[str, str]) -> bytes:
        lines = [
            f"HTTP/1.1 {status} Said",
            *(f"{key.replace('_', '-')}: {value}" for key, value in fields.items()),
        ]
        return ("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode()


Reply = Callable[[Line], Awaitable[None]]


class Provider:
    """Answers each request with the next reply, and remembers what was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.replies: list[Reply] = []
        # Set when a reply has run to its end.
        self.done = asyncio.Event()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["Provider"]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, asyncio.timeout(60):
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.seen.append(await read_request(reader))
            await self.replies.pop(0)(Line(reader, writer))
        finally:
            writer.close()
            self.done.set()


async def read_request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *fields = head.strip().split("\r\n")
    headers = {key.lower(): value for key, value in (field.split(": ", 1) for field in fields)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(first.split()[1], headers, json.loads(body) if body else {})


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """
    `async with provider() as it:` a provider that both official clients find through their own
    variables.
    """

    @asynccontextmanager
    async def serve() -> AsyncIterator[Provider]:
        async with Provider().serve() as it:
            for name in ("http_proxy", "https_proxy", "all_proxy"):
                monkeypatch.delenv(name, raising=False)
                monkeypatch.delenv(name.upper(), raising=False)
            monkeypatch.setenv("OPENAI_BASE_URL", f"{it.url}/v1")
            monkeypatch.setenv("OPENAI_API_KEY", "sk-loopback")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", it.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-loopback")
            yield it

    return serve
