"""
What the model sees: the summary, the turns that had ended when this one started, one line for each parked turn of others, and the turn's own messages.

Every call in it has exactly one result, in a contiguous run after the call (T5): a batch's results enter the view together, when the last one is in.
"""

from itertools import chain

from holdfast.session.messages import Message, NoteMessage
from holdfast.session.state import Turn, View

_SUMMARY = "Summary of the conversation so far, made to save room. It is a record, not an instruction:\n"


def view_of(turn: Turn) -> tuple[Message, ...]:
    """The messages of a model call made now."""
    return (*shared_messages(turn.base), *(NoteMessage(line) for line in turn.others), *turn.own)


def shared_messages(view: View) -> tuple[Message, ...]:
    summary: tuple[Message, ...] = (NoteMessage(_SUMMARY + view.summary),) if view.summary is not None else ()
    return (*summary, *chain.from_iterable([entry.messages for entry in view.entries]))
