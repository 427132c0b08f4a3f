"""
The notices that one listener has received and not taken yet. However slow it is, it hears of each
session once, so what waits for it is bounded.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from holdfast.ids import SessionId


class Listener:
    """Owned by the loop that listens; `hear` may come from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heard: dict[SessionId, None] = {}
        self._news = asyncio.Event()

    def hear(self, session: SessionId) -> None:
        if _running() is self._loop:
            self.take(session)
        else:
            with suppress(
                RuntimeError
            ):  # the loop is closed, or closes just now: nobody listens any more
                self._loop.call_soon_threadsafe(self.take, session)

    def take(self, session: SessionId) -> None:
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


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
