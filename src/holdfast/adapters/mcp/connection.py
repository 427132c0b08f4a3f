"""
The contract of a connection to a server, whatever carries it.

The difference between the failures decides an outcome: `NeverSent` means that the server certainly
did not get the request, `Challenged` that it says so itself, and `ReplyLost` that nobody can know.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.adapters.mcp.messages import ServerReply
from holdfast.adapters.mcp.oauth.challenge import Challenge
from holdfast.limits import MCP_MESSAGE_BYTES_MAX, MCP_UNASKED_BYTES_MAX, MIB


class NeverSent(Exception):
    """The server certainly does not act on the request. The text says why."""


class Challenged(NeverSent):
    """
    The server did not take the request, because no good token came with it. The text says what a
    person can do.
    """

    def __init__(self, text: str, challenge: Challenge) -> None:
        super().__init__(text)
        self.challenge = challenge


class ReplyLost(Exception):
    """The request left, and its reply will not come. The text says why."""


QUESTION = "elicitation/create"
"""The one request of a server that a person may answer."""

OnQuestion = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Takes the params of a question that comes inside of a call, and returns the result for it."""


Asked = tuple[str, dict[str, Any]]
"""The method and the params of a request."""


class Connection(Protocol):
    @property
    def is_open(self) -> bool: ...

    async def read(self, asked: Sequence[Asked], *, timeout_seconds: float) -> list[ServerReply]:
        """
        Send requests without effects, together where that saves time. Return the replies in their
        order. Raise NeverSent or ReplyLost.
        """
        ...

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        on_question: OnQuestion | None = None,
    ) -> ServerReply:
        """
        Send one request, once, and return the server's reply. Raise NeverSent or ReplyLost.
        `headers` are for a connection that has any. The time stands still while a question that
        came inside of the request is open.
        """
        ...

    async def notify(self, method: str) -> None:
        """Send a notification if the connection is open. Its loss does not matter."""
        ...

    def speak(self, version: str, *, names_requests: bool = False) -> None:
        """Use this protocol version from now on, and name each request beside it if asked to."""
        ...

    async def close(self) -> None: ...


_MINUTE_SECONDS = 60.0
TOO_MUCH = f"more than {MCP_UNASKED_BYTES_MAX // MIB} MiB within a minute without a reply"


class Talk:
    """
    Counts the bytes that a server sends without a reply: progress, log messages and blanks. An
    honest server may log for days, so only those of one minute count.
    """

    def __init__(self) -> None:
        self._bytes, self._since = 0, time.monotonic()

    def is_too_much(self, size: int) -> bool:
        """Count further bytes. The last of them may be one message that is in bounds itself."""
        now = time.monotonic()
        if now - self._since >= _MINUTE_SECONDS:
            self._bytes, self._since = 0, now
        self._bytes += size
        return self._bytes > MCP_UNASKED_BYTES_MAX + MCP_MESSAGE_BYTES_MAX

    def replied(self) -> None:
        self._bytes = 0
