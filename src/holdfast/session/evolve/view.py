"""
Apply events to the shared view: the ended turns, as the model sees them.

A turn joins the view when it ends. A summary replaces the oldest turns, here and in the views that
open turns began with. The journal keeps all of them.
"""

from msgspec.structs import replace

from holdfast.session.events import Compacted, TurnImported
from holdfast.session.evolve.model_calls import fewer_tokens
from holdfast.session.persistent import PersistentList
from holdfast.session.state import SessionState, Turn, View, ViewEntry
from holdfast.session.transitions import IllegalTransition
from holdfast.session.view.messages import AssistantMessage, NoteMessage, UserMessage
from holdfast.session.view.sizes import chars, estimated_tokens
from holdfast.session.view.titles import title_from_text


def joined(view: View, turn: Turn, entry: ViewEntry) -> View:
    """
    Return the shared view with one more turn. Its size is the count of that turn's model, if the
    turn saw all of the view.
    """
    if turn.tokens and (turn.base.compactions, len(turn.base.entries)) == (
        view.compactions,
        len(view.entries),
    ):
        tokens = turn.tokens
    else:
        tokens = view.tokens + estimated_tokens(chars(entry.messages)) if view.tokens else 0
    return replace(with_entry(view, entry), tokens=tokens)


def with_entry(view: View, entry: ViewEntry) -> View:
    return replace(
        view,
        entries=view.entries.add(entry),
        chars=view.chars + chars(entry.messages),
        tainted=view.tainted or entry.tainted,
    )


def compacted(state: SessionState, event: Compacted) -> SessionState:
    if event.turns > len(state.view.entries):
        raise IllegalTransition(None, event, "it replaces more than there is")
    view = _summarised(state.view, event)
    # A turn that began with all of the summarised turns continues with the summary. An older turn
    # keeps the view that it began with.
    turns = {
        name: replace(
            turn, base=_summarised(turn.base, event), tokens=fewer_tokens(turn.tokens, event)
        )
        if turn.base.compactions == state.view.compactions and len(turn.base.entries) >= event.turns
        else turn
        for name, turn in state.turns.items()
    }
    return replace(
        state,
        view=view,
        turns=turns,
        compactions=state.compactions + 1,
        usage=state.usage + event.usage,
    )


def _summarised(view: View, event: Compacted) -> View:
    kept: PersistentList[ViewEntry] = PersistentList()
    rest = kept.extend(list(view.entries)[event.turns :])
    size = len(event.summary) + sum(chars(entry.messages) for entry in rest)
    return View(
        event.summary,
        rest,
        view.compactions + 1,
        fewer_tokens(view.tokens, event),
        view.narrowest(event.turns),
        size,
        view.tainted,
    )


def turn_imported(state: SessionState, event: TurnImported) -> SessionState:
    if (
        state.inputs
        or state.turns
        or any(
            not isinstance(each, UserMessage | NoteMessage | AssistantMessage)
            for each in event.messages
        )
    ):
        raise IllegalTransition(
            None, event, "only text is imported, and only before anything else happens"
        )
    entry = ViewEntry(event.turn, event.messages)
    said = next((each.text for each in event.messages if isinstance(each, UserMessage)), "")
    opening = state.opening or title_from_text(said)
    return replace(state, view=with_entry(state.view, entry), opening=opening)
