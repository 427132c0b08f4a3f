"""
How long one list waits for writers, all its sessions together, and whom it found writing.

A commit takes milliseconds, so a lock that is not free within the bound is held by somebody slow or
stopped, who is never robbed of it (L3). Such a session is told as far as the index knows it, and
who holds it; it is not opened, since that would wait again.
"""

import asyncio

from holdfast.errors import Busy
from holdfast.ids import SessionId
from holdfast.limits import LIST_WAIT_SECONDS
from holdfast.ports.journal_store import JournalStore
from holdfast.runtime.reports.types import BusyReport


class LockWaitBudget:
    """
    Of one list. Spent by waiting, and never more than it began with; afterwards a lock is only
    tried.
    """

    def __init__(self, store: JournalStore, *, seconds: float = LIST_WAIT_SECONDS) -> None:
        self._store = store
        self._left_seconds = seconds
        # Sessions that could not be looked at, in the order in which they were found.
        self.found: dict[SessionId, Busy] = {}

    async def busy(self, session: SessionId) -> Busy | None:
        """
        Who keeps us from the session; None where it can be opened, as of now. Of one that was found
        already the same is said again.
        """
        if (known := self.found.get(session)) is not None:
            return known
        loop = asyncio.get_running_loop()
        began = loop.time()
        busy = await self._store.held_by(session, wait_seconds=self._left_seconds)
        self._left_seconds = max(0.0, self._left_seconds - (loop.time() - began))
        if busy is not None:
            self.found[session] = busy
        return busy

    def caught(self, session: SessionId, error: Exception) -> bool:
        """
        Whether that is why it could not be opened: somebody took the lock between our look and our
        try.
        """
        if type(error) is not Busy or error.holder is None:
            return False
        self.found.setdefault(session, error)
        return True


def busy_report(busy: Busy) -> BusyReport:
    return BusyReport(busy.holder or "another process", round(busy.held_seconds or 0.0, 1))
