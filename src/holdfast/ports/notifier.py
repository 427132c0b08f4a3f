"""
Waking a driver or a follower, in this process or another one on the same home.

A notice is a hint: it may be lost, doubled or late, and nothing may depend on it for safety.
Whoever waits also looks again by itself.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.ids import SessionId


class Notifier(Protocol):
    def notify(self, session: SessionId) -> None:
        """Say that something was appended to this session. Never blocks, never fails."""
        ...

    def listen(self) -> AbstractAsyncContextManager[AsyncIterator[SessionId]]:
        """
        Sessions that something was appended to, from now on, by anyone on this home, ourselves
        included.
        """
        ...
