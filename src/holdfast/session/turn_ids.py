"""
Resolve a turn id. Every accepted message has one, also if it joined the turn of an earlier message.
"""

from holdfast.ids import InputId, TurnId
from holdfast.session.state import SessionState, Turn


def turn_id_of(accepted: InputId) -> TurnId:
    """
    Return the id of a message's own turn: input i7, turn t7. A message that joined an earlier turn
    has such an id too.
    """
    return TurnId("t" + accepted[1:])


def find_turn(state: SessionState, turn: TurnId) -> Turn | None:
    """Return the open turn of that id, or the turn that its message joined."""
    if turn in state.turns:
        return state.turns[turn]
    return next(
        (
            each
            for each in state.turns.values()
            if any(turn_id_of(name) == turn for name in each.inputs)
        ),
        None,
    )
