"""A connection over two pipes: what certainly never left, what is lost, and what a server may ask."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.adapters.mcp.connection import NeverSent, ReplyLost
from holdfast.adapters.mcp.pipe import PipeConnection
from holdfast.limits import MCP_MESSAGE_BYTES_MAX
from holdfast.testing.loop import in_loop

SECONDS = 10.0


class Peer:
    """The server's ends of both pipes."""

    def __init__(self, reads: int, writes: int) -> None:
        self.reads, self.writes = reads, writes
        self._rest = b""

    async def line(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            self._rest += await asyncio.to_thread(os.read, self.reads, 65536)
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def say(self, **message: Any) -> None:
        os.write(self.writes, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[PipeConnection, Peer, list[str]], None]:
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    broken: list[str] = []
    connection = PipeConnection(reads=ours_read, writes=ours_write, on_broken=broken.append)
    peer = Peer(theirs_read, theirs_write)
    try:
        yield connection, peer, broken
    finally:
        await connection.close()
        for fd in (peer.reads, peer.writes):
            with contextlib.suppress(OSError):  # closed by the test
                os.close(fd)


@in_loop
async def test_a_request_to_a_server_that_reads_no_more_was_never_sent() -> None:
    async with connected() as (connection, peer, _):
        os.close(peer.reads)
        with pytest.raises(NeverSent, match="no longer reads"):
            await connection.request("tools/call", {}, timeout_seconds=SECONDS)
        assert not connection.is_open
        with pytest.raises(NeverSent):
            await connection.request("tools/call", {}, timeout_seconds=SECONDS)


@in_loop
async def test_a_request_of_which_one_byte_was_written_is_lost() -> None:
    """A pipe takes 64 KiB. The rest waits, and the server dies meanwhile."""
    async with connected() as (connection, peer, _):
        large = {"text": "x" * 300_000}
        asking = asyncio.ensure_future(
            connection.request("tools/call", large, timeout_seconds=SECONDS)
        )
        assert await asyncio.to_thread(os.read, peer.reads, 1) == b"{"
        os.close(peer.reads)
        with pytest.raises(ReplyLost):
            await asking


@in_loop
async def test_a_server_that_closes_its_output_loses_the_reply_and_says_so_once() -> None:
    async with connected() as (connection, peer, broken):
        asking = asyncio.ensure_future(
            connection.request("tools/call", {}, timeout_seconds=SECONDS)
        )
        await peer.line()
        os.close(peer.writes)
        with pytest.raises(ReplyLost, match="closed its output"):
            await asking
        assert broken == ["the server has closed its output"]


@in_loop
async def test_replies_find_their_requests_in_any_order() -> None:
    async with connected() as (connection, peer, _):
        first, second = (
            asyncio.ensure_future(connection.request(name, {}, timeout_seconds=SECONDS))
            for name in ("a", "b")
        )
        got = [await peer.line(), await peer.line()]
        for message in reversed(got):
            peer.say(id=message["id"], result={"of": message["method"]})
        assert (await first).result == {"of": "a"}
        assert (await second).result == {"of": "b"}


@in_loop
async def test_a_ping_is_answered_and_every_other_request_is_refused() -> None:
    async with connected() as (_, peer, broken):
        peer.say(id="p-1", method="ping")
        assert await peer.line() == {"jsonrpc": "2.0", "id": "p-1", "result": {}}
        for method in ("sampling/createMessage", "roots/list", "elicitation/create"):
            peer.say(id=7, method=method, params={})
            refused = await peer.line()
            assert (refused["id"], refused["error"]["code"]) == (7, -32601)
        assert broken == []


@in_loop
async def test_a_time_out_tells_the_server_and_a_late_reply_finds_nobody() -> None:
    async with connected() as (connection, peer, broken):
        with pytest.raises(ReplyLost, match=r"within 0\.05 s"):
            await connection.request("tools/call", {}, timeout_seconds=0.05)
        request, cancelled = await peer.line(), await peer.line()
        assert cancelled["params"]["requestId"] == request["id"]
        peer.say(id=request["id"], result={})
        asking = asyncio.ensure_future(connection.request("next", {}, timeout_seconds=SECONDS))
        peer.say(id=(await peer.line())["id"], result={"ok": True})
        assert (await asking).result == {"ok": True}
        assert broken == []


@pytest.mark.parametrize("with_newline", [True, False])
@in_loop
async def test_a_line_past_the_bound_cuts_the_server_off(with_newline: bool) -> None:
    async with connected() as (connection, peer, broken):
        line = b"x" * (MCP_MESSAGE_BYTES_MAX + 1) + (b"\n" if with_newline else b"")

        def flood() -> None:
            with contextlib.suppress(BrokenPipeError):  # cut off, as it should be
                os.write(peer.writes, line)

        asking = asyncio.ensure_future(connection.request("x", {}, timeout_seconds=SECONDS))
        await peer.line()
        await asyncio.to_thread(flood)
        with pytest.raises(ReplyLost, match="more than 4 MiB"):
            await asking
        assert broken == ["the server sent a line of more than 4 MiB"]


@in_loop
async def test_a_line_that_was_cut_off_ends_the_connection() -> None:
    """The next line would go on where it broke off, and the server would read neither."""
    async with connected() as (connection, peer, broken):
        asking = asyncio.ensure_future(
            connection.request("tools/call", {"text": "x" * 300_000}, timeout_seconds=SECONDS)
        )
        assert await asyncio.to_thread(os.read, peer.reads, 1) == b"{"
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not connection.is_open
        assert broken == ["a message to it was cut off"]
        with pytest.raises(NeverSent):
            await connection.request("tools/call", {}, timeout_seconds=SECONDS)
        rest = await asyncio.to_thread(_read_to_end, peer.reads)
        assert b"\n" not in rest


@in_loop
async def test_a_server_that_goes_while_a_line_is_written_is_noticed_at_once() -> None:
    """Its input may still be open in another process, so the pipe stays full and nobody reads."""
    async with connected() as (connection, peer, _):
        asking = asyncio.ensure_future(
            connection.request("tools/call", {"text": "x" * 300_000}, timeout_seconds=3_600)
        )
        assert await asyncio.to_thread(os.read, peer.reads, 1) == b"{"
        os.close(peer.writes)
        async with asyncio.timeout(SECONDS):
            with pytest.raises(ReplyLost, match="closed its output"):
                await asking


def _read_to_end(fd: int) -> bytes:
    found = b""
    while piece := os.read(fd, 65536):
        found += piece
    return found


@pytest.mark.parametrize("takes_hours", [True, False])
@in_loop
async def test_a_server_may_talk_for_hours_and_not_without_end(
    monkeypatch: pytest.MonkeyPatch, takes_hours: bool
) -> None:
    if takes_hours:  # every line comes in a minute of its own
        monkeypatch.setattr("holdfast.adapters.mcp.connection._MINUTE_SECONDS", 0.0)
    async with connected() as (connection, peer, broken):
        asking = asyncio.ensure_future(connection.request("x", {}, timeout_seconds=60))
        asked = await peer.line()

        def talk() -> None:
            with contextlib.suppress(BrokenPipeError):  # cut off
                for _ in range(24):
                    peer.say(method="notifications/message", params={"data": "x" * 2**20})
                peer.say(id=asked["id"], result={"ok": True})

        await asyncio.to_thread(talk)
        if takes_hours:
            assert (await asking).result == {"ok": True}
        else:
            with pytest.raises(ReplyLost, match="16 MiB within a minute without a reply"):
                await asking
        assert connection.is_open == takes_hours
        assert len(broken) == (not takes_hours)
