"""
One tool call, from the last look to its recorded outcome.

Prepared first (still without effect), then started durably, and only then let go. If we die before the start is durable, nothing ran; if we die after it,
the outcome is in doubt unless the tool declared that it may be repeated. A started call that we stop ourselves is in doubt too: part of it may have happened.
A call that goes to the background is handed over in `job_call.py`.
"""

import asyncio

from holdfast.ids import CallId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.ports.tools import CannotBind, Prepared, ToolReturned
from holdfast.runtime.attempt import finish
from holdfast.runtime.feed import Delta, Feed
from holdfast.runtime.home_ledger import HomeLedger
from holdfast.runtime.job_call import CANCELS_JOBS, prepared_cancel, run_as_job
from holdfast.runtime.ledger import Ledger, payload
from holdfast.runtime.looking import look, scene_of, tool_for
from holdfast.runtime.reminding import ReminderWork
from holdfast.runtime.world import World
from holdfast.session.authority import TurnContext
from holdfast.session.commands import FinishCall, ParkTurn, StartModelCall, StartTool
from holdfast.session.policy import Looked
from holdfast.session.state import Call, Turn


async def run_tool(world: World, ledger: Ledger, home: HomeLedger, feed: Feed, turn_id: TurnId, call_id: CallId, epoch: int) -> None:
    state = ledger.state
    turn, call = state.turns.get(turn_id), state.open_call(turn_id, call_id)
    if turn is None or call is None:
        return
    looked = await look(world, state, turn, call)
    if looked.background:
        await run_as_job(world, ledger, home, turn, call, looked, epoch)
        return
    try:
        prepared = await _prepared(world, ledger, turn, call, looked)
    except CannotBind as exc:
        # Changed since the look, or the launcher could not get ready. Nothing ran; the start is decided with this in hand, and is a denial.
        prepared, looked = None, Looked(call=call_id, problem=(exc.code, str(exc)))
    run: int | None = None
    try:
        run = await _start(world, ledger, home, turn, looked, prepared, epoch)
    finally:
        if run is None and prepared is not None:
            await finish(prepared.abandon())
    if run is None or prepared is None:
        return
    returned = await _go(world, ledger, feed, turn_id, call_id, prepared)
    await finish(_record(world, ledger, turn_id, call_id, run, returned, epoch))
    if returned is None:
        raise asyncio.CancelledError


async def _prepared(world: World, ledger: Ledger, turn: Turn, call: Call, looked: Looked) -> Prepared | None:
    tool = tool_for(world, turn, call.tool)
    if tool is None or looked.arguments is None or looked.binding is None:
        return None
    if tool.definition.kind == "reminder":  # an append to this very session, and so the runtime's own work
        return ReminderWork(world, ledger, turn.turn, call.call, tool.definition.name, looked.arguments)
    if tool.definition.kind == CANCELS_JOBS:
        return prepared_cancel(world, ledger, turn, looked.arguments)
    scene = scene_of(world, ledger.state, turn, call.call)
    return await tool.prepare(looked.arguments.encode(), looked.binding, scene, idempotency_key=call.call)


async def _start(world: World, ledger: Ledger, home: HomeLedger, turn: Turn, looked: Looked, prepared: Prepared | None, epoch: int) -> int | None:
    """Commit point: from here on the call counts as started, whatever happens. None: it may not start after all."""
    requester = turn.context.requester if isinstance(turn.context, TurnContext) else None
    facts = prepared.process if prepared is not None else None
    command = StartTool(
        turn=turn.turn,
        looked=looked,
        policy=world.policy(),
        grants=await home.grants_of(requester, ledger.state),
        epoch=epoch,
        process={"boot_id": facts.boot_id, "group": facts.group, "start_time": facts.start_time} if facts is not None else None,
    )
    outcome = await ledger.drive(command, check=Check.FENCE)
    run: int | None = outcome.decided[0].outcome
    return run


async def _go(world: World, ledger: Ledger, feed: Feed, turn: TurnId, call: CallId, prepared: Prepared) -> ToolReturned | None:
    """Run to the end. None: it was stopped by us, so what it did is unknown."""

    def heard(output: bytes) -> None:
        feed.say(Delta(ledger.session, turn, "output", output.decode("utf-8", "replace"), call))

    ledger.attempt.release_nowait()
    try:
        return await prepared.go(timeout_seconds=world.tool_timeout_seconds, on_output=heard)
    except asyncio.CancelledError:
        return None


async def _record(world: World, ledger: Ledger, turn: TurnId, call: CallId, run: int, returned: ToolReturned | None, epoch: int) -> None:
    """The outcome, and in the same commit the next model call, if this was the last of its batch."""
    if returned is None or returned.outcome == "cancelled":
        text = "In doubt: it was stopped while it ran. Part of it may have happened; check before trying again."
        command = FinishCall(turn=turn, call=call, run=run, outcome="in_doubt", text=text, code="stopped")
    else:
        output = await ledger.journal.keep_output(returned.full) if returned.full is not None else None
        code = "timed_out" if returned.outcome == "timed_out" else None
        command = FinishCall(turn=turn, call=call, run=run, outcome=returned.outcome, text=returned.text, code=code, output=output)
    produced = ledger.attempt.produced("tool_outcome", payload(command))
    policy = world.policy()
    # A takeover found here leaves the outcome in quarantine, and the error says where.
    await ledger.drive(command, ParkTurn(turn=turn), StartModelCall(turn=turn, epoch=epoch, policy=policy), check=Check.FENCE, keeping=[produced])
