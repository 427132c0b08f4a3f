"""
A channel out: replies, prompts and notices on their way to people.

A delivery is queued in the same commit as the record that causes it. It is marked as sent before it
leaves, and confirmed when the channel confirms it. A channel makes one attempt per `send`. The
runtime retries, a bounded number of times, and only after `NotDelivered`: then it is known that
nothing arrived. `DeliveryInDoubt` means that it may have arrived; it is never sent again
automatically. The id `delivery` is the same for every try. A channel that can pass it on lets the
receiver detect duplicates.
"""

from typing import Protocol

import msgspec

from holdfast.ids import SessionId, TurnId


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    delivery: str  # permanent: one per (turn, channel, part)
    session: SessionId
    turn: TurnId
    kind: str  # reply, prompt, notice
    text: str


class NotDelivered(Exception):
    """
    The delivery did not arrive, and that is certain. `may_pass`: trying again can help, after
    `wait_seconds`.
    """

    def __init__(self, message: str, *, may_pass: bool, wait_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.message = message
        self.may_pass = may_pass
        self.wait_seconds = wait_seconds


class DeliveryInDoubt(Exception):
    """The delivery left, and nothing confirmed whether it arrived."""


class Channel(Protocol):
    @property
    def name(self) -> str:
        """The name that is journalled with each delivery."""
        ...

    def takes(self, kind: str, *, of: str) -> bool:
        """
        Whether this channel delivers a reply, prompt or notice of a turn that came over the channel
        `of`. Quick and without effect.
        """
        ...

    async def send(self, parcel: Parcel) -> str | None:
        """
        Deliver it. Return the receiver's receipt, if it gives one. Raise NotDelivered or
        DeliveryInDoubt.
        """
        ...
