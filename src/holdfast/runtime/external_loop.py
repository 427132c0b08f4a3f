"""
A turn driven by an external loop. Holdfast keeps its authority, its gates and its history; the loop
runs the model calls and the tools.

    async with home.turn("ops/api", "restart the api", source=alice) as turn:
        gate = await turn.gate("restart_service", {"service": "api"})
        if gate.waiting:
            gate = await turn.wait(gate)  # parked, durably, until an approver answers
        if gate.may_run:  # ToolStarted is durable: run it now, once
            await turn.record(gate, "ok", "restarted")
        await turn.finish("done")

The loop holds the session's claim while it drives. If it dies, the next driver ends the turn as
`loop_lost`, with started calls in doubt. A parked turn stays: a loop in any process resumes it,
before its answer or after it, with `Service.foreign_turn_again`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, get_args

import msgspec

from holdfast import limits
from holdfast.errors import Busy, HoldfastError, Refused, Unusable
from holdfast.ids import CallId, SessionId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.runtime.cancellation import finish, wait_for
from holdfast.runtime.context import World
from holdfast.runtime.drive.binding import look
from holdfast.runtime.drive.driver import Driver, Until
from holdfast.runtime.drive.turn import TurnRunner, nothing_owed
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.open_prompts import prompts_open
from holdfast.runtime.reports.types import ApprovalReport, TurnReport, approval_report
from holdfast.runtime.verbs.accept import (
    Incoming,
    accepting,
    ensure_session,
    no_answer,
    refuse_unfit,
    written_as_json,
)
from holdfast.secrecy import secrecy_of
from holdfast.session.authority.policy import Looked
from holdfast.session.commands import (
    Cancel,
    DecideCalls,
    EndTurn,
    Expire,
    FailTurn,
    FinishCall,
    ProposeCalls,
    ResumeTurn,
    StartTool,
    StartTurn,
)
from holdfast.session.results import Accepted, Duplicate, OnlyAnAnswerWord
from holdfast.session.state import Call, CallStatus, Turn
from holdfast.session.view.messages import ProposedCall


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """
    The decision about one call. `may_run` is True only once its start is durable: run the call
    exactly then, exactly once.
    """

    call: CallId
    state: Literal["run", "waiting", "closed"]
    text: str = ""  # if closed: the text for the model
    outcome: str | None = None
    arguments: Any = None  # the arguments to run: a person may have edited them
    approval: ApprovalReport | None = None
    run: int = 0

    @property
    def may_run(self) -> bool:
        return self.state == "run"

    @property
    def waiting(self) -> bool:
        return self.state == "waiting"


Ended = Literal["ok", "error", "timed_out", "in_doubt"]


class ExternalTurn:
    """The value of `Service.foreign_turn`. Leaving that context without `finish` fails the turn."""

    def __init__(
        self, world: World, ledger: Ledger, home: HomeLedger, driver: Driver, turn: TurnId
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._home = home
        self._driver = driver
        self._secrecy = secrecy_of(world.secrets)
        self.turn = turn

    def _open(self) -> Turn:
        turn = self._ledger.state.turns.get(self.turn)
        if turn is None:
            raise Refused(f"turn {self.turn} is over", code="superseded", hint="begin another")
        return turn

    async def gate(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        *,
        text: str = "",
        provider_id: str | None = None,
    ) -> Gate:
        """
        Ask whether a call may run. Journal the call, the decision and, if it may run, its start.
        """
        written = arguments if isinstance(arguments, str) else written_as_json(arguments)
        if not isinstance(tool, str):
            raise Unusable(
                f"{tool!r} is no name of a tool",
                code="malformed",
                hint="name the tool that your model called",
            )
        self._open()
        hide = self._secrecy.hidden
        proposal = ProposedCall(
            hide(tool),
            hide(written),
            hide(provider_id) if isinstance(provider_id, str) else provider_id,
        )
        secret = proposal != ProposedCall(tool, written, provider_id)
        propose = ProposeCalls(
            turn=self.turn,
            calls=(proposal,),
            text=self._secrecy.hidden(text),
            policy=self._world.policy(),
        )
        calls = (await self._ledger.drive(propose)).of(propose)
        if not calls:
            self._open()  # it may have been cancelled meanwhile
            raise Refused(
                "an earlier call of this turn has no outcome yet",
                code="busy",
                hint="record it first",
            )
        call = calls[0]
        if secret:
            await self._decided(
                self._open(), Looked(call=call, problem=("secret", "its arguments hold a secret"))
            )
        return await self._pass(call)

    async def _pass(self, call_id: CallId) -> Gate:
        call = self._ledger.state.open_call(self.turn, call_id)
        if call is not None and call.status is CallStatus.PROPOSED:
            await self._decide(call)
            call = self._ledger.state.open_call(self.turn, call_id)
        if call is not None and call.status in (CallStatus.ALLOWED, CallStatus.APPROVED):
            return await self._start(call)
        return self._closed_or_waiting(call_id, call)

    async def _decide(self, call: Call) -> None:
        turn = self._open()
        await self._decided(turn, await look(self._world, self._ledger.state, turn, call))

    async def _decided(self, turn: Turn, looked: Looked) -> None:
        command = DecideCalls(
            turn=self.turn,
            looked=(looked,),
            policy=self._world.policy(),
            grants=await self._grants(turn),
        )
        asked = prompts_open(self._ledger.state)
        await self._ledger.drive(command)
        if prompts_open(self._ledger.state) != asked:
            # Notify now: the loop may run for long before it leaves.
            self._world.notifier.notify(self._ledger.session)
        await self._driver.deliver_owed()

    async def _grants(self, turn: Turn) -> tuple[Any, ...]:
        return await self._home.grants_of(turn.context.requester, self._ledger.state)

    async def _start(self, call: Call) -> Gate:
        turn = self._open()
        looked = await look(self._world, self._ledger.state, turn, call)
        epoch = self._ledger.epoch
        if epoch is None:
            raise Busy("another process drives this session", hint="wait until it is free")
        command = StartTool(
            turn=self.turn,
            looked=looked,
            policy=self._world.policy(),
            grants=await self._grants(turn),
            epoch=epoch,
        )
        run = (await self._ledger.drive(command, check=Check.FENCE)).of(command)
        if run is None:
            return self._closed_or_waiting(
                call.call, self._ledger.state.open_call(self.turn, call.call)
            )
        arguments = msgspec.json.decode(looked.arguments) if looked.arguments is not None else None
        return Gate(call=call.call, state="run", arguments=arguments, run=run)

    def _closed_or_waiting(self, call_id: CallId, call: Call | None) -> Gate:
        if call is None:
            return Gate(
                call=call_id, state="closed", outcome="cancelled", text="Not run: the turn is over."
            )
        if call.status is CallStatus.WAITING and call.approval is not None:
            report = approval_report(
                self._ledger.session, self._ledger.instance, self._open(), call.approval
            )
            return Gate(call=call_id, state="waiting", approval=report)
        return Gate(call=call_id, state="closed", outcome=call.outcome, text=call.text)

    @property
    def standing(self) -> Gate | None:
        """
        The call that a resumed turn is parked with, which `wait` waits for. None if the turn is not
        parked.
        """
        turn = self._open()
        if not turn.parked or not turn.calls:
            return None
        call = turn.calls[-1]
        report = (
            approval_report(self._ledger.session, self._ledger.instance, turn, call.approval)
            if call.approval is not None
            else None
        )
        return Gate(call=call.call, state="waiting", approval=report)

    async def wait(self, gate: Gate | None = None) -> Gate:
        """
        Wait until an approver has answered; without a gate, wait for the one that stands. Holds no
        claim meanwhile; the prompt outlives this process.

        A gate that does not wait is returned as it is.
        """
        gate = gate or self.standing
        if gate is None:
            raise Unusable(
                f"turn {self.turn} waits for nobody",
                code="malformed",
                hint="wait for a gate that says gate.waiting",
            )
        if not gate.waiting:
            return gate
        await self._driver.give_up()
        watch = self._ledger.watch()
        try:
            while True:
                watch.clear()
                await self._ledger.refresh()
                turn = self._ledger.state.turns.get(self.turn)
                if turn is None or not turn.waiting:
                    break
                await wait_for(watch)
            while turn is not None and not await self._driver.claim():
                await wait_for(watch)
                watch.clear()
        finally:
            self._ledger.unwatch(watch)
        if turn is not None and self._ledger.state.running not in (None, self.turn):
            # Another turn, left by a driver that died, runs first.
            await self._driver.run(_is_free_for(self.turn))
        if turn is not None and turn.parked and self._ledger.epoch is not None:
            await self._ledger.drive(ResumeTurn(turn=self.turn, epoch=self._ledger.epoch))
        return await self._pass(gate.call)

    async def record(self, gate: Gate, outcome: Ended, text: str) -> None:
        """
        Record once how a call that could run ended; a repetition changes nothing. A long text is
        kept whole beside the journal, with its beginning in the journal.
        """
        if not gate.may_run:
            raise Unusable(
                f"{gate.call} may not run, so nothing can have come of it",
                code="malformed",
                hint="run and record only what gate.may_run says",
            )
        if outcome not in (known := get_args(Ended)):
            raise Unusable(
                f"{outcome!r} is no way for a call to end",
                code="malformed",
                hint=f"use {', '.join(known)}",
            )
        if not isinstance(text, str):
            raise Unusable(
                f"what came of {gate.call} is no text: {text!r}"[:400],
                code="malformed",
                hint="hand in the text that your model is told",
            )
        text, output = self._secrecy.hidden(text), None
        data = text.encode(errors="replace")
        if len(data) > limits.TOOL_OUTPUT_VIEW_BYTES:
            output = await self._ledger.journal.keep_output(data[: limits.TOOL_OUTPUT_KEPT_BYTES])
            text = (
                data[: limits.TOOL_OUTPUT_VIEW_BYTES].decode(errors="ignore")
                + f"\n[of {len(data)} bytes only the beginning is shown]"
            )
        command = FinishCall(
            turn=self.turn, call=gate.call, run=gate.run, outcome=outcome, text=text, output=output
        )
        produced = self._ledger.attempt.produced("tool_outcome", msgspec.json.encode(command))
        done = await self._ledger.drive(command, check=Check.FENCE, keeping=[produced])
        if done.of(command) == "dropped":
            self._refuse_late(gate.call, outcome)

    def _refuse_late(self, call_id: CallId, outcome: Ended) -> None:
        self._open()
        known = self._ledger.state.open_call(self.turn, call_id)
        if known is None or known.outcome != outcome:
            ended = f"ended as {known.outcome}" if known is not None else "ended"
            raise Refused(
                f"{call_id} has {ended} already, and that stands",
                code="malformed",
                hint="record each call once, as it really ended",
            )

    async def finish(self, reply: str) -> TurnReport:
        if not isinstance(reply, str):
            raise Unusable(
                f"{reply!r} is no reply",
                code="malformed",
                hint="hand in the text that the person is told",
            )
        await self._ledger.drive(
            EndTurn(turn=self.turn, policy=self._world.policy(), reply=self._secrecy.hidden(reply)),
            check=Check.FENCE,
        )
        if not self.is_over:
            raise Refused(
                "a call of this turn has no outcome yet",
                code="busy",
                hint="record it or wait for its answer first, or fail the turn",
            )
        return await turn_report(self._ledger, self.turn)

    async def fail(self, code: str, message: str) -> TurnReport:
        await self._ledger.drive(
            FailTurn(
                turn=self.turn,
                code=self._secrecy.hidden(code),
                message=self._secrecy.hidden(message),
            )
        )
        return await turn_report(self._ledger, self.turn)

    @property
    def is_over(self) -> bool:
        return self.turn not in self._ledger.state.turns


class ExternalTurns:
    """One per service; it keeps no state."""

    def __init__(
        self, world: World, shelf: OpenSessions, home: HomeLedger, drives: TurnRunner
    ) -> None:
        self._world = world
        self._shelf = shelf
        self._home = home
        self._drives = drives

    @asynccontextmanager
    async def begin(
        self, session: SessionId, incoming: Incoming
    ) -> AsyncGenerator[ExternalTurn, None]:
        refuse_unfit(self._world, session, incoming)
        await ensure_session(self._world, session, by=incoming.sender)
        async with self._shelf.use(session) as ledger:
            driver = self._drives.driver(ledger)
            try:
                await self._claim_or_say_busy(ledger, driver)
                accept = accepting(self._world, ledger.state, incoming)
                accept = msgspec.structs.replace(accept, loop="foreign", model="foreign")
                try:
                    start = StartTurn(epoch=ledger.epoch or 0)
                    outcome = await ledger.drive(accept, start, check=Check.FENCE)
                except asyncio.CancelledError:
                    await finish(self._end_unseen(ledger, driver))
                    raise
                async with self._given(
                    ledger, driver, await self._begun(ledger, outcome.of(accept), outcome.of(start))
                ) as turn:
                    yield turn
            finally:
                await self._drives.leave(ledger, driver)

    @asynccontextmanager
    async def again(self, session: SessionId, turn: TurnId) -> AsyncGenerator[ExternalTurn, None]:
        """
        Resume a parked turn of a loop that left it, or died. Its authority comes from its journal;
        `wait` finds out whether it was answered meanwhile.
        """
        async with self._shelf.use(session) as ledger:
            driver = self._drives.driver(ledger)
            try:
                await self._claim_or_say_busy(ledger, driver)
                await ledger.drive(Expire(), check=Check.FENCE)
                found = ledger.state.turns.get(turn)
                if found is None or found.loop != "foreign" or not found.parked:
                    raise Refused(
                        f"{session} has no parked turn {turn} of a loop of your own",
                        code="unknown",
                        hint="it has ended, or Holdfast drives it; see follow",
                    )
                async with self._given(ledger, driver, turn) as given:
                    yield given
            finally:
                await self._drives.leave(ledger, driver)

    @asynccontextmanager
    async def _given(
        self, ledger: Ledger, driver: Driver, name: TurnId
    ) -> AsyncGenerator[ExternalTurn, None]:
        turn = ExternalTurn(self._world, ledger, self._home, driver, name)
        try:
            yield turn
        except BaseException:
            # The loop's own error is raised, and the next driver ends the turn.
            with suppress(HoldfastError):
                await finish(_end_if_left(turn, ledger))
            raise
        await _end_if_left(turn, ledger)
        if driver.owns_claim:
            await driver.deliver_owed()

    async def _end_unseen(self, ledger: Ledger, driver: Driver) -> None:
        """
        End a turn whose loop was cancelled while the turn began. The loop has no turn object to
        end. This process drives, so a running external turn is that one.
        """
        with suppress(HoldfastError):
            await ledger.refresh()
            running = ledger.state.running
            if running is not None and ledger.state.turns[running].loop == "foreign":
                await _end_if_left(
                    ExternalTurn(self._world, ledger, self._home, driver, running), ledger
                )

    async def _claim_or_say_busy(self, ledger: Ledger, driver: Driver) -> None:
        if not await driver.claim():
            raise Busy(
                f"{ledger.session} is driven by somebody else, in this process or another",
                hint="try again when its turn has ended",
            )
        await ledger.refresh()
        await driver.run(nothing_owed)

    async def _begun(
        self,
        ledger: Ledger,
        accepted: Accepted | Duplicate | OnlyAnAnswerWord,
        started: TurnId | None,
    ) -> TurnId:
        """
        Return the loop's own turn. A bare answer word begins none. If another message came first,
        that one goes first, and this one is dropped again.
        """
        if isinstance(accepted, OnlyAnAnswerWord):
            raise no_answer(accepted, await turn_report(ledger, accepted.turn))
        turn = accepted.turn
        if started != turn:
            await ledger.commit(
                Cancel(by="holdfast: another message came first", turn=turn, may_all=True)
            )
            raise Busy(
                f"{ledger.session} has another message to answer first",
                hint="try again when its turn has ended",
            )
        return turn


def _is_free_for(turn: TurnId) -> Until:
    return lambda state: state.running in (None, turn)


async def _end_if_left(turn: ExternalTurn, ledger: Ledger) -> None:
    await ledger.look()  # a cancelled step may be durable
    if not turn.is_over and not ledger.state.turns[turn.turn].parked:
        await turn.fail("loop_left", "the loop that drove this turn left it without an end")
