"""Connections and streams that would use the server up: each has a bound."""

import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Refused
from holdfast.gateway.http import protocol
from holdfast.gateway.http.context import GatewaySettings
from holdfast.gateway.http.problems import status_of
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.inbox_stream import InboxStream
from holdfast.gateway.streams.prompt_board import PromptBoard
from holdfast.gateway.streams.registry import Streams
from holdfast.gateway.streams.session_tail import SessionStream, SessionTail
from holdfast.ids import SessionId
from holdfast.limits import RECORD_BYTES_MAX
from holdfast.session.home.events import TokenAdded
from tests.acceptance.gateway.conftest import WAIT_SECONDS, Gateway, until

IMPATIENT = """
from holdfast.cli.main import main
from holdfast.gateway.http import protocol

protocol.SILENT_SECONDS = 0.5
main()
"""


def test_a_silent_connection_is_closed(gateway: Gateway) -> None:
    """
    By a server whose patience is shorter than the usual quarter of a minute, and is otherwise
    itself.
    """
    assert protocol.SILENT_SECONDS == 15.0
    gateway.start(program=[sys.executable, "-c", IMPATIENT])
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=WAIT_SECONDS) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost: x")
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(10) == b""


def test_a_connection_that_was_answered_once_is_not_kept_open_byte_by_byte(
    gateway: Gateway,
) -> None:
    """
    The first request is not a licence: what comes after it, a head or a body that nobody reads, is
    there in time or not at all.
    """
    gateway.start(program=[sys.executable, "-c", IMPATIENT])
    for length in (b"", b"Content-Length: 1000000\r\n"):
        with socket.create_connection(
            ("127.0.0.1", gateway.port), timeout=WAIT_SECONDS
        ) as connection:
            connection.sendall(
                b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n" % (gateway.port, length)
            )
            assert connection.recv(65536).startswith(b"HTTP/1.1 204")
            connection.sendall(b"G")
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(10) == b""


def test_a_connection_is_used_for_many_requests_whatever_their_pieces(shared: Gateway) -> None:
    """
    A client that sends whole requests is not cut, however often they are broken into pieces on the way.
    """
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % shared.port
    with socket.create_connection(("127.0.0.1", shared.port), timeout=WAIT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(request), 7):
            connection.sendall(request[:cut])
            connection.sendall(request[cut:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 204")


def test_two_tokens_can_not_fill_all_streams() -> None:
    """
    Neither two tokens of one person nor two of two people: others still get one, and each refusal
    says whose bound it is.
    """

    async def story() -> None:
        none: Any = None
        settings = GatewaySettings()
        bounds = (
            settings.streams_per_token_max,
            settings.streams_per_person_max,
            settings.streams_max,
        )
        assert bounds[0] < bounds[1] <= bounds[2] // 4
        streams = Streams(
            none, none, streams_max=40, streams_per_token_max=5, streams_per_person_max=10
        )
        tail = SessionTail(SessionId("ops/api"), asyncio.Semaphore(), none)

        def bearer(name: str, person: str) -> Bearer:
            return Bearer.of(
                TokenAdded(
                    name=name,
                    digest=name,
                    person=person,
                    scopes=("read",),
                    audience="personal",
                    expires_at=None,
                    by="a",
                )
            )

        with contextlib.ExitStack() as stack:

            def fill(name: str, person: str) -> tuple[int, str]:
                for count in range(41):
                    try:
                        stack.enter_context(
                            streams.hold(SessionStream(tail, bearer(name, person), 0))
                        )
                    except Refused as exc:
                        return (count, exc.message) if status_of(exc) == 429 else (-1, exc.code)
                raise AssertionError("no bound")

            assert fill("a1", "alice") == (5, "this token has 5 streams open already")
            assert fill("b1", "bob") == (5, "this token has 5 streams open already")
            assert fill("a2", "alice") == (5, "this token has 5 streams open already")
            assert fill("a3", "alice") == (0, "alice has 10 streams open already")
            assert [fill(f"c{each}", f"carol{each}")[0] for each in range(6)] == [5, 5, 5, 5, 5, 0]
            assert fill("d1", "dan") == (0, "40 streams are open already")
        assert (len(streams), streams._of_token, streams._of_person) == (0, {}, {})

    asyncio.run(story())


def test_more_streams_than_one_token_may_have_are_refused() -> None:
    async def story() -> None:
        none: Any = None
        streams = Streams(
            none, none, streams_max=3, streams_per_token_max=2, streams_per_person_max=3
        )
        tail = SessionTail(SessionId("ops/api"), asyncio.Semaphore(), none)
        one, other = (
            Bearer.of(
                TokenAdded(
                    name=name,
                    digest=name,
                    person="alice",
                    scopes=("read",),
                    audience="personal",
                    expires_at=None,
                    by="a",
                )
            )
            for name in "ab"
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(streams.hold(SessionStream(tail, one, 0)))
            stack.enter_context(
                streams.hold(InboxStream(PromptBoard(), one, None))
            )  # whatever it tells, it is a stream
            for listener in (SessionStream(tail, one, 0), InboxStream(PromptBoard(), one, None)):
                with pytest.raises(Refused) as refused, streams.hold(listener):
                    pass
                assert status_of(refused.value) == 429
            stack.enter_context(streams.hold(SessionStream(tail, other, 0)))
            with pytest.raises(Refused), streams.hold(SessionStream(tail, other, 0)):
                pass
        assert len(streams) == 0
        with streams.hold(SessionStream(tail, one, 0)):
            assert len(streams) == 1

    asyncio.run(story())


def test_a_client_that_never_reads_costs_bounded_memory(gateway: Gateway) -> None:
    """
    Forty never-reading followers of six megabytes of history each: what one holds is bounded by two
    records, not by the history; and others go on.

    One record may be on its way into the socket and one may wait behind it. Unbounded, this would
    be 240 MB.
    """
    blob, turns, stuck_clients = "x" * 200_000, 12, 40
    gateway.settings(
        f'[agents.assistant]\nmodel = "{gateway.script(*[{"say": blob} for _ in range(turns)])}"\ntools = []\n'
    )
    gateway.start()
    token = gateway.token("alice")
    alice = gateway.client(token)
    for number in range(turns):
        assert gateway.send(alice, "ops/long", f"{number} " + "y" * 100_000).status_code == 202
        until(
            lambda: alice.get("/v1/sessions/ops/long").json()["phase"] == "idle", "the turn to end"
        )

    def read_whole() -> None:
        with gateway.events(alice, "ops/long") as reading:
            reading.until_record("turn_ended", turn=f"t{turns}")

    assert gateway.process is not None
    for _ in range(3):
        read_whole()
    before = _resident_bytes(gateway.process.pid)
    stuck = []
    try:
        for _ in range(stuck_clients):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", gateway.port))
            connection.sendall(
                f"GET /v1/sessions/ops/long/events HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            stuck.append(connection)
        until(
            lambda: f"holdfast_streams {stuck_clients}" in alice.get("/metrics").text, "all streams"
        )
        read_whole()
        grown = _resident_bytes(gateway.process.pid) - before
        assert grown < stuck_clients * 2 * RECORD_BYTES_MAX, (
            f"{grown / stuck_clients / 1024:.0f} KiB for each"
        )
    finally:
        for connection in stuck:
            connection.close()
    until(lambda: "holdfast_streams 0" in alice.get("/metrics").text, "their streams to be closed")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
