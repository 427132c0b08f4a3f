"""
Notices between stores on one disk. A lost notice is lost for every listener, which the port allows
because a notice is a hint.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.adapters.inmemory.disk import InMemoryDisk
from holdfast.adapters.listener import Listener
from holdfast.ids import SessionId


class InMemoryNotifier:
    def __init__(self, disk: InMemoryDisk) -> None:
        self._disk = disk

    def notify(self, session: SessionId) -> None:
        if self._disk.notices_to_lose > 0:
            self._disk.notices_to_lose -= 1
            return
        for listener in list(self._disk.listeners):
            listener.hear(session)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[SessionId]]:
        listener = Listener(asyncio.get_running_loop())
        self._disk.listeners.append(listener)
        try:
            yield listener.notices()
        finally:
            self._disk.listeners.remove(listener)
