"""
Threads for blocking work: bounded, created on demand, quick to wake. A sync, a lock, a big hash or
a synchronous tool runs in one of them, never on the event loop.

Every pool of the project is a `ThreadPool`. They are daemon threads, because a tool that never
returns must not keep the process from ending. A pool is created anew in a forked child, which has
none of its parent's threads.
"""

import asyncio
import contextlib
import contextvars
import os
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


class ThreadPool:
    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._forget_threads()

    def _forget_threads(self) -> None:
        self._pid = os.getpid()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0  # work that was given and is not done

    def start(self, work: Callable[[], None]) -> None:
        """
        Run `work` soon, in one of the threads. `work` handles its own errors. Raise Busy if there
        is no thread and none can be started; `work` then does not run.
        """
        if self._pid != os.getpid():
            self._forget_threads()
        with self._guard:
            if self._unfinished >= len(self._threads) and len(self._threads) < self._most:
                self._add_thread()
            self._unfinished += 1
        self._work.put(work)

    def _add_thread(self) -> None:
        thread = threading.Thread(
            target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as exc:
            if not self._threads:  # otherwise the existing threads do the work in turn
                raise no_thread() from exc
        else:
            self._threads.append(thread)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # otherwise this thread would keep the caller's objects alive
            with self._guard:
                self._unfinished -= 1

    def stop(self) -> None:
        """Stop the threads after all given work is done."""
        with self._guard:
            threads = self._threads[:]
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            thread.join()

    async def call(self, work: Callable[[], T]) -> T:
        """
        Run `work` in a thread, in the caller's context. A cancelled caller returns at once; nothing
        can stop the thread.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        waker = LoopWaker.of(loop)
        context = contextvars.copy_context()

        def settle(set_outcome: Callable[[Any], None], outcome: object) -> None:
            if not future.done():
                set_outcome(outcome)

        def run() -> None:
            try:
                value = context.run(work)
            except BaseException as exc:  # noqa: BLE001  handed to the caller
                # A future cannot carry StopIteration.
                error = RuntimeError(str(exc)) if isinstance(exc, StopIteration) else exc
                waker.wake(lambda: settle(future.set_exception, error))
            else:
                waker.wake(lambda: settle(future.set_result, value))

        self.start(run)
        return await future

    def call_to_end(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """
        Start `work` now; await the returned coroutine for its outcome. A cancelled caller receives
        its cancellation after the outcome is known.
        """
        completion = Completion()
        box: list[Any] = []

        def run() -> None:
            try:
                box.append((work(), None))
            except BaseException as exc:  # noqa: BLE001  handed to the caller, unchanged
                box.append((None, exc))
            completion.report()

        self.start(run)
        return _outcome(completion, box)


async def _outcome(completion: "Completion", box: list[Any]) -> Any:
    await completion.wait()
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
        self.loop = weakref.ref(loop)
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_woken = False

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> "LoopWaker":
        """Return the waker of the loop that runs in this thread."""
        waker: LoopWaker | None = getattr(_thread, "waker", None)
        if waker is None or waker.loop() is not loop:
            waker = _thread.waker = LoopWaker(loop)
        return waker

    def wake(self, callback: Callable[[], None]) -> None:
        """Have the loop call `callback`. Any thread may call this."""
        self._callbacks.append(callback)
        if self._is_woken:
            return
        self._is_woken = True
        loop = self.loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._call_all)
        except RuntimeError:
            pass  # the loop was closed; nobody waits

    def _call_all(self) -> None:
        # Clear the flag before the queue is emptied: a thread that adds an item meanwhile wakes the
        # loop again.
        self._is_woken = False
        while self._callbacks:
            self._callbacks.popleft()()


_thread = threading.local()  # a thread runs one event loop at a time


class Completion:
    """One thread, perhaps the loop's own, reports one completion to one task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waker = LoopWaker.of(self._loop)
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._is_reported = False

    def report(self) -> None:
        if threading.get_ident() == self._thread:
            self._set()  # the work was done at once; the loop need not be woken
        else:
            self._waker.wake(self._set)

    def _set(self) -> None:
        self._is_reported = True
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Wait for the completion. A cancellation that arrives meanwhile is raised afterwards."""
        try:
            await self._future
        except asyncio.CancelledError:
            while not self._is_reported:
                self._future = self._loop.create_future()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._future
            raise


BLOCKING = ThreadPool(16, "holdfast-blocking")
"""For short blocking work of the whole process: reading files, hashing, looking at processes."""
