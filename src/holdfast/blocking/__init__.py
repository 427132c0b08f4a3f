"""
The same names for notebooks and synchronous code: one event loop in its own thread, and each verb
waits for its result.

    with holdfast.blocking.open("./state", agents=[ops]) as home:
        turn = home.send("ops/api", "restart_service service=api", source=alice)

Names that mean the same here are the library's own: `from holdfast import blocking as holdfast`.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any

import holdfast
from holdfast import home as _async
from holdfast.blocking.external_turn import BlockingItems, BlockingTurn
from holdfast.blocking.home import BlockingHome
from holdfast.home import Agent
from holdfast.runtime.external_loop.items import Items as _AsyncItems
from holdfast.runtime.external_loop.turn import ExternalTurn as _AsyncTurn

__all__ = ["BlockingHome", "BlockingItems", "BlockingTurn", "open"]

Home = BlockingHome
ExternalTurn = BlockingTurn
Items = BlockingItems


def open(path: str | PathLike[str] | None = None, *, agents: Sequence[Agent] = ()) -> BlockingHome:  # noqa: A001  # the same name as holdfast.open
    """`holdfast.open`, for synchronous code."""
    return BlockingHome(_async.open(path, agents=agents))


def __getattr__(name: str) -> Any:
    if name in holdfast.__all__:
        return getattr(holdfast, name)
    raise AttributeError(f"module 'holdfast.blocking' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *holdfast.__all__})


def _say_the_same() -> None:
    """Give each verb here the docstring of the verb that it wraps, for `help()`."""
    for here, there in (
        (BlockingHome, _async.Home),
        (BlockingTurn, _AsyncTurn),
        (BlockingItems, _AsyncItems),
    ):
        for name, verb in vars(here).items():
            if not name.startswith("_") and callable(verb) and verb.__doc__ is None:
                verb.__doc__ = getattr(there, name).__doc__


_say_the_same()
