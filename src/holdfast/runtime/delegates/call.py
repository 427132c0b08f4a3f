"""
A call to a delegate, from its last binding to its durable start. Nothing runs here: the rest is
owed by the delegate's own session.

Binding and decision are like a tool's: persisted authority and current policy together, under the
lock.
"""

from holdfast.errors import Unusable
from holdfast.ids import CallId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.runtime.context import World
from holdfast.runtime.delegates.delegation import Delegation
from holdfast.runtime.drive.binding import look
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.session.authority.policy import Looked
from holdfast.session.commands import NewDelegate, StartTool


async def start_delegate(
    world: World,
    ledger: Ledger,
    home: HomeLedger,
    delegation: Delegation,
    turn_id: TurnId,
    call_id: CallId,
    epoch: int,
) -> None:
    """
    Commit point: from here on there is exactly one session for this call, created or to be created.
    A refused start is a result.
    """
    state = ledger.state
    turn, call = state.turns.get(turn_id), state.open_call(turn_id, call_id)
    if turn is None or call is None:
        return
    looked = await look(world, state, turn, call)
    new: NewDelegate | None = None
    if looked.definition is not None and looked.problem is None:
        new = delegation.new(turn, call_id, looked.definition)
        looked = _checked(world, looked, new.agent)
    grants = await home.grants_of(turn.context.requester, state)
    command = StartTool(
        turn=turn_id, looked=looked, policy=world.policy(), grants=grants, epoch=epoch, delegate=new
    )
    await ledger.drive(command, check=Check.FENCE)


def _checked(world: World, looked: Looked, agent: str) -> Looked:
    """Refuse an agent that this process could not drive, so that no call waits for it in vain."""
    try:
        world.model(world.agent(agent).model)
    except Unusable as exc:
        return Looked(
            call=looked.call,
            problem=("cannot_bind", f"the agent {agent} can't work here: {exc.message}"),
        )
    return looked
