"""Turns that an external loop drives: its model's calls, its framework's state and history."""

from holdfast.ids import (
    CallId,
    TurnId,
)
from holdfast.session.events.base import Blob, Event
from holdfast.session.events.calls import CallMade
from holdfast.session.view.messages import Usage


class CallsProposed(Event, frozen=True):
    """
    The answer of an external loop's model, with the calls that it made. It stands for ModelAnswered
    where the model call is not ours. Calls may join a batch that is still open.
    """

    turn: TurnId
    number: int
    calls: tuple[CallMade, ...]
    text: str = ""
    usage: Usage = Usage()
    model: str | None = None
    blob: Blob | None = None
    parent: CallId | None = None  # the call whose nested agent said it


class StateKept(Event, frozen=True):
    """The state of an external loop's framework. The latest of an adapter counts."""

    turn: TurnId
    blob: Blob


class ItemAdded(Event, frozen=True):
    """One item of the history that a framework keeps in this session. It belongs to no turn."""

    blob: Blob
    key: str = ""  # for the adapter's own use


class ItemsRemoved(Event, frozen=True):
    """
    Items no longer belong to the framework's history. The journal keeps their records. No seqs:
    all items of the adapter up to here.
    """

    adapter: str
    items: tuple[int, ...] = ()
