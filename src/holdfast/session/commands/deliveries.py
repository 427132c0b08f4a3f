"""Replies and prompts that are owed to channels."""

from typing import Literal

from holdfast.ids import ApprovalId, TurnId
from holdfast.session.commands.base import Command


class QueueDelivery(Command[str | None], frozen=True):
    turn: TurnId
    channel: str
    part: str
    kind: str
    text: str
    to: str = ""
    about: ApprovalId | None = None
    replaces: str = ""


class MarkDelivery(Command[None], frozen=True):
    delivery: str
    became: str  # sent, postponed, confirmed, failed, in_doubt
    detail: str = ""
    until: int = 0  # of one that is postponed
    shown: Literal["whole", "head"] | None = None  # of a confirmed prompt
