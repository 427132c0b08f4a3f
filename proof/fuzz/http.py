"""
The fuzzed gateway: any bytes, through the real protocol and the real app.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

from holdfast.ids import SessionId
from proof.fuzz.parsers import expect

HTTP_STATUSES = frozenset(
    {200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 423, 429, 431, 503}
)


class InMemoryWire(asyncio.Transport):
    """The other end of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.said += bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 8321)}.get(name, default)

    def pause_reading(self) -> None:
        """Do nothing: the data is given at once."""

    def resume_reading(self) -> None:
        """Do nothing: the data is given at once."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: every write is accepted."""


class _Gateway:
    """The real app and protocol over a home in memory, on their own loop. Created once."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        import uvicorn
        from uvicorn.server import ServerState

        from holdfast.gateway.http.app import make_app
        from holdfast.gateway.http.context import Gateway, GatewaySettings
        from holdfast.gateway.http.protocol import Protocol
        from holdfast.gateway.server.tokens import TokenBook
        from holdfast.session.authority.context import MessageSource
        from holdfast.testing.memory_home import open_in_memory

        self._home = home = open_in_memory()  # kept: it is closed with the process
        await home.__aenter__()
        await home.send(SessionId("ops/api"), "help", source=MessageSource.local("alice"))
        self.token, _ = await TokenBook(home.service.home).add(
            "fuzz",
            person="alice",
            scopes=["read", "send", "approve"],
            audience="personal",
            expires_at=None,
            by="fuzz",
            now=0,
        )
        gateway = Gateway(
            home.service,
            GatewaySettings(requests_per_second=1e9, requests_burst=1e9),
            workspace=lambda: None,
        )
        config = uvicorn.Config(
            make_app(gateway),
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        config.load()
        self._made: Callable[[], Any] = lambda: Protocol(
            config=config, server_state=ServerState(), app_state={}
        )

    def answers(self, request: bytes) -> bytes:
        return self.loop.run_until_complete(self._answers(request))

    async def _answers(self, request: bytes) -> bytes:
        protocol, wire = self._made(), InMemoryWire()
        protocol.connection_made(wire)
        protocol.data_received(request)
        for _ in range(40):
            await asyncio.sleep(0)
        if not wire.closed:
            protocol.eof_received()
        protocol.connection_lost(None)
        for _ in range(10):
            await asyncio.sleep(0)
        return wire.said


@cache
def the_gateway() -> _Gateway:
    return _Gateway()


def fuzz_http(data: bytes) -> None:
    """
    Any bytes get a documented status or silence, never a server error. The first byte decides how
    much of a request is sent.
    """
    gateway = the_gateway()
    host, bearer = (
        b"Host: 127.0.0.1:8321\r\n",
        b"Authorization: Bearer " + gateway.token.encode() + b"\r\n",
    )
    kind, rest = (data[0] % 4, data[1:]) if data else (0, b"")
    path, _, body = rest.partition(b"\n")
    requests = (
        rest,
        b"GET /" + rest + b" HTTP/1.1\r\n" + host + bearer + b"\r\n",
        b"POST /v1/sessions/ops/api/messages HTTP/1.1\r\n"
        + host
        + bearer
        + b"Content-Type: application/json\r\n"
        + _length(rest)
        + rest,
        b"POST /v1/"
        + path
        + b" HTTP/1.1\r\n"
        + host
        + bearer
        + b"Content-Type: application/json\r\n"
        + _length(body)
        + body,
    )
    if not requests[kind]:
        return  # a transport never delivers empty data
    said = gateway.answers(requests[kind])
    if said:
        status = int(said.split(b" ", 2)[1])
        expect(status in HTTP_STATUSES, f"{requests[kind]!r} is answered with {said[:300]!r}")


def _length(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body)
