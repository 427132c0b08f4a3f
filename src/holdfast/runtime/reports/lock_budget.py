"""
How long one list waits for writers, over all its sessions, and which writers it met.

A commit takes milliseconds, so a lock that is not free within the bound is held by a slow or
stopped process. The lock is never taken from it (L3). Such a session is listed as the index knows
it, with the holder. It is not opened, since that would wait again.
"""

import asyncio

from holdfast.errors import Busy
from holdfast.ids import SessionId
from holdfast.limits import LIST_WAIT_SECONDS
from holdfast.ports.journal_store import JournalStore
from holdfast.runtime.reports.types import BusyReport


class LockWaitBudget:
    """The budget of one list. Waiting spends it; once it is spent, a lock is only tried."""

    def __init__(self, store: JournalStore, *, seconds: float = LIST_WAIT_SECONDS) -> None:
        self._store = store
        self._left_seconds = seconds
        # Sessions that could not be read, in the order in which they were found.
        self.found: dict[SessionId, Busy] = {}

    async def busy(self, session: SessionId) -> Busy | None:
        """
        Return the holder of the session's lock; None if the session can be opened, as of now. A
        known result is returned again.
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
        Whether the session could not be opened because its lock was taken between the check and the
        try.
        """
        if type(error) is not Busy or error.holder is None:
            return False
        self.found.setdefault(session, error)
        return True


def busy_report(busy: Busy) -> BusyReport:
    return BusyReport(busy.holder or "another process", round(busy.held_seconds or 0.0, 1))
