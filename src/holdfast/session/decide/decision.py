"""
The value that deciding a command gives: events, a result for the sender, and perhaps a refusal.
"""

from typing import Any, Generic, TypeVar

import msgspec

from holdfast.errors import Refused
from holdfast.session.events import SessionEvent

Result = TypeVar("Result", covariant=True)  # noqa: PLC0105  # the result of a command


class Decided(msgspec.Struct, Generic[Result], frozen=True):
    """
    The decision on one command. `refusal` is raised once the events (for example, the audit of a
    refused attempt) are durable. Without events nothing is written.

    `outcome` is the command's result for its sender, where the events alone do not show it.
    """

    events: tuple[SessionEvent, ...] = ()
    refusal: Refused | None = None
    outcome: Result = None  # type: ignore[assignment]  # most commands have no result


NOTHING: Decided[None] = Decided()


def refused(
    code: str, message: str, *, hint: str = "", events: tuple[SessionEvent, ...] = ()
) -> Decided[Any]:
    return Decided(events, Refused(message, code=code, hint=hint))
