"""
The pytest fixture `holdfast_home`: homes in memory on one disk per test. Opening a second home is
the next process on the same bytes.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.home import Home


@pytest.fixture
def holdfast_home() -> "Callable[..., Home]":
    """
    `holdfast_home(agents=[...])` returns a home to open with `async with`; opening another is a
    restart.

        def test_it_asks(holdfast_home):
            async def story():
                async with holdfast_home(agents=[ops]) as opened:
                    turn = await opened.send("ops/api", "restart_service service=api", source=alice)
                    assert turn.outcome == "waiting"
            asyncio.run(story())
    """
    from holdfast.testing.memory_home import Disk, open_in_memory

    disk = Disk()

    def opened(**options: object) -> "Home":
        return open_in_memory(**{"disk": disk, **options})  # type: ignore[arg-type]  # open_in_memory names what it takes

    return opened
