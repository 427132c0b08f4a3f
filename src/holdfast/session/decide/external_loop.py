"""
Decide the steps of a turn that an external loop drives: the answers of its model, its state, its
leaving and its return.
"""

from collections.abc import Iterator

import msgspec

from holdfast import limits
from holdfast.errors import Refused
from holdfast.ids import CallId
from holdfast.session.call_results import lost_call
from holdfast.session.commands import (
    AddItem,
    DropCall,
    KeepState,
    LeaveLoop,
    ProposeCalls,
    RemoveItems,
    TakeUpLoop,
)
from holdfast.session.decide.decision import NOTHING, Decided
from holdfast.session.decide.turns import (
    calls_of_reply,
    drop_call,
    model_bound_reached,
    not_run,
    settle_calls,
    too_many_calls,
)
from holdfast.session.events import (
    CallMade,
    CallsProposed,
    ItemAdded,
    ItemsRemoved,
    SessionEvent,
    StateKept,
    TurnEnded,
    TurnParked,
    TurnResumed,
)
from holdfast.session.state import Call, CallStatus, Phase, SessionState, Turn
from holdfast.session.view.messages import ProposedCall

S = CallStatus
_OPEN = (Phase.READY, Phase.DECIDING, Phase.RUNNING)


def propose_calls(state: SessionState, command: ProposeCalls) -> Decided[tuple[CallId, ...] | None]:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase not in _OPEN or turn.loop != "foreign":
        return NOTHING
    if command.inputs is not None and state.inputs != command.inputs:
        return NOTHING
    new = _new_calls(turn, command.calls)
    for each in command.calls:
        if (flaw := _conflict(turn, new, each)) is not None:
            return Decided(refusal=flaw)
    made = calls_to_make(state, turn, command.calls)
    ids = {key: each.call for key, each in zip(new, made, strict=True)}
    outcome = tuple(
        known.call if (known := known_call(turn, each.provider_id)) is not None else ids[key]
        for key, each in _keyed(command.calls)
    )
    if command.calls and not made:
        return Decided(outcome=outcome)
    proposed = CallsProposed(
        turn=turn.id,
        number=turn.model_calls + 1,
        calls=made,
        text=command.text,
        usage=command.usage,
        model=command.model,
        blob=command.blob,
        parent=command.parent,
    )
    over = model_bound_reached(turn, command.policy) if command.answers else None
    ending = (
        not_run(turn, made, over)
        if over is not None
        else too_many_calls(turn, made, command.policy)
    )
    settled = settle_calls(turn, "Not run: the turn was ended.") if ending else []
    return Decided((proposed, *settled, *ending), outcome=outcome)


def calls_to_make(
    state: SessionState, turn: Turn, calls: tuple[ProposedCall, ...]
) -> tuple[CallMade, ...]:
    """
    Return the calls that the turn does not know yet, with their ids. The same call twice in one
    answer is one call.
    """
    new = _new_calls(turn, calls)
    return calls_of_reply(state, turn, turn.model_calls + 1, tuple(new.values()))


def _keyed(calls: tuple[ProposedCall, ...]) -> Iterator[tuple[str | int, ProposedCall]]:
    """Give each call the key that it has in one answer: its id, or else its place."""
    for place, each in enumerate(calls):
        yield each.provider_id if each.provider_id is not None else place, each


def _new_calls(turn: Turn, calls: tuple[ProposedCall, ...]) -> dict[str | int, ProposedCall]:
    new: dict[str | int, ProposedCall] = {}
    for key, each in _keyed(calls):
        if known_call(turn, each.provider_id) is None:
            new.setdefault(key, each)
    return new


def known_call(turn: Turn, provider_id: str | None) -> Call | None:
    """Find the call of that id, in the open batch or in an earlier one of the turn."""
    if provider_id is None:
        return None
    return next(
        (each for each in (*turn.calls, *turn.past) if each.provider_id == provider_id), None
    )


def _conflict(turn: Turn, new: dict[str | int, ProposedCall], call: ProposedCall) -> Refused | None:
    if call.provider_id is None:
        return None
    known = known_call(turn, call.provider_id)
    tool, arguments = (
        (known.tool, known.made)
        if known is not None
        else (new[call.provider_id].tool, new[call.provider_id].arguments)
    )
    if tool == call.tool and _same(arguments, call.arguments):
        return None
    return Refused(
        f"the call id {call.provider_id!r} belongs to another call of this turn: {tool}",
        code="id_conflict",
        hint="give each call of a turn an id of its own, and the same call the same id",
    )


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except msgspec.DecodeError:
        return False


def keep_state(state: SessionState, command: KeepState) -> Decided[bool]:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase not in (*_OPEN, Phase.PARKED) or turn.loop != "foreign":
        return Decided(outcome=False)
    adapters = {each.adapter for each in turn.kept} | {command.blob.adapter}
    if len(adapters) > limits.LOOP_ADAPTERS_MAX:
        return Decided(
            refusal=Refused(
                f"{len(adapters)} adapters keep state in one turn; {limits.LOOP_ADAPTERS_MAX} are "
                "the most",
                code="too_many",
                hint="keep the state under one name",
            )
        )
    return Decided((StateKept(turn=turn.id, blob=command.blob),), outcome=True)


def add_item(command: AddItem) -> Decided[None]:
    return Decided((ItemAdded(blob=command.blob, key=command.key),))


def remove_items(command: RemoveItems) -> Decided[None]:
    return Decided((ItemsRemoved(adapter=command.adapter, items=command.items),))


def drop_one_call(state: SessionState, command: DropCall) -> Decided[bool]:
    turn, call = state.turns.get(command.turn), state.open_call(command.turn, command.call)
    if turn is None or call is None or turn.loop != "foreign":
        return Decided(outcome=False)
    if call.status not in (S.PROPOSED, S.ALLOWED, S.APPROVED, S.WAITING) or call.owes_result:
        return Decided(outcome=False)
    return Decided(tuple(drop_call(turn, call, f"Not run: {command.reason}.")), outcome=True)


def take_up_loop(state: SessionState, command: TakeUpLoop) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if turn is None or turn.loop != "foreign" or turn.phase is not Phase.PARKED:
        return NOTHING
    if turn.is_half_settled or state.running is not None:
        return NOTHING
    doubts = _lost(turn)
    if not doubts and turn.waiting and not any(_may_move(call) for call in turn.calls):
        return NOTHING
    resumed = TurnResumed(turn=turn.id, epoch=command.epoch, after="pause")
    return Decided((*doubts, resumed))


def _may_move(call: Call) -> bool:
    return call.status in (S.PROPOSED, S.ALLOWED, S.APPROVED, S.STARTED)


def leave_loop(state: SessionState, command: LeaveLoop) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if turn is None or turn.loop != "foreign" or turn.phase not in _OPEN:
        return NOTHING
    if turn.is_half_settled:
        return NOTHING
    return Decided(tuple(loop_gone(turn)))


def loop_gone(turn: Turn) -> list[SessionEvent]:
    """The loop left, or died. Its turn waits for a loop to take it up."""
    return [*_lost(turn), TurnParked(turn=turn.id)]


def _lost(turn: Turn) -> list[SessionEvent]:
    return [
        event
        for call in turn.calls
        if call.status is S.STARTED and call.contract == "once"
        for event in lost_call(turn, call)
    ]


def loop_lost(turn: Turn, now: int) -> list[SessionEvent]:
    """End a turn that no loop has taken up in time."""
    if not turn.is_left or now < returns_until(turn):
        return []
    message = "the program that drove this turn is gone, and none took it up"
    ended = TurnEnded(
        turn=turn.id,
        outcome="failed",
        code="loop_lost",
        message=message,
        hint="look at the log of the program that died, then send the message again",
    )
    return [*settle_calls(turn, f"Not run: {message}."), ended]


def returns_until(turn: Turn) -> int:
    """The time until which a turn waits for its external loop."""
    return turn.parked_at + limits.LOOP_RETURNS_SECONDS * 1000
