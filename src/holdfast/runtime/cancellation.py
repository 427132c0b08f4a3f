"""
Waiting, where `await` alone is not enough: to the end of some work despite cancellation; until
something may have changed; and side by side, for the one error of several that the caller can act
on.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from holdfast.errors import HoldfastError

LOOK_AGAIN_SECONDS = 1.0  # notices are hints: a lost one costs at most this much


async def finish(work: Coroutine[Any, Any, None] | asyncio.Future[None]) -> None:
    """
    Await the work to its end, even if this task is cancelled meanwhile. Then continue the
    cancellation, unless the work raised an error.
    """
    task, ended = asyncio.ensure_future(work), asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await ended.wait()
        except asyncio.CancelledError as exc:
            cancelled = exc
    task.result()
    if cancelled is not None:
        raise cancelled


async def wait_for(watch: asyncio.Event) -> None:
    """
    Wait until something may have changed, or until it is time to check again: notices are hints.
    """
    try:
        async with asyncio.timeout(LOOK_AGAIN_SECONDS):
            await watch.wait()
    except TimeoutError:
        return


def most_useful_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """
    Return the error that the caller can act on, out of several that were raised side by side, not
    one of its consequences.
    """
    flat: list[BaseException] = []
    stack: list[BaseException] = [errors]
    while stack:
        each = stack.pop()
        if isinstance(each, BaseExceptionGroup):
            stack.extend(each.exceptions)
        else:
            flat.append(each)
    return next((each for each in flat if isinstance(each, HoldfastError)), flat[0])
