"""
Owned and bounded threads for blocking work: synchronous tools, file reading, hashing.

They are daemon threads, because a tool that never returns must not keep the process from ending.
Work that ran in a thread when the process died is in doubt, as after any other crash.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
_WORKERS_MAX = 16  # at most this many synchronous tools at once; further ones wait


class OwnedThreads:
    def __init__(self, workers_max: int = _WORKERS_MAX) -> None:
        self._workers_max = workers_max
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Both under the lock: the number of threads ever started, and of work items not yet
        # finished.
        self._started = 0
        self._unfinished = 0

    async def run(self, function: Callable[[], _T]) -> _T:
        """
        Run the function in a thread. Cancelling the wait does not stop the thread; nothing can.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        context = contextvars.copy_context()

        def settle(set_it: Callable[[Any], None], value: object) -> None:
            if not future.done():
                set_it(value)

        def work() -> None:
            try:
                value = context.run(function)
            except BaseException as exc:  # noqa: BLE001  handed to the awaiting task
                # A future cannot carry StopIteration.
                error = RuntimeError(str(exc)) if isinstance(exc, StopIteration) else exc
                _tell(loop, lambda: settle(future.set_exception, error))
            else:
                _tell(loop, lambda: settle(future.set_result, value))

        self._hand_out(work)
        return await future

    def begin(self, function: Callable[[], None]) -> None:
        """Start work that has no waiter and raises nothing."""
        self._hand_out(function)

    def _hand_out(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._unfinished += 1
            grow = self._unfinished > self._started and self._started < self._workers_max
            self._started += grow
            number = self._started
        self._work.put(work)
        if grow:
            threading.Thread(
                target=self._serve, name=f"holdfast-tool-{number}", daemon=True
            ).start()

    def _serve(self) -> None:
        while True:
            self._work.get()()
            with self._lock:
                self._unfinished -= 1


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, so there is no waiter left
        loop.call_soon_threadsafe(callback)


THREADS = OwnedThreads()
