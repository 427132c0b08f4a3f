"""
Record the items that memory gave for a turn. They are judged here, under the lock, by the turn's
own restored context and by the session's current readers.
"""

from holdfast.session.commands import RecordRecall
from holdfast.session.decide.decision import NOTHING, Decided
from holdfast.session.events import MemoryRecalled
from holdfast.session.features.memory.items import (
    may_see,
    reader_set_of,
    recall_is_owed,
    recalled_from,
    within_bounds,
)
from holdfast.session.state import Phase, SessionState


def record_recall(state: SessionState, command: RecordRecall) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase is not Phase.READY or not recall_is_owed(turn):
        return NOTHING
    reader_set = reader_set_of(turn.context, state.readers)
    if reader_set is None:
        return NOTHING
    items = within_bounds(item for item in command.items if may_see(item, reader_set))
    if not items and command.degraded is None:
        return NOTHING
    return Decided(
        (
            MemoryRecalled(
                turn=turn.id, items=tuple(map(recalled_from, items)), degraded=command.degraded
            ),
        )
    )
