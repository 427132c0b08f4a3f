"""
Start a delegate: a call's last binding and its durable start, then the session that works for it,
created with its one input. `delegation.py` shows both steps among the others.

Binding and decision are like a tool's: persisted authority and current policy together, under the
lock. Nothing runs here; the rest is owed by the delegate's own session.
"""

import msgspec

from holdfast.errors import Refused, Unusable
from holdfast.ids import (
    CallId,
    TurnId,
    delegate_of_tool,
    delegate_session,
    new_instance,
)
from holdfast.ports.journal_store import Check, Draft
from holdfast.runtime.context import World
from holdfast.runtime.delegates.delegation import handed_down, settle_lost
from holdfast.runtime.drive.bound_call import bind_call, is_delegate, turn_tools
from holdfast.runtime.drive.drive import Drive
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.runtime import Runtime
from holdfast.session.authority.plan import ToolDefinition
from holdfast.session.authority.policy import BoundCall
from holdfast.session.codec import encode
from holdfast.session.commands import AcceptInput, NewDelegate, StartTool
from holdfast.session.decide import commit as deciding
from holdfast.session.events import DelegateOf, SessionBorn
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.react import is_wanted
from holdfast.session.state import Delegate, SessionState, Turn


class _Task(msgspec.Struct):
    task: str


async def start_delegate(drive: Drive, turn_id: TurnId, call_id: CallId) -> None:
    """
    Commit point: from here on there is exactly one session for this call, created or to be created.
    A refused start is a result.
    """
    world, state = drive.world, drive.ledger.state
    turn, call = state.turns.get(turn_id), state.open_call(turn_id, call_id)
    if turn is None or call is None:
        return
    bound = await bind_call(world, state, turn, call)
    new: NewDelegate | None = None
    if bound.definition is not None and bound.problem is None:
        new = plan_delegate(drive.runtime, turn, call_id, bound.definition)
        bound = _checked(world, bound, new.agent)
    command = StartTool(
        turn=turn_id,
        bound=bound,
        policy=world.policy(),
        grants=await drive.grants_of(turn),
        epoch=drive.epoch,
        delegate=new,
    )
    await drive.ledger.drive(command, check=Check.FENCE)


def _checked(world: World, bound: BoundCall, agent: str) -> BoundCall:
    """Refuse an agent that this process could not drive, so that no call waits for it in vain."""
    try:
        world.models.resolve(world.agent(agent).model)
    except Unusable as exc:
        return BoundCall(
            call=bound.call,
            problem=("cannot_bind", f"the agent {agent} can't work here: {exc.message}"),
        )
    return bound


def plan_delegate(
    runtime: Runtime, turn: Turn, call: CallId, definition: ToolDefinition
) -> NewDelegate:
    """
    The values that a start would journal. The session's name follows from the call. Its
    instance is created here, and the first durable start keeps it.
    """
    agent, world = delegate_of_tool(definition.name), runtime.world
    above = turn_tools(world, turn, world.agents.get(turn.agent))
    tools = tuple(sorted(name for name, tool in above.items() if not is_delegate(tool)))
    return NewDelegate(
        agent=agent,
        session=delegate_session(call),
        instance=new_instance(runtime.world.random_bytes),
        tools=tools,
    )


async def create_delegate(
    runtime: Runtime, ledger: Ledger, turn_id: TurnId, call_id: CallId
) -> None:
    """
    Make sure that the delegate's session exists, with its task. After a crash the same session
    is found, and not created twice.
    """
    turn, call = ledger.state.turns.get(turn_id), ledger.state.open_call(turn_id, call_id)
    if (
        turn is None
        or call is None
        or call.delegate is None
        or not is_wanted(ledger.state, call.delegate)
    ):
        return
    child = call.delegate
    living = await runtime.world.store.current(child.session)
    if living is None:
        await _create(
            runtime,
            ledger.state,
            turn,
            child,
            task=msgspec.json.decode(call.arguments or "{}", type=_Task).task,
        )
    elif living != child.instance:
        await settle_lost(runtime, ledger, child)
    runtime.world.notifier.notify(child.session)


async def _create(
    runtime: Runtime, state: SessionState, turn: Turn, child: Delegate, *, task: str
) -> None:
    """
    Commit point: the session and its input are created together. Crash before it: nothing
    exists. Crash after it: the session owes its turn.
    """
    agent = runtime.world.agent(child.agent)
    parent = _parent_of(runtime, state, turn, child)
    created = SessionBorn(
        session=child.session,
        instance=child.instance,
        origin="delegate",
        by=turn.context.requester or "nobody",
        from_session=state.session,
        from_instance=state.instance,
        parent=parent,
    )
    accept = AcceptInput(
        text=task,
        source=None,
        agent=agent.name,
        model=runtime.world.models.resolve(agent.model).name,
        policy=runtime.world.policy(),
        kind="delegate",
        context=handed_down(turn, child),
    )
    begun = evolve(initial(child.session, child.instance), created, seq=1, at=0)
    committed = deciding.commit(begun, [accept], now=runtime.world.clock.now_ms())
    if committed.refusal is not None:
        raise committed.refusal
    drafts = [Draft(*encode(event)) for event in (created, *committed.events)]
    try:
        journal = await runtime.world.store.create(
            child.session, child.instance, drafts, origin="delegate", by=created.by
        )
    except Refused as exc:
        if exc.code != "exists":
            raise
    else:
        await journal.close()


def _parent_of(runtime: Runtime, state: SessionState, turn: Turn, child: Delegate) -> DelegateOf:
    above = state.parent.path if state.parent is not None else (turn.agent,)
    budget = runtime.world.policy().prompts_per_turn_max
    left = budget if state.parent is None else min(budget, state.parent.prompts_max)
    return DelegateOf(
        session=state.session,
        instance=state.instance,
        turn=turn.id,
        call=child.call,
        path=(*above, child.agent),
        tools=child.tools,
        prompts_max=max(0, left - turn.prompts),
        doubts=tuple(key for key, _ in state.in_doubt.items()),
    )
