"""
The same names for notebooks and synchronous code: one event loop in its own thread, and each verb
waits for its result.

    with holdfast.blocking.open("./state", agents=[ops]) as home:
        turn = home.send("ops/api", "restart_service service=api", source=alice)
"""

from collections.abc import Sequence
from os import PathLike

from holdfast import home as _async
from holdfast.blocking.external_turn import BlockingItems, BlockingTurn
from holdfast.blocking.home import BlockingHome
from holdfast.home import Agent
from holdfast.runtime.external_loop.items import Items
from holdfast.runtime.external_loop.turn import ExternalTurn

__all__ = ["BlockingHome", "BlockingItems", "BlockingTurn", "open"]


def open(path: str | PathLike[str] | None = None, *, agents: Sequence[Agent] = ()) -> BlockingHome:  # noqa: A001  # the same name as holdfast.open
    """`holdfast.open`, for synchronous code."""
    return BlockingHome(_async.open(path, agents=agents))


def _say_the_same() -> None:
    """Give each verb here the docstring of the verb that it wraps, for `help()`."""
    for here, there in (
        (BlockingHome, _async.Home),
        (BlockingTurn, ExternalTurn),
        (BlockingItems, Items),
    ):
        for name, verb in vars(here).items():
            if not name.startswith("_") and callable(verb) and verb.__doc__ is None:
                verb.__doc__ = getattr(there, name).__doc__


_say_the_same()
