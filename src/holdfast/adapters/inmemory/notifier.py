"""
Notices between stores on one disk. A listener that does not keep up hears of each session once, so what waits for it is bounded.

Notices to be lost are lost for everybody, which is what a hint must allow.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.adapters.inmemory.disk import InMemoryDisk
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


class Listener:
    """Owned by the loop that listens; `hear` may come from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heard: dict[SessionId, None] = {}
        self._news = asyncio.Event()

    def hear(self, session: SessionId) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, session)

    def _take(self, session: SessionId) -> None:
        self._heard[session] = None
        self._news.set()

    async def notices(self) -> AsyncIterator[SessionId]:
        while True:
            await self._news.wait()
            while self._heard:
                session = next(iter(self._heard))
                del self._heard[session]
                yield session
            self._news.clear()
