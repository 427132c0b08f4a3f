"""Asynchronous tests without a plugin: each runs in an event loop of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """
    Run an asynchronous test to its end.

    >>> @in_loop
    ... async def test_it():
    ...     await asyncio.sleep(0)
    ...     print("ran")
    >>> test_it()
    ran
    """

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
