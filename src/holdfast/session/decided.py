"""What deciding gives: events, and perhaps a refusal that goes with them."""

from typing import Any

import msgspec

from holdfast.errors import Refused
from holdfast.session.events import SessionEvent


class Decided(msgspec.Struct, frozen=True):
    """
    `refusal` is raised once the events (an audit of the refused try, say) are durable; with no events, nothing is written.

    `outcome` is what the command has to say to its sender, where the events alone don't.
    """

    events: tuple[SessionEvent, ...] = ()
    refusal: Refused | None = None
    outcome: Any = None


NOTHING = Decided()


def refused(code: str, message: str, *, hint: str = "", events: tuple[SessionEvent, ...] = ()) -> Decided:
    return Decided(events, Refused(message, code=code, hint=hint))
