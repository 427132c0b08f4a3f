"""An answer of a chat's platform is read whole, or it is not believed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from holdfast.adapters.channels.discord.platform import DiscordPlatform
from holdfast.adapters.channels.discord.rest_api import DiscordApi
from holdfast.adapters.channels.http_request import ANSWER_BYTES_MAX, ask
from holdfast.adapters.channels.telegram.bot_api import BotApi
from holdfast.ports.chat.messages import ChatParcel
from holdfast.ports.delivery import DeliveryInDoubt
from holdfast.testing.loop import in_loop

# No socket and no buffer between takes that much at once, so it comes in pieces.
LARGE = json.dumps({"ok": True, "result": [{"text": "x" * 2_000_000}]}).encode()


@asynccontextmanager
async def server(body: bytes, *, promised: int | None = None) -> AsyncIterator[str]:
    """A server that answers every request with this body; its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        length = len(body) if promised is None else promised
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + body)
        with suppress(ConnectionError):  # the client has read enough
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@in_loop
async def test_an_answer_that_comes_in_pieces_is_read_whole() -> None:
    async with server(LARGE) as address:
        given = await ask("Somebody", "GET", address, seconds=20)
        assert given.body == LARGE
        found = await BotApi("1:token", api=address).call("getUpdates")
        assert found == json.loads(LARGE)["result"]


@in_loop
async def test_an_answer_beyond_the_bound_is_in_doubt() -> None:
    async with server(b"x" * (ANSWER_BYTES_MAX + 1)) as address:
        with pytest.raises(DeliveryInDoubt):
            await ask("Somebody", "GET", address, seconds=20)


@in_loop
async def test_an_answer_that_breaks_off_is_in_doubt() -> None:
    async with server(LARGE[:1000], promised=len(LARGE)) as address:
        with pytest.raises(DeliveryInDoubt):
            await ask("Somebody", "GET", address, seconds=20)


@pytest.mark.parametrize(
    "body", [b"<html>", b"[" * 100_000, b'"\\ud800"'], ids=["html", "deep", "half"]
)
@in_loop
async def test_an_answer_that_cannot_be_read_is_in_doubt(body: bytes) -> None:
    async with server(body) as address:
        with pytest.raises(DeliveryInDoubt):
            await DiscordApi("token", api=address).call("POST", "/channels/1/messages", {})
        with pytest.raises(DeliveryInDoubt):
            await BotApi("1:token", api=address).call("sendMessage")


@in_loop
async def test_a_list_of_messages_that_cannot_be_read_does_not_say_that_one_is_absent() -> None:
    """An answer `absent` would send the message a second time."""
    fields: dict[str, Any] = {"delivery": "d", "to": "in5", "kind": "reply", "text": "hi"}
    parcel = msgspec.convert({**fields, "queued_at": 0}, ChatParcel)
    async with server(b"[{") as address:
        assert await DiscordPlatform("token", api=address).find(parcel) == "unknown"
