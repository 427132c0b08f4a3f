"""
A clock that moves only on request. A test may set wall time to anything; a sleep ends when enough
time has passed.

A sleep is measured in passed time, not in wall time, so setting the clock back an hour makes no
sleep longer.
"""

import asyncio
import heapq
from itertools import count


class ManualClock:
    """
    Time by hand.

    >>> clock = ManualClock(now_ms=1_000)
    >>> clock.advance(2.5)
    >>> clock.now_ms()
    3500
    >>> clock.jump(-3600)
    >>> clock.now_ms()
    -3596500
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._passed_seconds = 0.0
        # (end, arrival, future). The arrival breaks ties, so that equally long sleeps end in order.
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    def now_ms(self) -> int:
        return self._now_ms

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self._passed_seconds + seconds, next(self._arrivals), woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Let time pass: wall time moves, and the sleeps that are over end."""
        self._now_ms += round(seconds * 1000)
        self._passed_seconds += seconds
        while self._waiting and self._waiting[0][0] <= self._passed_seconds:
            _, _, woken = heapq.heappop(self._waiting)
            if not woken.done():
                woken.set_result(None)

    def jump(self, seconds: float) -> None:
        """
        Set wall time forward or back, as an administrator or a bad time server does. No sleep ends.
        """
        self._now_ms += round(seconds * 1000)

    @property
    def next_wake_seconds(self) -> float | None:
        """The seconds until the next sleep ends, or None if there is none."""
        while self._waiting and self._waiting[0][2].done():
            heapq.heappop(self._waiting)
        return self._waiting[0][0] - self._passed_seconds if self._waiting else None
