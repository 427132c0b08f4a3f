"""
The last records of one journal that this process has verified or written, for callers that are a
little behind. They stand in order and without a gap. Thousands of sessions may be open, so both
their number and their bytes are bounded. Any thread may use them.
"""

import threading
from collections import deque
from collections.abc import Iterable

from holdfast.journal.record import Record


class RecentRecords:
    def __init__(self, *, records_max: int, bytes_max: int) -> None:
        self._records_max, self._bytes_max = records_max, bytes_max
        self._records: deque[Record] = deque()
        self._bytes = 0  # of their bodies
        self._guard = threading.Lock()

    def reach_back_to(self, seq: int) -> bool:
        """Return True if every record from `seq` on is here."""
        with self._guard:
            return bool(self._records) and self._records[0].seq <= seq

    def since(self, seq: int) -> list[Record]:
        """Return those of `seq` and after it."""
        with self._guard:
            return [record for record in self._records if record.seq >= seq]

    def add(self, records: Iterable[Record]) -> None:
        """Add what is newer. Records behind a gap replace all others."""
        with self._guard:
            for record in records:
                last = self._records[-1].seq if self._records else record.seq - 1
                if record.seq <= last:
                    continue
                if record.seq > last + 1:
                    self._forget()
                self._records.append(record)
                self._bytes += len(record.body)
            while len(self._records) > self._records_max or (
                self._bytes > self._bytes_max and len(self._records) > 1
            ):
                self._bytes -= len(self._records.popleft().body)

    def clear(self) -> None:
        """Forget all: newer records were passed that are not here."""
        with self._guard:
            self._forget()

    def _forget(self) -> None:
        self._records.clear()
        self._bytes = 0
