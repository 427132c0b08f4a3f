"""Time that nobody waits for, and what it shows: who waits for ever, and who spins."""

import asyncio

import pytest

from holdfast.testing.virtual_loop import Stuck, run_virtually


def test_a_year_passes_at_once_and_in_order() -> None:
    async def live() -> list[str]:
        woken: list[str] = []

        async def sleep(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append(name)

        async with asyncio.TaskGroup() as group:
            for name, seconds in (("year", 31_536_000.0), ("day", 86_400.0), ("second", 1.0)):
                group.create_task(sleep(name, seconds))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        assert asyncio.get_running_loop().time() == pytest.approx(31_536_005)
        return woken

    assert run_virtually(live()) == ["second", "day", "year"]


def test_waiting_for_what_nobody_does_is_told() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="nothing is due"):
        run_virtually(wait())


def test_being_busy_while_no_time_passes_is_told() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110  # which is the point
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="no time passes"):
        run_virtually(spin())
