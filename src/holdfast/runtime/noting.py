"""
When the index is told: at the end of a drive at once, after an append that somebody else drives on a moment later.

The index is a cache whose rows are compared with their journal's head, so late is never wrong: whoever lists meanwhile opens the session instead. Whoever drives on
tells the index where the turn came to, mostly before that moment is over; then the row in between is never written.
"""

import asyncio

from holdfast.ids import SessionId
from holdfast.runtime.ledger import Ledger
from holdfast.runtime.listing import note
from holdfast.runtime.world import World

NOTE_SECONDS = 0.25  # longer than a turn of instant answers takes, shorter than it takes anybody to look


class Noting:
    def __init__(self, world: World) -> None:
        self._world = world
        self._owed: dict[SessionId, Ledger] = {}
        self._timer: asyncio.TimerHandle | None = None

    def now(self, ledger: Ledger) -> None:
        self._owed.pop(ledger.session, None)
        note(self._world, ledger)

    def soon(self, ledger: Ledger) -> None:
        self._owed[ledger.session] = ledger
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(NOTE_SECONDS, self.settle)

    def settle(self) -> None:
        """All that is owed, now. What was sealed or stopped meanwhile is told by whoever found it so."""
        if self._timer is not None:
            self._timer.cancel()
        owed, self._owed, self._timer = self._owed, {}, None
        for ledger in owed.values():
            if ledger.journal.sealed is None and ledger.attempt.stopped is None:
                note(self._world, ledger)
