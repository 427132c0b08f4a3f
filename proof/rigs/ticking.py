"""Work in one event loop that waits for the locks of another one."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def ticking(work: Coroutine[Any, Any, T]) -> T:
    """
    Run the work in a loop that never sleeps for long. A lock of asyncio that another thread's loop
    releases wakes nobody here, so this loop looks again by itself. Only tests do that: the product
    refuses a second loop.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=0.01)
    return task.result()
