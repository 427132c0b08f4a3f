"""
A stream of events that answers one request, as the format of event streams defines it.

It may come in several parts: on the older wire a server may end a stream and give the rest to a
client that names the last event. The bounds hold for all parts together.
"""

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from holdfast.adapters.mcp.connection import TOO_MUCH, ReplyLost, Talk
from holdfast.limits import MCP_MESSAGE_BYTES_MAX, MIB

if TYPE_CHECKING:
    import httpx2

_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 1.0, 10.0
_ID = re.compile(rb"[\x21-\x7e]{1,512}\Z")  # a header must be able to carry it
_DIGITS = re.compile(rb"[0-9]{1,6}\Z")


class EventStream:
    def __init__(self) -> None:
        self.last_id = ""  # of an event; empty if the rest can't be asked for
        self.pause_seconds = _PAUSE_SECONDS  # before the rest is asked for
        self._talk = Talk()

    async def data(self, response: "httpx2.Response") -> AsyncIterator[bytes]:
        """Yield the data of each event that has any. Raise ReplyLost past a bound."""
        data, line = bytearray(), bytearray()
        async for chunk in response.aiter_bytes():
            if self._talk.is_too_much(len(chunk)):
                raise ReplyLost(f"the server sent {TOO_MUCH}")
            line += chunk
            if b"\n" not in chunk:  # look at a long line once, however small its pieces are
                refuse_long(len(line), MCP_MESSAGE_BYTES_MAX)
                continue
            *lines, rest = bytes(line).replace(b"\r\n", b"\n").split(b"\n")
            line = bytearray(rest)
            refuse_long(len(line), MCP_MESSAGE_BYTES_MAX)
            for each in lines:
                if not each and data:
                    yield bytes(data)
                    data = bytearray()
                elif each.startswith(b"data:"):
                    data += (b"\n" if data else b"") + each[5:].removeprefix(b" ")
                    refuse_long(len(data), MCP_MESSAGE_BYTES_MAX)
                else:
                    self._note(each)

    def _note(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id":
            self.last_id = value.decode() if _ID.match(value) else ""
        elif name == b"retry" and _DIGITS.match(value):
            self.pause_seconds = min(int(value) / 1000, _PAUSE_SECONDS_MAX)


def refuse_long(size: int, most: int) -> None:
    if size > most:
        raise ReplyLost(f"the server sent more than {most // MIB} MiB")
