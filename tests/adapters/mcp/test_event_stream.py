"""A stream of events means the same however the network cuts it."""

from collections.abc import AsyncIterator

import pytest

from holdfast.adapters.mcp.connection import ReplyLost
from holdfast.adapters.mcp.event_stream import EventStream
from holdfast.limits import MCP_MESSAGE_BYTES_MAX
from holdfast.testing.loop import in_loop

STREAM = (
    b": a comment\r\n\r\nid: 7\r\nretry: 50\r\ndata: {\r\ndata: }\r\n\r\n"
    b"data:second\n\nevent: x\ndata:  third\n\nid: \n\ndata: without an end"
)


class Pieces:
    """A response whose body comes in pieces of one size."""

    def __init__(self, body: bytes, size: int) -> None:
        self._body, self._size = body, size

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), self._size):
            yield self._body[start : start + self._size]


async def events(body: bytes, size: int) -> tuple[list[bytes], EventStream]:
    stream = EventStream()
    return [each async for each in stream.data(Pieces(body, size))], stream  # type: ignore[arg-type]


@in_loop
async def test_every_cut_gives_the_same_events() -> None:
    for size in range(1, len(STREAM) + 1):
        found, stream = await events(STREAM, size)
        assert found == [b"{\n}", b"second", b" third"], size
        assert (stream.last_id, stream.pause_seconds) == ("", 0.05)


@pytest.mark.parametrize("size", [4_096, 2**22])
@in_loop
async def test_a_line_past_the_bound_is_not_kept(size: int) -> None:
    with pytest.raises(ReplyLost, match="more than"):
        await events(b"data: " + b"x" * (MCP_MESSAGE_BYTES_MAX + 1) + b"\n\n", size)


@pytest.mark.parametrize("takes_hours", [True, False])
@in_loop
async def test_a_stream_may_last_for_hours_and_not_flow_without_end(
    monkeypatch: pytest.MonkeyPatch, takes_hours: bool
) -> None:
    body = (b"data: " + b"x" * 2**20 + b"\n\n") * 24
    if takes_hours:  # every piece comes in a minute of its own
        monkeypatch.setattr("holdfast.adapters.mcp.connection._MINUTE_SECONDS", 0.0)
        found, _ = await events(body, 2**20)
        assert len(found) == 24
    else:
        with pytest.raises(ReplyLost, match="16 MiB within a minute without a reply"):
            await events(body, 2**20)
