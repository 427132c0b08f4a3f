"""
Wake a driver or a follower, in this process or another one on the same home.

A notice is a hint: it may be lost, duplicated or late, and safety never depends on it. Waiting
tasks also check again on a timer.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.ids import SessionId


class Notifier(Protocol):
    def notify(self, session: SessionId) -> None:
        """Report that a record was appended to this session. Never blocks, never fails."""
        ...

    def listen(self) -> AbstractAsyncContextManager[AsyncIterator[SessionId]]:
        """
        The sessions that any process on this home appends to from now on, this process included.
        """
        ...
