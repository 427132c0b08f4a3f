"""
T6, T7: what another process appends reaches a drive by a notice; and where none comes, by looking
again.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.runtime.context import Tuning
from holdfast.runtime.drive.driver import Driver
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice

LONG = 60.0  # as slow as a test machine may be; nothing here waits for it


async def cancelled_from_elsewhere(stage: Stage, when: Callable[[], Awaitable[None]]) -> str:
    """
    How a turn ends that one process drives, in the middle of a tool, and that another one cancels
    then.
    """
    ops = stage.agent([{"call": [{"tool": "slow", "args": {"what": "x"}}]}, {"say": "never"}])
    async with (
        stage.open(ops) as home,
        stage.open(stage.agent([])) as elsewhere,
        asyncio.timeout(LONG),
    ):
        sending = asyncio.ensure_future(home.send("ops/api", "go", source=alice))
        await stage.effects.begun("x").wait()
        await when()
        await elsewhere.cancel("ops/api", by=alice)
        return (await sending).outcome


@in_loop
async def test_a_drive_hears_of_what_another_process_appended(stage: Stage) -> None:
    """A notice is passed over only when nothing is new; here it never looks by itself."""
    stage.tuning = Tuning(look_again_seconds=10 * LONG)

    async def at_once() -> None:
        pass

    assert await cancelled_from_elsewhere(stage, at_once) == "cancelled"
    assert stage.effects.done == ["began x"]


@in_loop
async def test_a_drive_that_hears_nothing_looks_again_and_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notices are hints: here none of them arrives, and the first looks come too early."""
    looks: asyncio.Queue[None] = asyncio.Queue()
    look_again = Driver._look_again

    def counted(self: Driver, watch: asyncio.Event) -> None:
        looks.put_nowait(None)
        look_again(self, watch)

    stage.tuning = Tuning(look_again_seconds=0.01)
    monkeypatch.setattr(Driver, "_look_again", counted)
    monkeypatch.setattr(Ledger, "notice", lambda _: None)

    async def after_three_looks() -> None:
        while not looks.empty():
            looks.get_nowait()
        for _ in range(3):
            await looks.get()

    assert await cancelled_from_elsewhere(stage, after_three_looks) == "cancelled"
    assert stage.effects.done == ["began x"]
