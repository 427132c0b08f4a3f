"""
The store's own threads: bounded, created on demand, quick to wake. All blocking work (a sync, a
lock, a big hash) runs here, never on the event loop.

Work that has begun is awaited to its end. A cancelled caller receives its cancellation after the
outcome is known.
"""

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from holdfast.errors import Busy

T = TypeVar("T")


def no_thread() -> Busy:
    """
    The system starts no more threads: the user or the container has reached its process limit.
    """
    return Busy(
        "no thread could be started",
        code="io",
        hint="let this user have more processes (`ulimit -u`, the container's `pids.max`), then "
        "try again",
    )


class Threads:
    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._made: list[threading.Thread] = []
        self._owed = 0  # work that was given and is not done

    def run(self, work: Callable[[], None]) -> None:
        """
        Run `work` soon, in one of the threads. `work` handles its own errors. Raise Busy if there
        is no thread and none can be started; `work` then does not run.
        """
        with self._guard:
            if self._owed >= len(self._made) and len(self._made) < self._most:
                self._make_one()
            self._owed += 1
        self._work.put(work)

    def _make_one(self) -> None:
        thread = threading.Thread(
            target=self._serve, name=f"{self._name}-{len(self._made)}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as exc:
            if not self._made:  # otherwise the existing threads do the work in turn
                raise no_thread() from exc
        else:
            self._made.append(thread)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # otherwise this thread would keep the caller's objects alive
            with self._guard:
                self._owed -= 1

    def stop(self) -> None:
        """Stop the threads after all given work is done."""
        with self._guard:
            made = self._made[:]
        for _ in made:
            self._work.put(None)
        for thread in made:
            thread.join()

    def call(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Start blocking work now; await the returned coroutine for its outcome."""
        arrival = Completion()
        box: list[Any] = []

        def begin() -> None:
            try:
                box.append((work(), None))
            except BaseException as exc:  # noqa: BLE001  handed to the caller, unchanged
                box.append((None, exc))
            arrival.tell()

        self.run(begin)
        return _outcome(arrival, box)


async def _outcome(arrival: "Completion", box: list[Any]) -> Any:
    await arrival.wait()
    result, error = box.pop()
    if error is not None:
        try:
            raise error
        finally:
            error = None  # no cycle through the traceback
    return result


class LoopWaker:
    """
    Wakes one event loop for any number of completions.

    Threads that finish together wake the loop once, because waking a loop costs more than the
    callback.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._done: deque[Callable[[], None]] = deque()
        self._is_rung = False

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> "LoopWaker":
        bell = _bells.get(loop)
        if bell is None:
            bell = _bells[loop] = LoopWaker(loop)
        return bell

    def ring(self, done: Callable[[], None]) -> None:
        """Have the loop call `done`. Any thread may call this."""
        self._done.append(done)
        if self._is_rung:
            return
        self._is_rung = True
        loop = self._loop()
        with contextlib.suppress(RuntimeError):  # the loop was closed; nobody waits
            if loop is not None:
                loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        # Clear the flag before the queue is emptied: a thread that adds an item meanwhile wakes the
        # loop again.
        self._is_rung = False
        while self._done:
            self._done.popleft()()


_bells: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWaker]" = (
    weakref.WeakKeyDictionary()
)


class Completion:
    """One thread reports one completion to one task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._bell = LoopWaker.of(self._loop)
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._told = False

    def tell(self) -> None:
        self._bell.ring(self._set)

    def _set(self) -> None:
        self._told = True
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Wait for the completion. A cancellation that arrives meanwhile is raised afterwards."""
        try:
            await self._future
        except asyncio.CancelledError:
            while not self._told:
                self._future = self._loop.create_future()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._future
            raise
