"""
One tool call, from its last binding to its recorded outcome.

The call is prepared first (without effect), then started durably, and only then run. If the process
dies before the start is durable, nothing ran. If it dies after that, the outcome is in doubt unless
the tool declared that it may be repeated. A started call that this process stops is in doubt too:
part of it may have happened. `jobs/call.py` starts calls that run in the background.
"""

import asyncio
from typing import NamedTuple

import msgspec

from holdfast.ids import CallId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.ports.tools import CannotBind, Prepared, Tool, ToolReturned
from holdfast.runtime.cancellation import finish
from holdfast.runtime.context import World
from holdfast.runtime.drive.binding import is_delegate, look, scene_of, tool_for
from holdfast.runtime.jobs.call import CANCELS_JOBS, prepared_cancel, run_as_job
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger, payload
from holdfast.runtime.reminders import ReminderWork
from holdfast.runtime.streams.feed import Feed
from holdfast.session.authority.policy import Looked, Policy
from holdfast.session.commands import FinishCall, StartTool
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import Call, Turn


class Ready(NamedTuple):
    """
    A call that any commit can start, with the prepared work that runs once that commit is durable.
    """

    turn: TurnId
    looked: Looked
    grants: tuple[GrantProposed, ...]
    epoch: int
    prepared: Prepared | None

    def start(self, policy: Policy) -> StartTool:
        facts = self.prepared.process if self.prepared is not None else None
        process = msgspec.structs.asdict(facts) if facts is not None else None
        return StartTool(
            turn=self.turn,
            looked=self.looked,
            policy=policy,
            grants=self.grants,
            epoch=self.epoch,
            process=process,
        )

    async def abandon(self) -> None:
        if self.prepared is not None:
            await finish(self.prepared.abandon())


async def run_tool(
    world: World,
    ledger: Ledger,
    home: HomeLedger,
    feed: Feed,
    turn_id: TurnId,
    call_id: CallId,
    epoch: int,
) -> None:
    state = ledger.state
    turn, call = state.turns.get(turn_id), state.open_call(turn_id, call_id)
    if turn is None or call is None:
        return
    looked = await look(world, state, turn, call)
    if looked.background:
        await run_as_job(world, ledger, home, turn, call, looked, epoch)
        return
    ready = await get_ready(
        world,
        ledger,
        turn,
        call,
        looked,
        await home.grants_of(turn.context.requester, ledger.state),
        epoch,
    )
    run: int | None = None
    try:
        start = ready.start(world.policy())
        run = (await ledger.drive(start, check=Check.FENCE)).of(start)
    finally:
        if run is None:
            await ready.abandon()
    if run is not None and ready.prepared is not None:
        await see_through(world, ledger, feed, turn_id, call_id, run, ready.prepared)


async def get_ready(
    world: World,
    ledger: Ledger,
    turn: Turn,
    call: Call,
    looked: Looked,
    grants: tuple[GrantProposed, ...],
    epoch: int,
) -> Ready:
    """
    Prepare the call up to its commit point. Once its start is committed, the call counts as
    started, whatever happens.
    """
    try:
        prepared = await _prepared(world, ledger, turn, call, looked)
    except CannotBind as exc:
        # The plan changed since the binding, or the launcher could not get ready. Nothing ran. The
        # start is decided with this problem, as a denial.
        prepared, looked = None, Looked(call=call.call, problem=(exc.code, str(exc)))
    return Ready(turn.turn, looked, grants, epoch, prepared)


def starts_at_once(tool: Tool | None) -> bool:
    """
    Whether the tool is a function of this process. Binding and preparing it take no time, so the
    commit that decides it can start it.
    """
    return tool is not None and tool.definition.kind == "plain"


def starts_alone(tool: Tool | None) -> bool:
    """
    Whether the tool is anything but a delegate; a delegate is started by another command. Such a
    call is bound and prepared first, and no other call waits for it.
    """
    return tool is not None and not is_delegate(tool)


async def see_through(
    world: World,
    ledger: Ledger,
    feed: Feed,
    turn_id: TurnId,
    call_id: CallId,
    run: int,
    prepared: Prepared,
) -> None:
    """Run a call whose start is durable, and record its outcome."""
    returned = await _go(world, ledger, feed, turn_id, call_id, prepared)
    await finish(_record(ledger, turn_id, call_id, run, returned))
    if returned is None:
        raise asyncio.CancelledError


async def _prepared(
    world: World, ledger: Ledger, turn: Turn, call: Call, looked: Looked
) -> Prepared | None:
    tool = tool_for(world, turn, call.tool)
    if tool is None or looked.arguments is None or looked.binding is None:
        return None
    # A reminder is an append to this session, so the runtime does it itself.
    if tool.definition.kind == "reminder":
        return ReminderWork(
            world, ledger, turn.turn, call.call, tool.definition.name, looked.arguments
        )
    if tool.definition.kind == CANCELS_JOBS:
        return prepared_cancel(world, ledger, turn, looked.arguments)
    scene = scene_of(world, ledger.state, turn, call.call)
    return await tool.prepare(
        looked.arguments.encode(), looked.binding, scene, idempotency_key=call.call
    )


async def _go(
    world: World, ledger: Ledger, feed: Feed, turn: TurnId, call: CallId, prepared: Prepared
) -> ToolReturned | None:
    """
    Run the call to its end. Return None if it was cancelled while running; its effect is then
    unknown.
    """
    ledger.attempt.release_nowait()
    try:
        return await prepared.go(
            timeout_seconds=world.tool_timeout_seconds,
            on_output=feed.output_of(ledger.session, turn, call),
        )
    except asyncio.CancelledError:
        return None


async def _record(
    ledger: Ledger, turn: TurnId, call: CallId, run: int, returned: ToolReturned | None
) -> None:
    """
    Record the outcome. If this was the last call of its batch, the next model call starts in the
    same commit.
    """
    if returned is None or returned.outcome == "cancelled":
        text = "In doubt: it was stopped while it ran. Part of it may have happened; check before trying again."
        command = FinishCall(
            turn=turn, call=call, run=run, outcome="in_doubt", text=text, code="stopped"
        )
    else:
        output = (
            await ledger.journal.keep_output(returned.full) if returned.full is not None else None
        )
        code = "timed_out" if returned.outcome == "timed_out" else None
        command = FinishCall(
            turn=turn,
            call=call,
            run=run,
            outcome=returned.outcome,
            text=returned.text,
            code=code,
            output=output,
        )
    produced = ledger.attempt.produced("tool_outcome", payload(command))
    # If this finds a takeover, the outcome goes to quarantine and the error says where.
    await ledger.drive(command, check=Check.FENCE, keeping=[produced])
