"""Time as a port: tests and the simulator bring their own clock."""

from typing import Protocol


class Clock(Protocol):
    """Wall time for records and expiry, and waiting."""

    def now_ms(self) -> int:
        """
        Unix milliseconds. May jump either way; the store never lets a journal's times decrease.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...
