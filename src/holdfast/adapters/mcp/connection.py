"""
The contract of a connection to a server, whatever carries it.

The difference between the two failures decides an outcome: `NeverSent` means that the server
certainly did not get the request, and `ReplyLost` that nobody can know.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.adapters.mcp.messages import ServerReply


class NeverSent(Exception):
    """No byte of the request left this process. The text says why."""


class ReplyLost(Exception):
    """The request left, and its reply will not come. The text says why."""


class Connection(Protocol):
    @property
    def is_open(self) -> bool: ...

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
    ) -> ServerReply:
        """
        Send one request, once, and return the server's reply. Raise NeverSent or ReplyLost.
        `headers` are for a connection that has any.
        """
        ...

    async def notify(self, method: str) -> None:
        """Send a notification if the connection is open. Its loss does not matter."""
        ...

    def speak(self, version: str, *, names_requests: bool = False) -> None:
        """Use this protocol version from now on, and name each request beside it if asked to."""
        ...

    async def close(self) -> None: ...
