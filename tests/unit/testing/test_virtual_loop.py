"""Time that nobody waits for, and what it shows: who waits for ever, and who spins."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine

import pytest
from proof.simulation.virtual_loop import CANCELS_MAX, Stuck, VirtualLoop, run_virtually

from holdfast.threads import BLOCKING


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


def test_waiting_for_nobodys_work_is_reported() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="nothing is due"):
        run_virtually(wait())


def test_going_on_for_ever_is_reported() -> None:
    async def tick() -> None:
        while True:  # noqa: ASYNC110  # which is the point
            await asyncio.sleep(60)

    with pytest.raises(Stuck, match="after 3600 seconds"):
        run_virtually(tick(), seconds_max=3600)


def test_blocking_work_takes_the_time_that_it_says() -> None:
    """
    In no thread: what runs meanwhile is up to the loop, and who waits less long hears nothing.
    """

    def work() -> str:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.take(5)
        return threading.current_thread().name

    async def wait() -> tuple[str, str, float]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4):
                await asyncio.to_thread(work)
        began = asyncio.get_running_loop().time()
        return (
            await asyncio.to_thread(work),
            await BLOCKING.call(work),
            asyncio.get_running_loop().time() - began,
        )

    here = threading.current_thread().name
    assert run_virtually(wait()) == (here, here, 10.0)


def test_being_busy_while_no_time_passes_is_reported() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110  # which is the point
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="no time passes"):
        run_virtually(spin())


async def _wait() -> None:
    await asyncio.Event().wait()


async def _tick() -> None:
    while True:  # noqa: ASYNC110  # which is the point
        await asyncio.sleep(60)


async def _spin() -> None:
    while True:  # noqa: ASYNC110  # which is the point
        await asyncio.sleep(0)


STUCK = [(_wait, "nothing is due"), (_tick, "after 3600 seconds"), (_spin, "no time passes")]


@pytest.mark.parametrize(("stuck", "reason"), STUCK)
def test_a_stuck_task_cleans_up_after_its_cancellation(
    stuck: Callable[[], Coroutine[None, None, None]], reason: str
) -> None:
    """It is cancelled, and what it does then may take time."""
    ended: list[str] = []

    async def clean_up_after() -> None:
        try:
            await stuck()
        finally:
            await asyncio.sleep(5)
            ended.append("cleaned up")

    with pytest.raises(Stuck, match=reason):
        run_virtually(clean_up_after(), seconds_max=3600)
    assert ended == ["cleaned up"]


@pytest.mark.parametrize(("stuck", "reason"), STUCK)
def test_a_stuck_task_that_ignores_cancellation_is_dropped_silently(
    stuck: Callable[[], Coroutine[None, None, None]], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And what is told is the first reason, not that it went on."""
    cancelled: list[float] = []

    async def never_listen() -> None:
        while len(cancelled) < 100:
            try:
                await stuck()
            except asyncio.CancelledError:
                cancelled.append(asyncio.get_running_loop().time())

    with caplog.at_level(logging.ERROR), pytest.raises(Stuck, match=reason):
        run_virtually(never_listen(), seconds_max=3600)
    gc.collect()
    assert len(cancelled) == CANCELS_MAX
    assert caplog.messages == []
