"""
Verbs that are in flight when a home is left: each is stopped where it waits, while everything that
it needs to leave in order is still there.

As with `asyncio.timeout`: the task that waits is cancelled, and its caller hears that the home was
closed instead of a cancellation that nobody asked for. What was durable stands, and a tool that had
started is in doubt, as after any other end of a process. A follower simply ends.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from holdfast.errors import Unusable

_T = TypeVar("_T")


class Closed(Unusable):
    """The home was closed under a verb."""


class InFlight:
    """One per open home, on one event loop."""

    def __init__(self) -> None:
        # How many verbs a task is in: one that is called by a tool may be inside of another.
        self._tasks: dict[asyncio.Task[object], int] = {}
        # Whom we have cancelled, once each.
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
                    hint="what was begun is in its journal: open it again, and resume",
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
        Returns when all have ended; besides those of whoever leaves, who would wait for themselves.
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
    """Goes on for ever, and ends with the home that it follows in."""

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
        """Before its end, by whoever wants no more of it; as with any generator."""
        close = getattr(self._found, "aclose", None)
        if close is not None:
            await close()
