"""
One tool call, from its last binding to its recorded outcome.

The call is prepared first (without effect), then started durably, and only then run. If the process
dies before the start is durable, nothing ran. If it dies after that, the outcome is in doubt unless
the tool declared that it may be repeated. A started call that this process stops is in doubt too:
part of it may have happened. `jobs/call.py` starts calls that run in the background.
"""

import asyncio
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast import limits
from holdfast.ids import CallId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.ports.tools import (
    CannotBind,
    InputWanted,
    PersonSaid,
    Prepared,
    Tool,
    ToolReturned,
    asks_inside,
)
from holdfast.runtime.cancellation import finish
from holdfast.runtime.drive.bound_call import (
    bind_call,
    bind_to_tool,
    is_delegate,
    scene_of,
    tool_for,
)
from holdfast.runtime.drive.drive import Drive
from holdfast.runtime.drive.open_question import AskingCall, ask_in_open_call
from holdfast.runtime.jobs.call import CANCELS_JOBS, continue_as_job, prepared_cancel, run_as_job
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.outputs import keep_if_possible
from holdfast.runtime.reminders import ReminderWork
from holdfast.runtime.streams.feed import CallOutput
from holdfast.session.authority.policy import BoundCall, Policy
from holdfast.session.commands import AskForInput, FinishCall, StartTool
from holdfast.session.features.forms.form import FilledForm, said_in, values_of
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import Call, Turn


class Ready(NamedTuple):
    """
    A call that any commit can start, with the prepared work that runs once that commit is durable.
    """

    turn: TurnId
    bound: BoundCall
    grants: tuple[GrantProposed, ...]
    epoch: int
    prepared: Prepared | None
    process: dict[str, Any] | None  # by which it is found again after a crash

    def start(self, policy: Policy) -> StartTool:
        return StartTool(
            turn=self.turn,
            bound=self.bound,
            policy=policy,
            grants=self.grants,
            epoch=self.epoch,
            process=self.process,
        )

    async def abandon(self) -> None:
        if self.prepared is not None:
            await finish(self.prepared.abandon())


class StartedCall(NamedTuple):
    """A call whose start is durable, with the work that runs now."""

    turn: TurnId
    call: CallId
    run: int
    prepared: Prepared


async def run_tool(drive: Drive, turn_id: TurnId, call_id: CallId) -> None:
    """Bind, prepare and start a call that may run, and run it to its recorded outcome."""
    ledger, state = drive.ledger, drive.ledger.state
    turn, call = state.turns.get(turn_id), state.open_call(turn_id, call_id)
    if turn is None or call is None:
        return
    tool = tool_for(drive.world, turn, call.tool)
    bound = await bind_to_tool(drive.world, state, turn, call, tool)
    if bound.background:
        await run_as_job(drive, turn, call, bound)
        return
    ready = await get_ready(drive, turn, call, bound, tool, await drive.grants_of(turn))
    run: int | None = None
    try:
        start = ready.start(drive.world.policy())
        run = (await ledger.drive(start, check=Check.FENCE)).of(start)
    finally:
        if run is None:
            await ready.abandon()
    if run is not None and ready.prepared is not None:
        await run_started_call(drive, StartedCall(turn_id, call_id, run, ready.prepared))


async def get_ready(
    drive: Drive,
    turn: Turn,
    call: Call,
    bound: BoundCall,
    tool: Tool | None,
    grants: tuple[GrantProposed, ...],
) -> Ready:
    """
    Prepare the call up to its commit point. Once its start is committed, the call counts as
    started, whatever happens.
    """
    try:
        prepared = await _prepared(drive, turn, call, bound, tool)
    except CannotBind as exc:
        # The plan changed since the binding, or the launcher could not get ready. Nothing ran. The
        # start is decided with this problem, as a denial.
        prepared, bound = None, BoundCall(call=call.call, problem=(exc.code, str(exc)))
    facts = prepared.process if prepared is not None else None
    process = drive.world.process_facts(facts) if facts is not None else None
    return Ready(turn.id, bound, grants, drive.epoch, prepared, process)


def starts_at_once(tool: Tool | None) -> bool:
    """
    Whether the tool is a function of this process. Binding and preparing it take no time, so the
    commit that decides it can start it.
    """
    return tool is not None and tool.definition.kind in ("plain", "handed_over")


def starts_alone(tool: Tool | None) -> bool:
    """
    Whether the tool is anything but a delegate; a delegate is started by another command. Such a
    call is bound and prepared first, and no other call waits for it.
    """
    return tool is not None and not is_delegate(tool)


async def run_started_call(drive: Drive, started: StartedCall) -> None:
    """Run a call whose start is durable, and record its outcome."""
    returned = await _go(drive, started)
    if returned is not None and returned.wants is not None:
        await finish(_ask_for_input(drive, started, returned.wants))
        return
    if returned is not None and returned.task is not None:
        await finish(continue_as_job(drive, started.turn, started.call, started.run, returned.task))
        return
    await finish(_record(drive.ledger, started, returned))
    if returned is None:
        raise asyncio.CancelledError


async def _prepared(
    drive: Drive, turn: Turn, call: Call, bound: BoundCall, tool: Tool | None
) -> Prepared | None:
    world, ledger = drive.world, drive.ledger
    if tool is None or bound.arguments is None or bound.binding is None:
        return None
    # A reminder is an append to this session, so the runtime does it itself.
    if tool.definition.kind == "reminder":
        return ReminderWork(
            world, ledger, turn.id, call.call, tool.definition.name, bound.arguments
        )
    if tool.definition.kind == CANCELS_JOBS:
        return prepared_cancel(world, ledger, turn, bound.arguments)
    scene = msgspec.structs.replace(
        scene_of(world, ledger.state, turn, call.call),
        may_ask=turn.loop == "ours",
        may_go_on=turn.loop == "ours" and ledger.state.parent is None,
        filled=_filled(call),
    )
    return await tool.prepare(
        bound.arguments.encode(), bound.binding, scene, idempotency_key=call.call
    )


def _filled(call: Call) -> FilledForm | None:
    """Return the form that a person filled in for this call's server, from the journal."""
    approval = call.approval
    if approval is None or approval.asked.form is None or approval.answer is None:
        return None
    form, answer = approval.asked.form, approval.answer
    values = values_of(form, said_in(answer.option, answer.reason))
    return FilledForm(state=form.state, values=values)


async def _go(drive: Drive, started: StartedCall) -> ToolReturned | None:
    """
    Run the call to its end. Return None if it was cancelled while running; its effect is then
    unknown.
    """
    ledger = drive.ledger
    feed = drive.runtime.feed
    ledger.attempt.release_nowait()
    if asks_inside(started.prepared):
        started.prepared.ask_with(partial(_ask_in_open_call, drive, started))
    try:
        with CallOutput(
            feed, ledger.session, started.turn, started.call, lambda: ledger.state.seq
        ) as output:
            return await started.prepared.go(
                timeout_seconds=drive.world.tool_timeout_seconds, on_output=output.hear
            )
    except asyncio.CancelledError:
        return None


async def _ask_in_open_call(drive: Drive, started: StartedCall, wants: InputWanted) -> PersonSaid:
    async def commit(command: AskForInput) -> str | None:
        return (await drive.ledger.drive(command, check=Check.FENCE)).of(command)

    return await ask_in_open_call(
        drive.runtime,
        drive.ledger,
        AskingCall(started.turn, started.call, started.run),
        wants,
        seconds_max=limits.MCP_OPEN_QUESTION_SECONDS,
        commit=commit,
    )


async def _ask_for_input(drive: Drive, started: StartedCall, wants: InputWanted) -> None:
    """
    Commit point: the call waits for a person. Crash before it: the call is in doubt, as any call
    whose outcome was not recorded. Crash after it: the prompt stands, and nothing is sent again.
    """
    world, ledger, state = drive.world, drive.ledger, drive.ledger.state
    turn, call = state.turns.get(started.turn), state.open_call(started.turn, started.call)
    if turn is None or call is None:
        return
    bound = await bind_call(world, state, turn, call)
    command = AskForInput(
        turn=started.turn,
        call=started.call,
        run=started.run,
        bound=bound,
        form=wants.form,
        display=wants.display,
        warnings=wants.warnings,
        policy=world.policy(),
    )
    produced = ledger.attempt.produced("tool_outcome", msgspec.json.encode(wants))
    await ledger.drive(command, check=Check.FENCE, keeping=[produced])


async def _record(ledger: Ledger, started: StartedCall, returned: ToolReturned | None) -> None:
    """
    Record the outcome. If this was the last call of its batch, the next model call starts in the
    same commit.
    """
    turn, call, run, _ = started
    if returned is None or returned.outcome == "cancelled":
        text = (
            "In doubt: it was stopped while it ran. Part of it may have happened; check before"
            " trying again."
        )
        command = FinishCall(
            turn=turn, call=call, run=run, outcome="in_doubt", text=text, code="stopped"
        )
    else:
        output, text = await keep_if_possible(ledger, returned.full, returned.text)
        code = {"timed_out": "timed_out", "in_doubt": "no_reply"}.get(returned.outcome)
        command = FinishCall(
            turn=turn,
            call=call,
            run=run,
            outcome=returned.outcome,
            text=text,
            code=code,
            output=output,
        )
    produced = ledger.attempt.produced("tool_outcome", msgspec.json.encode(command))
    # If this finds a takeover, the outcome goes to quarantine and the error says where.
    await ledger.drive(command, check=Check.FENCE, keeping=[produced])
