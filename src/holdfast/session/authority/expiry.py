"""
When something with an end is over: tokens, grants, one-time codes and prompts, judged the same way.

A clock may be wrong either way, so it is not asked alone. The present is the later of the clock and
the newest time that a journal at hand holds: a clock that was set back revives nothing. Where the
journal is ahead of the clock by more than a day, one of the two was wrong and nobody here can say
which: until a person does (`holdfast doctor --accept-clock`), nothing with an end counts.
"""

from typing import NamedTuple

from holdfast import limits

DISPUTED_AFTER_MS = limits.CLOCK_DISPUTED_AFTER_SECONDS * 1000
AHEAD_MAX_MS = limits.CLOCK_AHEAD_MAX_SECONDS * 1000


class Moment(NamedTuple):
    """
    The present, in Unix milliseconds: as the clock says, and as the newest believed time in a
    journal says.
    """

    clock: int
    journal: int = 0

    @property
    def now(self) -> int:
        return max(self.clock, self.journal)

    @property
    def is_disputed(self) -> bool:
        """The journal is so far ahead that one of the two must be wrong."""
        return self.journal - self.clock > DISPUTED_AFTER_MS

    @property
    def is_ahead(self) -> bool:
        """
        The clock is so far ahead of the journal that it is not written down until a person says
        that it is right.
        """
        return self.journal > 0 and self.clock - self.journal > AHEAD_MAX_MS


def is_over(expires_at: int | None, moment: Moment) -> bool:
    """
    Whether this end has come. Without an end, never.

    >>> is_over(5, Moment(clock=4)), is_over(5, Moment(clock=5)), is_over(5, Moment(clock=1, journal=6)), is_over(None, Moment(clock=9))
    (False, True, True, False)
    """
    return expires_at is not None and (moment.is_disputed or moment.now >= expires_at)
