"""
A channel out: replies, prompts and notices on their way to people.

What is owed is queued in the same commit as what it tells of, marked as sent before it leaves, and
confirmed when the channel says so. A channel makes one attempt per `send`; retries are the
runtime's, bounded, and only after `NotDelivered`: then it is known that nothing arrived. What may
or may not have arrived is `DeliveryInDoubt`, and is never sent again by itself. `delivery` is the
same for every try: a channel that can, hands it on so that the other side can tell.
"""

from typing import Protocol

import msgspec

from holdfast.ids import SessionId, TurnId


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    delivery: str  # one per (turn, channel, part), for good
    session: SessionId
    turn: TurnId
    kind: str  # reply, prompt, notice
    text: str


class NotDelivered(Exception):
    """It did not arrive, and that is known. `may_pass`: trying again can help."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.message = message
        self.may_pass = may_pass


class DeliveryInDoubt(Exception):
    """It left, and nobody said whether it arrived."""


class Channel(Protocol):
    @property
    def name(self) -> str:
        """As it is journalled with each delivery."""
        ...

    def takes(self, kind: str, *, of: str) -> bool:
        """
        Whether a reply, prompt or notice of a turn that came over the channel `of` goes out here.
        Quick and without effect.
        """
        ...

    async def send(self, parcel: Parcel) -> str | None:
        """
        Deliver it; returns the other side's receipt, if it gives one. Raises NotDelivered or
        DeliveryInDoubt.
        """
        ...
