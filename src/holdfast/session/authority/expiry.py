"""
Decide when tokens, grants, one-time codes and prompts have expired, by one rule for all.

A clock may be wrong either way, so it is never the only evidence. The present is the later of the
clock and the newest time in the journal at hand: a clock that was set back revives nothing. If the
journal is ahead of the clock by more than a day, one of the two is wrong, and Holdfast cannot know
which. Then nothing with an end counts until a person accepts the clock (`holdfast doctor
--accept-clock`).
"""

from typing import NamedTuple

from holdfast import limits

DISPUTED_AFTER_MS = limits.CLOCK_DISPUTED_AFTER_SECONDS * 1000
AHEAD_MAX_MS = limits.CLOCK_AHEAD_MAX_SECONDS * 1000


class Moment(NamedTuple):
    """
    The present, in Unix milliseconds: by the clock, and by the newest believed time in a journal.
    """

    clock: int
    journal: int = 0

    @property
    def now(self) -> int:
        return max(self.clock, self.journal)

    @property
    def is_disputed(self) -> bool:
        """True if the journal is so far ahead that one of the two must be wrong."""
        return self.journal - self.clock > DISPUTED_AFTER_MS

    @property
    def is_ahead(self) -> bool:
        """
        True if the clock is so far ahead of the journal that it is not written down until a person
        confirms it.
        """
        return self.journal > 0 and self.clock - self.journal > AHEAD_MAX_MS


def is_over(expires_at: int | None, moment: Moment) -> bool:
    """
    Check whether this end has come. Without an end, it never does.

    >>> moments = Moment(clock=4), Moment(clock=5), Moment(clock=1, journal=6)
    >>> (*(is_over(5, moment) for moment in moments), is_over(None, Moment(clock=9)))
    (False, True, True, False)
    """
    return expires_at is not None and (moment.is_disputed or moment.now >= expires_at)
