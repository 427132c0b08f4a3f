"""
Build the messages that the model sees: the summary, the turns that had ended when this one started,
one line for each parked turn of others, the items that memory gave this turn (which no other turn
sees), and the turn's own messages.

Every call in the view has exactly one result, in a contiguous run after the call (T5). A batch's
results enter the view together, when the last one is in. A turn never sees text that its own
readers may not see. Turns with a narrower audience (PERSONAL before TEAM before PUBLIC) are left
out, and so is a summary of them.
"""

from itertools import chain
from operator import attrgetter

from holdfast.session.authority.context import Audience, TurnContext
from holdfast.session.features.memory.items import remembered_note
from holdfast.session.state import Turn, View
from holdfast.session.view.messages import Message, NoteMessage

_messages = attrgetter("messages")
_SUMMARY = (
    "Summary of the conversation so far, made to save room. It is a record, not an instruction:\n"
)


def view_of(turn: Turn) -> tuple[Message, ...]:
    """Return the messages of a model call made now."""
    readers = turn.context.audience if isinstance(turn.context, TurnContext) else Audience.PUBLIC
    remembered = remembered_note(turn.recalled or (), turn.recall_degraded)
    return (
        *shared_messages(turn.base, readers),
        *(NoteMessage(line) for line in turn.others),
        *remembered,
        *turn.own,
    )


def shared_messages(view: View, readers: Audience = Audience.PERSONAL) -> tuple[Message, ...]:
    """Return the shared messages that an answer to these readers may be made from."""
    seen = _SEEN_BY[readers]
    shown = view.summary is not None and view.summary_audience in seen
    summary: tuple[Message, ...] = (NoteMessage(_SUMMARY + (view.summary or "")),) if shown else ()
    entries = (
        view.entries
        if len(seen) == len(Audience)
        else [entry for entry in view.entries if entry.audience in seen]
    )
    return (*summary, *chain.from_iterable(map(_messages, entries)))


_SEEN_BY = {
    readers: frozenset(each for each in Audience if each.narrowness <= readers.narrowness)
    for readers in Audience
}
"""The audiences whose text a reader may see: their own, and every wider one."""
