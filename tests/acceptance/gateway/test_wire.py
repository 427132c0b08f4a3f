"""
G1, byte by byte: what two readers could take for two different requests is not a request, and nothing
that follows one is answered in its name.

The real application and protocol, with no socket between: each case is given whole, and again a few
bytes at a time, and both are answered alike. Behind nearly every odd request stands one that would
be answered: that no second answer ever comes is what keeps a proxy in front and this server of one
mind about where a request ends.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import uvicorn
from proof.fuzz.http import InMemoryWire
from uvicorn.server import ServerState

from holdfast.gateway.http import protocol
from holdfast.gateway.http.app import make_app
from holdfast.gateway.http.context import Gateway, GatewaySettings
from holdfast.gateway.http.protocol import Protocol
from holdfast.gateway.http.request_guard import HEAD_BYTES_MAX
from holdfast.gateway.server.tokens import TokenBook
from holdfast.testing.memory_home import open_in_memory

HOST = b"Host: 127.0.0.1:8321\r\n"
GET = b"GET /healthz HTTP/1.1\r\n"
OK = GET + HOST + b"\r\n"
POST = b"POST /v1/codes HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
BODY = b'{"code":"x"}'  # twelve bytes; no such code, so 401
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"c\r\n" + BODY + b"\r\n0\r\n\r\n"
LONG = b"y" * (HEAD_BYTES_MAX * 6)


class Said(NamedTuple):
    """Statuses, in order, and whether the server hung up."""

    statuses: list[int]
    closed: bool


class Wire(InMemoryWire):
    def __init__(self) -> None:
        super().__init__()
        self.hung_up = asyncio.Event()

    def close(self) -> None:
        super().close()
        self.hung_up.set()

    abort = close


class Server:
    def __init__(self, app: Any, token: str) -> None:
        self._config = uvicorn.Config(
            app, http=Protocol, ws="none", lifespan="off", log_config=None, access_log=False
        )
        self._config.load()
        self.token = token

    def connect(self) -> tuple[Protocol, Wire]:
        made, wire = Protocol(config=self._config, server_state=ServerState(), app_state={}), Wire()
        made.connection_made(wire)
        return made, wire

    async def hear(self, request: bytes, piece_bytes: int) -> Said:
        made, wire = self.connect()
        for start in range(0, len(request), piece_bytes):
            if not wire.closed:  # no transport hands anything over after that
                made.data_received(request[start : start + piece_bytes])
            await asyncio.sleep(0)
        await rest()
        said = Said(
            [int(found) for found in re.findall(rb"HTTP/1\.1 ([0-9]{3})", wire.said)], wire.closed
        )
        made.connection_lost(None)
        await rest()
        return said


async def rest() -> None:
    """Until nothing is left that could be done without anybody sending more."""
    for _ in range(60):
        await asyncio.sleep(0)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    async with open_in_memory() as home:
        gateway = Gateway(
            home.service,
            GatewaySettings(requests_per_second=1e9, requests_burst=1e9),
            workspace=lambda: None,
        )
        gateway.code_tries.take = lambda _: True  # type: ignore[method-assign]  # a bound of its own, which is looked at elsewhere
        token, _ = await TokenBook(home.service.home).add(
            "wire", person="alice", scopes=["read", "send"], by="tests", now=0
        )
        yield Server(make_app(gateway), token)


class Runs(NamedTuple):
    """One server for all cases, on a loop of its own."""

    loop: asyncio.Runner
    server: Server

    def heard(self, request: bytes) -> Said:
        """However the bytes arrive."""
        whole = self.loop.run(self.server.hear(request, len(request)))
        assert whole == self.loop.run(
            self.server.hear(request, 1_000 if len(request) > 1_000 else 7)
        )
        return whole


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with asyncio.Runner() as loop:
        context = serving()
        yield Runs(loop, loop.run(context.__aenter__()))
        loop.run(context.__aexit__(None, None, None))


REFUSED = {
    # where a request ends
    "a length and chunks": POST
    + b"Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKS,
    "chunks and a length": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
    + CHUNKS,
    "two lengths": POST + b"Content-Length: 12\r\nContent-Length: 5\r\n\r\n" + BODY,
    "a length twice": POST + b"Content-Length: 12\r\nContent-Length: 12\r\n\r\n" + BODY,
    "a list of lengths": POST + b"Content-Length: 12, 12\r\n\r\n" + BODY,
    "a signed length": POST + b"Content-Length: +12\r\n\r\n" + BODY,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + BODY,
    "a length in hex": POST + b"Content-Length: 0xc\r\n\r\n" + BODY,
    "an empty length": POST + b"Content-Length: \r\n\r\n" + BODY,
    "a length in two words": POST + b"Content-Length: 1 2\r\n\r\n" + BODY,
    "a length beyond all numbers": POST + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY,
    "a length before a space": POST + b"Content-Length : 12\r\n\r\n" + BODY,
    "chunks before a space": POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    "packed chunks": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunks, packed": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS,
    "something like chunks": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "chunks behind a control character": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "chunks twice": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKS,
    "chunks on a folded line": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "chunks of before 1.1": POST.replace(b"1.1", b"1.0", 1)
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + CHUNKS,
    "a chunk's size with a prefix": CHUNKED + b"0xc\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a negative chunk": CHUNKED + b"-c\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk's size before a space": CHUNKED + b"c \r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk beyond all numbers": CHUNKED + b"fffffffffffffffffffff\r\n" + BODY,
    "a chunk longer than it says": CHUNKED + b"b\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk without its end": CHUNKED + b"c\r\n" + BODY + b"0\r\n\r\n",
    "chunks with half line ends": CHUNKED + b"c\n" + BODY + b"\n0\n\n",
    "a line end inside a chunk's extension": CHUNKED + b"c;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n",
    "an endless extension": CHUNKED + b"c;" + LONG,
    "an endless trailer": CHUNKED + b"c\r\n" + BODY + b"\r\n0\r\nX: " + LONG,
    "endless trailers": CHUNKED + b"c\r\n" + BODY + b"\r\n0\r\n" + b"X: y\r\n" * 20_000,
    # how a head is written
    "half line ends": OK.replace(b"\r\n", b"\n"),
    "half a line end": GET + b"X: a\n" + HOST + b"\r\n",
    "the other half": GET + b"X: a\rTransfer-Encoding: chunked\r\n" + HOST + b"\r\n",
    "a folded line": GET + HOST + b"X: a\r\n b\r\n\r\n",
    "a folded first line": GET + b" X: a\r\n" + HOST + b"\r\n",
    "a zero in a value": GET + b"X: a\0b\r\n" + HOST + b"\r\n",
    "a zero in a name": GET + b"X\0: a\r\n" + HOST + b"\r\n",
    "a control character in a value": GET + b"X: a\x01b\r\n" + HOST + b"\r\n",
    "a delete in a value": GET + b"X: a\x7fb\r\n" + HOST + b"\r\n",
    "a space in a name": GET + b"X Y: a\r\n" + HOST + b"\r\n",
    "no name": GET + b": a\r\n" + HOST + b"\r\n",
    "no colon": GET + b"X\r\n" + HOST + b"\r\n",
    "a bracket in a name": GET + b"X(: a\r\n" + HOST + b"\r\n",
    "a letter beyond ASCII in a name": GET + b"X\xc3\xa9: a\r\n" + HOST + b"\r\n",
    "a head too long": GET + HOST + b"X: " + LONG + b"\r\n\r\n",
    "a head without end": GET + HOST + b"X: " + LONG,
    "too many lines": GET + HOST + b"X: y\r\n" * 20_000 + b"\r\n",
    "a target too long": b"GET /healthz?" + LONG + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "nothing but line ends": b"\r\n" * HEAD_BYTES_MAX,
    # what is asked for
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/1.2": b"GET /healthz HTTP/1.2\r\n" + HOST + b"\r\n",
    "HTTP/2.0": b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/1.1x": b"GET /healthz HTTP/1.1x\r\n" + HOST + b"\r\n",
    "http/1.1": b"GET /healthz http/1.1\r\n" + HOST + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no slash": b"GET healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET /healthz#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the target": b"GET /heal thz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a zero in the target": b"GET /heal\0thz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a letter beyond ASCII in the target": b"GET /health\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "tabs for spaces": b"GET\t/healthz\tHTTP/1.1\r\n" + HOST + b"\r\n",
    "a method in small letters": b"get /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method that nobody knows": b"FOO /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "no method": b"G(T /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "an upgrade": GET + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "another upgrade": GET + HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
    "a tunnel": b"CONNECT /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}

FOREIGN = {
    "another server's address as the target": b"GET http://evil.com/healthz HTTP/1.1\r\n"
    + HOST
    + b"\r\n",
    "our address as the target": b"GET http://127.0.0.1:8321/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a target that begins with a host": b"GET //evil.com/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "the server as a whole": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tunnel to a host": b"CONNECT 127.0.0.1:8321 HTTP/1.1\r\n" + HOST + b"\r\n",
    "no host": GET + b"\r\n",
    "two hosts": GET + HOST + HOST + b"\r\n",
    "two names in a host": GET + b"Host: 127.0.0.1:8321\t,evil.com\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", REFUSED.values(), ids=REFUSED.keys())
def test_the_server_refuses_an_ambiguous_request_and_answers_nothing_after_it(
    runs: Runs, request_bytes: bytes
) -> None:
    assert runs.heard(request_bytes + OK) == Said([400], closed=True)


@pytest.mark.parametrize("request_bytes", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_target_or_a_host_that_is_not_ours_is_a_wrong_host(
    runs: Runs, request_bytes: bytes
) -> None:
    assert runs.heard(request_bytes + OK) == Said([403], closed=True)


@pytest.mark.parametrize(
    ("request_bytes", "said"),
    [
        (OK, Said([204], closed=False)),
        (GET + b"Host: \t 127.0.0.1:8321 \t \r\n\r\n", Said([204], closed=False)),
        (GET + b"X: \xff\r\n" + HOST + b"\r\n", Said([204], closed=False)),
        (b"GET /healthz HTTP/1.0\r\n" + HOST + b"\r\n", Said([204], closed=True)),
        (GET + HOST + b"Connection: close\r\n\r\n", Said([204], closed=True)),
        (POST + b"Content-Length: 12\r\n\r\n" + BODY, Said([401], closed=False)),
        (POST + b"Content-Length: 12\r\nExpect: 100-continue\r\n\r\n", Said([100], closed=False)),
        # Refused before its body was asked for: what comes next could be that body, or another
        # request.
        (
            POST + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n",
            Said([413], closed=True),
        ),
        (
            b"POST /v1/me HTTP/1.1\r\n"
            + HOST
            + b"Content-Length: 12\r\nExpect: 100-continue\r\n\r\n",
            Said([401], closed=True),
        ),
        (CHUNKED + b"c\r\n" + BODY + b"\r\n0\r\n\r\n", Said([401], closed=False)),
        (
            CHUNKED + b"6;a=b\r\n" + BODY[:6] + b"\r\n6\r\n" + BODY[6:] + b"\r\n0\r\nX: y\r\n\r\n",
            Said([401], closed=False),
        ),
    ],
)
def test_the_server_answers_a_well_formed_request(
    runs: Runs, request_bytes: bytes, said: Said
) -> None:
    assert runs.heard(request_bytes) == said


def test_a_request_that_comes_before_the_answer_to_the_one_before_ends_the_connection_with_that_answer(
    runs: Runs,
) -> None:
    async def story(server: Server) -> None:
        for more in (
            OK,
            POST + b"Content-Length: 12\r\n\r\n" + BODY,
            b"\0garbage\r\n\r\n",
            b"\x16\x03\x01",
        ):
            assert await server.hear(OK + more, 10_000) == Said([204], closed=True)

    runs.loop.run(story(runs.server))


def test_one_request_after_the_other_is_answered_on_one_connection(runs: Runs) -> None:
    async def story(server: Server) -> None:
        made, wire = server.connect()
        for number in range(1, 6):
            made.data_received(OK)
            await rest()
            assert wire.said.count(b"HTTP/1.1 204") == number
        made.data_received(b"\0garbage")
        assert (wire.said.count(b"HTTP/1.1 400"), wire.closed) == (1, True)

    runs.loop.run(story(runs.server))


def test_the_server_does_not_read_a_trailer_as_a_header(runs: Runs) -> None:
    """A token there lets nobody in, and a Host there is nobody's; however it arrives."""

    async def story(server: Server) -> None:
        bearer = b"Authorization: Bearer " + server.token.encode() + b"\r\n"
        cancel = b"POST /v1/sessions/ops/none/cancel HTTP/1.1\r\n" + HOST
        for size in (10_000, 7):
            assert (
                await server.hear(
                    cancel + bearer + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", size
                )
            ).statuses == [404]
            assert (
                await server.hear(
                    cancel + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + bearer + b"\r\n", size
                )
            ).statuses == [401]
            assert (
                await server.hear(
                    CHUNKED + b"c\r\n" + BODY + b"\r\n0\r\nHost: evil.com\r\n\r\n", size
                )
            ).statuses == [401]

    runs.loop.run(story(runs.server))


def test_garbage_behind_a_stream_is_not_answered_into_it(runs: Runs) -> None:
    async def story(server: Server) -> None:
        made, wire = server.connect()
        made.data_received(
            b"GET /v1/approvals/events HTTP/1.1\r\n"
            + HOST
            + b"Authorization: Bearer "
            + server.token.encode()
            + b"\r\n\r\n"
        )
        await rest()
        begun = wire.said
        assert begun.startswith(b"HTTP/1.1 200")
        made.data_received(b"\0garbage" + OK)
        made.data_received(OK)
        await rest()
        assert (wire.said, wire.closed) == (begun, False)
        made.connection_lost(None)
        await rest()

    runs.loop.run(story(runs.server))


def test_an_unreadable_body_is_reported_once_and_its_reader_sends_no_more(
    runs: Runs,
) -> None:
    async def story(server: Server) -> None:
        made, wire = server.connect()
        made.data_received(CHUNKED + b"c\r\n")
        await rest()
        made.data_received(b"\xff" * 40)
        await rest()
        assert (wire.said.count(b"HTTP/1.1"), wire.said[:12], wire.closed) == (
            1,
            b"HTTP/1.1 400",
            True,
        )
        made.connection_lost(None)
        made, wire = server.connect()
        made.data_received(
            GET + HOST + b"Transfer-Encoding: chunked\r\n\r\n-c\r\n"
        )  # who answers this reads no body
        await rest()
        assert (wire.said.count(b"HTTP/1.1"), wire.said[:12], wire.closed) == (
            1,
            b"HTTP/1.1 400",
            True,
        )
        made.connection_lost(None)
        await rest()

    runs.loop.run(story(runs.server))


@pytest.mark.parametrize(
    "first",
    [b"", OK, POST + b"Content-Length: 50000\r\n\r\n"],
    ids=["at once", "after an answer", "after an answer that did not wait for the body"],
)
def test_half_a_head_does_not_hold_a_connection(
    runs: Runs, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "SILENT_SECONDS", 0.001)

    async def story(server: Server) -> None:
        made, wire = server.connect()
        if first:
            made.data_received(
                first.replace(b"Content-Type: application/json\r\n", b"")
            )  # refused for its kind, before its body is read
            await rest()
            assert not wire.closed
        made.data_received(b"GET /he")
        async with asyncio.timeout(60):
            await wire.hung_up.wait()
        made.connection_lost(None)

    runs.loop.run(story(runs.server))
