"""
Rate limits: one token bucket per client, refilled over time. The number of buckets is bounded.
"""

import time
from collections import OrderedDict
from collections.abc import Callable


class Rate:
    """Allow `per_second` requests on average and `burst` at once."""

    def __init__(
        self,
        *,
        per_second: float,
        burst: float,
        keys_max: int = 4_096,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second, self._burst = per_second, burst
        self._keys_max = keys_max
        self._now = now
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> bool:
        """Take one request from the key's bucket. Return False if the bucket is empty."""
        now = self._now()
        left, at = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        self._left[key] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > self._keys_max:
            self._left.popitem(last=False)
        return left >= 1

    def give_back(self, key: str) -> None:
        left, at = self._left.get(key, (self._burst, self._now()))
        self._left[key] = (min(self._burst, left + 1), at)
