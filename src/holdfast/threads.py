"""
Threads for blocking work: bounded, created on demand, quick to wake. A sync, a lock, a big hash or
a synchronous tool runs in one of them, never on the event loop.

Every pool of the project is a `ThreadPool`. They are daemon threads, because a tool that never
returns must not keep the process from ending. A pool is created anew in a forked child, which has
none of its parent's threads.
"""

import asyncio
import contextvars
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
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
    await completion
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
        try:
            # A callback that comes meanwhile waits for the loop's next round, as others do.
            for _ in range(len(self._callbacks)):
                self._callbacks.popleft()()
        finally:
            if self._callbacks and not self._is_woken:  # a callback has raised
                self._is_woken = True
                asyncio.get_running_loop().call_soon(self._call_all)


_thread = threading.local()  # a thread runs one event loop at a time


class Completion:
    """
    One thread, perhaps the loop's own, reports one completion to the one task that awaits it.

    A task waits for it as for a future, with two differences. The task goes on in the very callback
    that brings the report to the loop, not in the loop's next round. And it can't be cancelled
    before the report: asyncio then raises the cancellation when the wait ends.
    """

    _asyncio_future_blocking = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waker = LoopWaker.of(self._loop)
        self._is_reported = False
        # The waiting task's next step, and the context to take it in.
        self._waiting: tuple[Callable[[Any], object], contextvars.Context] | None = None

    def report(self) -> None:
        if threading.get_ident() != self._thread:
            self._waker.wake(self._go_on)
            return
        self._is_reported = True  # the work was done at once; mostly nobody waits yet
        if self._waiting is not None:
            step, context = self._waiting
            self._loop.call_soon(step, self, context=context)

    def _go_on(self) -> None:
        """Called by the loop, so no task is in the middle of a step."""
        self._is_reported = True
        if self._waiting is not None:
            step, context = self._waiting
            context.run(step, self)

    def __await__(self) -> Generator["Completion", None, None]:
        if not self._is_reported:
            self._asyncio_future_blocking = True
            yield self

    # A task calls these on the object that it waits for.

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(
        self, step: Callable[[Any], object], *, context: contextvars.Context
    ) -> None:
        self._waiting = step, context

    def cancel(self, msg: object = None) -> bool:
        """Not now: the task keeps the cancellation until the completion is reported."""
        del msg
        return False

    def result(self) -> None:
        """The thread that reported has the outcome."""


BLOCKING = ThreadPool(16, "holdfast-blocking")
"""For short blocking work of the whole process: reading files, hashing, looking at processes."""
