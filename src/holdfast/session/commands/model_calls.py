"""Calls of a model: start one, take its answer or failure, shorten its view."""

from typing import Literal

from holdfast import limits
from holdfast.ids import TurnId
from holdfast.session.authority.policy import Policy
from holdfast.session.commands.base import Command
from holdfast.session.features.memory.items import MemoryItem
from holdfast.session.view.messages import ModelAnswer, Usage


class StartModelCall(Command[int | None], frozen=True):
    turn: TurnId
    epoch: int
    policy: Policy


class RecordRecall(Command[None], frozen=True):
    """
    Record the items that memory gave to a turn that has not called a model yet. The turn's own
    context decides again which of them it may see.
    """

    turn: TurnId
    items: tuple[MemoryItem, ...]
    degraded: str | None = None


class TakeAnswer(Command[Literal["dropped"] | None], frozen=True):
    turn: TurnId
    number: int
    answer: ModelAnswer
    policy: Policy


class KeepPartialAnswer(Command[Literal["dropped"] | None], frozen=True):
    """
    Keep the text that a stopped model call had given. A call that still runs keeps nothing here:
    its answer has the text.
    """

    turn: TurnId
    number: int
    text: str


class TakeFailure(Command[Literal["dropped"] | None], frozen=True):
    """
    Record a failed model call, and decide whether and when it is tried again. `final`: another try
    cannot help.
    """

    turn: TurnId
    number: int
    kind: str
    message: str
    final: bool
    line: int | None = None
    hint: str | None = None
    retry_after_seconds: float | None = None  # as the provider asked
    first_wait_seconds: float = 0.0  # of the back-off; 0: this home does not wait
    retry_for_seconds: float = limits.MODEL_RETRY_FOR_SECONDS


class RecordCompaction(Command[str], frozen=True):
    """
    Record a summary. It is taken only if the summarised span is still there (`compactions`
    unchanged) and the number of tokens really falls.
    """

    summary: str
    turns: int
    compactions: int
    tokens_before: int
    tokens_after: int
    trigger: str
    usage: Usage = Usage()


class RecordTurnCompaction(Command[str], frozen=True):
    """
    Record a summary of one turn's own view. It is taken only if the turn is between two steps and
    the summarised span is still there.
    """

    turn: TurnId
    summary: str
    part: Literal["base", "own"]
    messages: int
    # The number of the turn's own messages when the compaction was planned. If it only grew, the
    # summarised messages are still there.
    own_length: int
    tokens_before: int
    tokens_after: int
    trigger: str
    usage: Usage = Usage()
