"""
The one notion of the present for all decisions of a service: the clock, compared with the home's
journal.

Every commit to a session checks here first. See `session/authority/expiry.py` for the rule, and
docs/decisions/0020 for its reasons.
"""

from contextlib import suppress

from holdfast.errors import HoldfastError, Refused
from holdfast.ports.clock import Clock
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.reports.types import iso
from holdfast.session.authority.expiry import Moment


class HomeTime:
    """One per service; it keeps no state."""

    def __init__(self, home: HomeLedger, clock: Clock) -> None:
        self._home = home
        self._clock = clock

    async def check_clock(self) -> None:
        await self._home.check_clock()

    async def look(self) -> None:
        """
        Catch up with the home's journal, for a list. If the journal cannot be read, the clock alone
        counts.
        """
        with suppress(HoldfastError):
            await self._home.refresh()

    def decided_at(self, stamp: int) -> int:
        return self._home.decided_at(stamp, clock_ms=self._clock.now_ms())

    def moment(self, *, session_at: int = 0) -> Moment:
        """The present, as of the last read of the home's journal."""
        return self._home.moment(self._clock.now_ms(), session_at=session_at)

    def now_ms(self) -> int:
        """The later of the clock and the home's time."""
        return self.moment().now


def refuse_disputed(moment: Moment, what: str) -> None:
    """Refuse every approval while it is unknown whether its time is over."""
    if moment.is_disputed:
        days = (moment.journal - moment.clock) // 86_400_000
        raise Refused(
            f"the journal's newest time ({iso(moment.journal)}) is {days} days ahead of the clock "
            f"({iso(moment.clock)}), so {what}",
            code="clock_behind",
            hint="set the clock; or, if it is right, `holdfast doctor --accept-clock`",
        )
