"""The results of commands, for their senders, where the events alone do not show the result."""

import msgspec

from holdfast.ids import ApprovalId, CallId, InputId, ReminderId, TurnId


class Accepted(msgspec.Struct, frozen=True):
    """
    The message is journalled. It belongs to this turn, unless it joins the turn before it.
    `superseded` are the prompts that it closed.
    """

    input: InputId
    turn: TurnId
    superseded: tuple[ApprovalId, ...] = ()


class Duplicate(msgspec.Struct, frozen=True):
    """The message was journalled before. This is its turn."""

    turn: TurnId


class OnlyAnAnswerWord(msgspec.Struct, frozen=True):
    """A "yes" is not an approval. These prompts stand. `by` is the sender."""

    approvals: tuple[ApprovalId, ...]
    turn: TurnId
    by: str | None = None


class Answered(msgspec.Struct, frozen=True):
    """
    The answer is journalled, now or before. With `waiting`, siblings still need an answer, so
    nothing runs yet.
    """

    turn: TurnId
    call: CallId
    option: str
    waiting: bool
    again: bool = False  # the same answer was journalled before


class ReminderStanding(msgspec.Struct, frozen=True):
    """The reminder is set. `next_at` is None if it was set before and is over already."""

    reminder: ReminderId
    next_at: int | None
