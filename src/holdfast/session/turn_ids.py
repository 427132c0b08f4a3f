"""
Which turn is meant by an id: every accepted message has one, also when it joined the turn of an
earlier message.
"""

from holdfast.ids import InputId, TurnId
from holdfast.session.state import SessionState, Turn


def turn_id_of(accepted: InputId) -> TurnId:
    """
    The id a message's own turn has, or would have had it not joined an earlier one: input i7, turn
    t7.
    """
    return TurnId("t" + accepted[1:])


def find_turn(state: SessionState, turn: TurnId) -> Turn | None:
    """The open turn of that id, or the one that its message joined."""
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
