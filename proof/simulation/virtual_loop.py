"""
An event loop with simulated time: when nothing can run, the clock jumps to the next due moment.
Nothing sleeps.

Callbacks run in the order in which they became due, so equal seeds give equal runs. There are no
files, sockets or threads. Work for a thread runs at once, and its result arrives after the time
that it claims to have taken (`take`). If every task waits and nothing is due, the loop raises
`Stuck`, which a real loop would never report. It then cancels the waiting tasks.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, TypeVar

from holdfast.threads import ThreadPool

_T = TypeVar("_T")
TURNS_AT_ONCE_MAX = 20_000  # work that takes no time needs a few hundred
CANCELS_MAX = (
    3  # of a task that is stuck: one that catches the first may wait again while it cleans up
)
CLEANING_UP_SECONDS_MAX = 3600.0  # of simulated time, after each of them


class Stuck(Exception):
    """Every task waits and nothing is due, or tasks run without progress."""


class _NumberedTask(asyncio.Task[Any]):
    """
    A task with a number as its hash. Sets of tasks are iterated by hash, and addresses would change
    the run of a seed.
    """

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **more: Any) -> None:
        self._number = number
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _NothingElse:
    """The loop's selector: no file ever becomes ready, only time passes."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._turns = 0  # turns of the loop since time last passed

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck("everybody waits, and nothing is due")
        self._turns = self._turns + 1 if timeout <= 0 else 0
        if self._turns > TURNS_AT_ONCE_MAX:
            raise Stuck("everybody is busy, and no time passes: a real machine would spin")
        if self._loop.now > self._loop.ends:
            raise Stuck(f"it goes on after {self._loop.ends:g} seconds, and somebody still waits")
        self._loop.now += max(timeout, 0.0)
        return []

    def begin_anew(self) -> None:
        """Reset the count, as if time had just passed."""
        self._turns = 0

    def close(self) -> None:
        """Do nothing, because nothing was opened."""


class VirtualLoop(asyncio.BaseEventLoop):
    """
    Time by itself, as fast as the work allows.

    >>> async def wait_a_day():
    ...     await asyncio.sleep(86_400)
    ...     return asyncio.get_running_loop().time()
    >>> run_virtually(wait_a_day())
    86400.0
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ends = math.inf  # a run that is not over by then is stuck
        self._selector = _NothingElse(self)
        self._made = count(1)
        self.set_task_factory(
            lambda loop, coro, **more: _NumberedTask(next(self._made), coro, loop=loop, **more)
        )
        self._taken = 0.0  # by the work that runs in place of a thread
        # Timers this close together are due together. Jumps by rounded sums must reach their end.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now

    def take(self, seconds: float) -> None:
        """Called by blocking work: the time for which it would have blocked its thread."""
        self._taken += seconds

    def run_in_executor(  # type: ignore[override]  # variadics
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        del executor  # it has none
        future, self._taken = self.create_future(), 0.0
        try:
            settle = partial(future.set_result, func(*args))
        except BaseException as exc:  # noqa: BLE001  handed to whoever awaits, as a thread's is
            settle = partial(future.set_exception, exc)
        self.call_later(self._taken, lambda: None if future.done() else settle())
        return future

    def end_all(self) -> None:
        """
        Cancel all tasks after `Stuck` or another early end, and let them clean up within bounds.

        Tasks that ignore the cancellation are dropped silently: the error reports the cause.
        """
        for _ in range(CANCELS_MAX):
            waiting = asyncio.all_tasks(self)
            if not waiting:
                return
            for task in waiting:
                task.cancel()
            self._allow(CLEANING_UP_SECONDS_MAX)
            with suppress(Stuck):
                self.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  # there is no other way to say so
            asyncio._unregister_task(task)  # noqa: SLF001  # or the runner would wait for it, and tell of that instead
        self._allow(CLEANING_UP_SECONDS_MAX)  # for the runner's own cleanup

    def _allow(self, seconds: float) -> None:
        self.ends = self.now + seconds
        self._selector.begin_anew()

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: the simulation has no file events."""

    def _write_to_self(self) -> None:
        """Do nothing: no selector sleeps, so none has to be woken."""


def run_virtually(main: Coroutine[Any, Any, _T], *, seconds_max: float = math.inf) -> _T:
    """
    Like `asyncio.run`, on a virtual loop. A run that is not over after `seconds_max` is stuck.
    """
    loop = VirtualLoop()
    loop.ends = seconds_max
    with _no_threads(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            return runner.run(main)
        except BaseException:
            loop.end_all()
            raise


@contextmanager
def _no_threads() -> Iterator[None]:
    """Replace the threads of blocking tools, which do not know this loop's time."""
    kept = ThreadPool.call
    ThreadPool.call = _without_a_thread  # type: ignore[assignment, method-assign]  # for as long as this loop runs
    try:
        yield
    finally:
        ThreadPool.call = kept  # type: ignore[method-assign]


async def _without_a_thread(_: ThreadPool, function: Callable[[], _T]) -> _T:
    done: _T = await asyncio.get_running_loop().run_in_executor(None, function)
    return done
