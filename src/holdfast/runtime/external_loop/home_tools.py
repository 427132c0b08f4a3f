"""
Run a call of an external turn with the home's own tool: for a loop that has no tools itself, such
as a client that reaches servers through Holdfast.

The order is that of every call: prepare (without effect), a durable start, the run, the record.
"""

from functools import partial

from holdfast.ports.journal_store import Check
from holdfast.ports.tools import (
    CannotBind,
    InputWanted,
    PersonSaid,
    Prepared,
    ToolReturned,
    asks_inside,
)
from holdfast.runtime.cancellation import finish, wait_for
from holdfast.runtime.drive.bound_call import bind_to_tool, scene_of, tool_for
from holdfast.runtime.drive.open_question import AskingCall, ask_in_open_call
from holdfast.runtime.external_loop.call_steps import STOPPED, CallSteps
from holdfast.runtime.external_loop.first_call import FirstStart
from holdfast.runtime.external_loop.gate import Ended, Gate
from holdfast.session.authority.policy import BoundCall
from holdfast.session.commands import AskForInput
from holdfast.session.state import Call, Turn

RESULT_ADAPTER = "server/1"  # of a result that is kept as a server sent it


class HomeToolSteps(CallSteps):
    """The calls that this home's tools run. See `ExternalTurn`."""

    async def run(self, gate: Gate | FirstStart, *, question_seconds: float | None = None) -> Gate:
        """
        Run a ready call with the tool that the home has under its name, once, and record its
        outcome. Return its gate as it stands then. A gate that is not ready is returned as it is.

        A question that its server asks inside of the open call stands for `question_seconds` at
        most. Without them nobody is asked, and the server hears so at once.
        """
        if isinstance(gate, FirstStart):  # the commit of its message has started it
            started = Gate(call=gate.call, id=None, tool="", state="run", run=gate.run)
            return await self._ran(started, gate.prepared, question_seconds)
        if not gate.may_start:
            return gate
        async with self._driving():
            turn, call = self._find(gate)
            if not self._is_startable(turn, call):
                return await self._gate(gate.call)
            begun, prepared = await self._start_prepared(turn, call)
        return begun if prepared is None else await self._ran(begun, prepared, question_seconds)

    async def _ran(self, started: Gate, prepared: Prepared, question_seconds: float | None) -> Gate:
        if question_seconds is not None and asks_inside(prepared):
            prepared.ask_with(partial(self._asked, started, question_seconds))
        try:
            returned = await prepared.go(
                timeout_seconds=self._world.tool_timeout_seconds, on_output=lambda _: None
            )
        except BaseException:
            # Stopped while it ran: it may or may not have happened.
            await finish(self.record(started, "in_doubt", STOPPED))
            raise
        await finish(self._record_returned(started, returned))
        return await self._gate(started.call)

    async def _asked(self, started: Gate, seconds: float, wants: InputWanted) -> PersonSaid:
        async def commit(command: AskForInput) -> str | None:
            async with self._driving():
                return (await self._drive(command, check=Check.FENCE)).of(command)  # type: ignore[no-any-return]  # as the command says

        return await ask_in_open_call(
            self._driver.runtime,
            self._ledger,
            AskingCall(self.turn, started.call, started.run),
            wants,
            seconds_max=seconds,
            commit=commit,
        )

    async def until_closed(self, gate: Gate) -> Gate:
        """Wait for the end of a call that another process runs, or of its turn."""
        watch = self._ledger.watch()
        try:
            while True:
                watch.clear()
                await self._ledger.catch_up()
                gate = await self._gate(gate.call)
                if gate.closed or gate.may_start or self.is_over:
                    return gate
                await wait_for(watch)
        finally:
            self._ledger.unwatch(watch)

    async def _start_prepared(self, turn: Turn, call: Call) -> tuple[Gate, Prepared | None]:
        """Prepare the call and make its start durable. Without a start nothing is prepared."""
        bound, prepared = await self._ready(turn, call)
        run: int | None = None
        try:
            command = await self._start_command(turn, bound)
            run = (await self._drive(command, check=Check.FENCE)).of(command)
        finally:
            if run is None and prepared is not None:
                await finish(prepared.abandon())
        if run is None or prepared is None:
            await self._driver.deliver_owed()
            return await self._gate(call.call), None
        gate = Gate(call=call.call, id=self._own_id(call), tool=call.tool, state="run", run=run)
        return gate, prepared

    async def _ready(self, turn: Turn, call: Call) -> tuple[BoundCall, Prepared | None]:
        world, state = self._world, self._ledger.state
        tool = tool_for(world, turn, call.tool)
        bound = await bind_to_tool(world, state, turn, call, tool)
        if tool is None or bound.arguments is None or bound.binding is None:
            return bound, None
        scene = scene_of(world, state, turn, call.call)
        try:
            prepared = await tool.prepare(
                bound.arguments.encode(), bound.binding, scene, idempotency_key=call.call
            )
        except CannotBind as exc:
            # The start is decided with this problem, as a denial. Nothing ran.
            return BoundCall(call=call.call, problem=(exc.code, str(exc))), None
        return bound, prepared

    async def _record_returned(self, gate: Gate, returned: ToolReturned) -> None:
        outcome: Ended = "in_doubt" if returned.outcome == "cancelled" else returned.outcome
        adapter = RESULT_ADAPTER if returned.reply is not None else None
        await self.record(gate, outcome, returned.text, blob=returned.reply, adapter=adapter)
