"""
Calls of a model: the memories it is given, its answers and failures, and the summaries
that shorten its view.
"""

from typing import Literal

import msgspec

from holdfast.ids import (
    MemoryId,
    SessionId,
    TurnId,
)
from holdfast.session.events.base import Event
from holdfast.session.events.calls import CallMade
from holdfast.session.view.messages import Usage


class ModelCallStarted(Event, frozen=True):
    """
    Journalled before the call leaves: if we die now, recovery knows that money may have been spent.
    """

    turn: TurnId
    number: int
    epoch: int
    model: str


class RecalledItem(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One memory item as a turn was given it. An item without a clean mark is tainted."""

    memory: MemoryId
    text: str
    audience: str
    boundary: str
    person: str
    session: SessionId  # where it was formed
    turn: TurnId
    created_at: int
    tainted: bool = True


class MemoryRecalled(Event, frozen=True):
    """
    The memories that were recalled for a turn, before its first model call, under its journalled
    context. Memory adds nothing else to its view.
    """

    turn: TurnId
    items: tuple[RecalledItem, ...] = ()
    degraded: str | None = None  # why it may be incomplete


class ModelAnswered(Event, frozen=True):
    turn: TurnId
    number: int
    text: str
    calls: tuple[CallMade, ...] = ()
    usage: Usage = Usage()
    blob: str | None = None
    blob_adapter: str | None = None
    line: int | None = None


class ModelCallFailed(Event, frozen=True):
    """It gave no answer, and we know it. `final`: no further try of this call."""

    turn: TurnId
    number: int
    kind: str
    message: str
    final: bool
    line: int | None = None
    hint: str | None = None
    since: int | None = None  # Unix milliseconds of the first failure in this row
    retry_at: int | None = None  # Unix milliseconds of the next try
    wait_ms: int | None = None  # from this failure to the next try


class ModelCallLost(Event, frozen=True):
    """The driver died while the call was out; it is repeated under a new number."""

    turn: TurnId
    number: int


class ModelAnswerDropped(Event, frozen=True):
    """
    An answer came that nobody waits for any more: cancelled, superseded, or of an older number.
    `text` is the part of it that people had seen. No later turn sees it.
    """

    turn: TurnId
    number: int
    reason: str
    usage: Usage = Usage()
    text: str = ""


class Compacted(Event, frozen=True):
    """
    In the view, the oldest `turns` entries are replaced by this summary. The journal keeps
    everything.
    """

    summary: str
    turns: int
    tokens_before: int
    tokens_after: int
    trigger: str
    usage: Usage = Usage()


class TurnCompacted(Event, frozen=True):
    """
    In the view of this one turn alone: what it began with (`part` base), or the first `messages`
    after its own inputs (`part` own), is replaced.

    For a turn that outgrows the window by itself, or that was parked while the others' view moved
    on.
    """

    turn: TurnId
    summary: str
    part: Literal["base", "own"]
    messages: int
    tokens_before: int
    tokens_after: int
    trigger: str
    usage: Usage = Usage()
