"""
Verbs that are in flight when a home is closed. Each is stopped where it waits, while everything
that it needs for an orderly end still exists.

As with `asyncio.timeout`, the waiting task is cancelled, and its caller gets the error that the
home was closed instead of a cancellation. Durable records stay, and a started tool is in doubt, as
after any other end of a process. A follower simply ends.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from holdfast.errors import Unusable

_T = TypeVar("_T")


class Closed(Unusable):
    """The home was closed during a verb."""


class SameEventLoop:
    """A home belongs to the event loop that opened it. Another one is refused at once, by name."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """Raise Unusable if another event loop runs here."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return  # only a coroutine can do harm, and none runs without a loop
        if running is not self._loop:
            raise Unusable(
                "this home was opened in another event loop",
                code="other_event_loop",
                hint="use it in the loop that opened it; from threads and other loops use "
                "holdfast.blocking",
            )


class InFlight:
    """One per open home, on one event loop."""

    def __init__(self) -> None:
        # The number of verbs that each task is in: a verb called by a tool may be inside of
        # another.
        self._tasks: dict[asyncio.Task[object], int] = {}
        # The tasks that were cancelled here, once each.
        self._stopped: set[asyncio.Task[object]] = set()
        self._changed = asyncio.Event()
        self._followers: weakref.WeakSet[Follower[Any]] = weakref.WeakSet()

    @contextmanager
    def verb(self) -> Generator[None, None, None]:
        task = asyncio.current_task()
        if task is None:
            raise Unusable(
                "the home is used outside of a task", hint="use asyncio.run, or holdfast.blocking"
            )
        before = task.cancelling()
        self._tasks[task] = self._tasks.get(task, 0) + 1
        try:
            yield
        except asyncio.CancelledError as exc:
            if self._tasks[task] == 1 and task in self._stopped and task.uncancel() <= before:
                raise Closed(
                    "the home was closed meanwhile",
                    hint="begun turns are in its journal: open the home again, and resume",
                ) from exc
            raise
        finally:
            self._tasks[task] -= 1
            if self._tasks[task] == 0:
                del self._tasks[task]
                self._stopped.discard(task)
            self._changed.set()

    def follow(self, found: AsyncIterator[_T]) -> "Follower[_T]":
        follower = Follower(self, found)
        self._followers.add(follower)
        return follower

    async def stop(self, *, besides: asyncio.Task[object] | None) -> None:
        """
        Stop all verbs and return when they have ended, except those of the closing task, which
        would wait for itself.
        """
        while others := self._tasks.keys() - {besides}:
            for task in others - self._stopped:
                self._stopped.add(task)
                task.cancel()
            self._changed.clear()
            await self._changed.wait()
        for follower in list(self._followers):
            await follower.aclose()


class Follower(AsyncIterator[_T], Generic[_T]):
    """Yields without end, until its home is closed."""

    def __init__(self, flight: InFlight, found: AsyncIterator[_T]) -> None:
        self._flight = flight
        self._found = found

    async def __anext__(self) -> _T:
        try:
            with self._flight.verb():
                return await anext(self._found)
        except Closed:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """End it early, as with any generator."""
        close = getattr(self._found, "aclose", None)
        if close is not None:
            await close()
