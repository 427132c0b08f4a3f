"""The clock by hand: waiting ends by time let pass, never by the wall clock."""

import asyncio

from holdfast.testing.clock import ManualClock
from holdfast.testing.loop import in_loop


@in_loop
async def test_sleepers_wake_in_order_when_enough_time_has_passed() -> None:
    clock, woken = ManualClock(now_ms=0), list[str]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("late", 3), ("early", 1), ("early too", 1), ("at once", 0)):
            group.create_task(sleeper(name, seconds))
        for _ in range(3):
            await asyncio.sleep(0)
        assert woken == ["at once"]
        assert clock.next_wake_seconds == 1
        clock.jump(3600)
        await asyncio.sleep(0)
        assert woken == ["at once"]
        clock.advance(1)
        for _ in range(3):
            await asyncio.sleep(0)
        assert woken == ["at once", "early", "early too"]
        clock.advance(5)
    assert woken[-1] == "late"
    assert clock.next_wake_seconds is None


@in_loop
async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    task = asyncio.ensure_future(clock.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert clock.next_wake_seconds is None
    clock.advance(2)
