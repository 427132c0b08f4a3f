"""Replies and prompts that are owed to channels."""

from typing import Literal

from holdfast.ids import ApprovalId, TurnId
from holdfast.session.events.base import Event


class DeliveryQueued(Event, frozen=True):
    """A reply or a prompt is owed to a channel: one id per (turn, channel, part)."""

    delivery: str
    turn: TurnId
    channel: str
    kind: str  # reply, prompt, notice, update
    text: str
    # For a chat: its address there, the prompt that it is about, and the message that it updates.
    to: str = ""
    about: ApprovalId | None = None
    replaces: str = ""


class DeliverySent(Event, frozen=True):
    delivery: str


class DeliveryPostponed(Event, frozen=True):
    """It certainly did not arrive. It is sent again, no earlier than `until`."""

    delivery: str
    until: int
    reason: str


class DeliveryConfirmed(Event, frozen=True):
    """
    It arrived. `receipt` is the receiver's own name for it. `shown`: whether a prompt's message
    has the whole display or its head.
    """

    delivery: str
    receipt: str | None = None
    shown: Literal["whole", "head"] | None = None


class DeliveryFailed(Event, frozen=True):
    """Given up, or in doubt: sent, with no word whether it arrived. Never sent again by itself."""

    delivery: str
    code: str
    message: str
