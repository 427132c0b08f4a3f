"""
A stream ends with its reason: once it has begun, nothing that goes wrong can become a problem any
more.
"""

import asyncio
import errno
from typing import Any

import pytest

from holdfast.errors import BrokenChain, Busy, Refused
from holdfast.gateway.server.tokens import Bearer, TokenAdded
from holdfast.gateway.streams.registry import LiveStream
from holdfast.gateway.streams.sse_response import SseResponse
from holdfast.testing.loop import in_loop


class Unreadable(LiveStream):
    """One record, and then what can't be read."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            Bearer.of(
                TokenAdded(
                    name="a",
                    digest="d",
                    person="alice",
                    scopes=("read",),
                    audience="personal",
                    expires_at=None,
                    by="alice",
                )
            )
        )
        self._error = error
        self._left = [b"id: 7\n\n"]

    @property
    def place(self) -> dict[str, int | str]:
        return {"seq": 7}

    async def read(self) -> bytes:
        if self._left:
            return self._left.pop()
        raise self._error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BrokenChain("edited"), "sealed"),
        (Refused("deleted", code="unknown"), "gone"),
        (Busy("held"), "busy"),
        (OSError(errno.EIO, "Input/output error"), "io"),
    ],
)
@in_loop
async def test_an_unreadable_session_ends_the_stream_with_the_reason(
    error: Exception, reason: str
) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    await SseResponse(Unreadable(error))({"type": "http", "method": "GET"}, receive, send)
    last = sent.pop()
    assert (last["more_body"], last["body"]) == (
        False,
        b'event: end\ndata: {"reason":"%s","seq":7}\n\n' % reason.encode(),
    )
    assert b"".join(each.get("body", b"") for each in sent).endswith(b"id: 7\n\n")
