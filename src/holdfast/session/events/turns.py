"""Messages, and the turns that they begin."""

from typing import Literal

import msgspec

from holdfast.ids import (
    InputId,
    TurnId,
)
from holdfast.session.events.base import Event
from holdfast.session.view.messages import Quote

Loop = Literal["ours", "foreign"]
InputKind = Literal["message", "job", "reminder", "delegate"]
TurnOutcome = Literal["completed", "failed", "cancelled", "superseded"]


class InputAccepted(Event, frozen=True):
    """
    A message with its own authority, stored before it is acknowledged. `context` is a TurnContext,
    restored on every fold.
    """

    input: InputId
    turn: TurnId
    text: str
    context: msgspec.Raw
    agent: str
    model: str
    kind: InputKind = "message"
    loop: Loop = "ours"
    quotes: tuple[Quote, ...] = ()
    dedup: str | None = None
    aliases: tuple[str, ...] = ()  # further dedup keys of the same message
    asserted_by: str | None = None
    supersedes: tuple[TurnId, ...] = ()  # parked turns that it replaces; their closing follows


class InputDropped(Event, frozen=True):
    input: InputId
    reason: str


class TurnStarted(Event, frozen=True):
    turn: TurnId
    inputs: tuple[InputId, ...]
    epoch: int


class TurnParked(Event, frozen=True):
    """
    Nothing can be done before somebody answers, or before its external loop comes back. The turn
    costs no task and no memory from here on.
    """

    turn: TurnId


class TurnResumed(Event, frozen=True):
    """
    Another attempt drives the turn on: after a pause, or because the one before died. `wait`: it
    died while the turn only waited for the next try of a model call.
    """

    turn: TurnId
    epoch: int
    after: Literal["pause", "crash", "wait"]


class TurnCancelled(Event, frozen=True):
    """Wished for, and durable; the turn ends once its started calls have ended."""

    turn: TurnId
    by: str


class TurnEnded(Event, frozen=True):
    turn: TurnId
    outcome: TurnOutcome
    reply: str | None = None
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    by_input: InputId | None = None  # the message that superseded it
