"""
The bookkeeping that follows a commit, chosen in one place from the effects that `react` names.

A driver's commit ends with every step that needs nothing from outside: park a turn that only waits,
finish a turn with nothing left to do, start the next model call. They are durable together with
their cause, so they cost no sync of their own. All other effects (a tool, a recall, a retry after a
failure) need the outside world. The driver does those. Pure.
"""

from collections.abc import Sequence

import msgspec

from holdfast.ids import TurnId
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import EndTurn, ParkTurn, SessionCommand, StartModelCall
from holdfast.session.effects import CallModel, Finish, Park, SessionEffect
from holdfast.session.features.memory.items import recall_is_owed
from holdfast.session.react import react
from holdfast.session.state import SessionState, Turn

Bookkeeping = ParkTurn | EndTurn | StartModelCall


class DriverFacts(msgspec.Struct, frozen=True):
    """
    The facts about the driver that bookkeeping depends on. `recalls`: memory holds items, so a turn
    asks it first.
    """

    epoch: int
    policy: Policy
    recalls: bool = False
    recalled: frozenset[TurnId] = frozenset()  # turns that this drive has asked memory for already


def policy_of(commands: Sequence[SessionCommand]) -> Policy | None:
    """Return the policy of a commit's own commands: its bookkeeping is decided by the same one."""
    for command in commands:
        policy: Policy | None = getattr(command, "policy", None)
        if policy is not None:
            return policy
    return None


def bookkeeping_owed(state: SessionState, driver: DriverFacts) -> list[Bookkeeping]:
    """The steps that `react` names and that need nothing from outside, in its order."""
    return [step for effect in react(state) if (step := _step(state, effect, driver)) is not None]


def _step(state: SessionState, effect: SessionEffect, driver: DriverFacts) -> Bookkeeping | None:
    match effect:
        case Park(turn=turn):
            return ParkTurn(turn=turn)
        case Finish(turn=turn):
            return EndTurn(turn=turn, policy=driver.policy)
        case CallModel(turn=turn) if _may_call_at_once(state.turns[turn], driver):
            return StartModelCall(turn=turn, epoch=driver.epoch, policy=driver.policy)
        case _:
            return None


def _may_call_at_once(turn: Turn, driver: DriverFacts) -> bool:
    """
    A failed call waits first, and an overflow needs a summary. A turn's first call may need items
    from memory.
    """
    needs_recall = driver.recalls and turn.id not in driver.recalled and recall_is_owed(turn)
    return turn.model_failures == 0 and not needs_recall
