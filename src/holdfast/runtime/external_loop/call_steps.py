"""
Run a call of an external turn: a durable start, the run by the loop, and the record of its outcome.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args

import msgspec

from holdfast import limits
from holdfast.errors import (
    Busy,
    HoldfastError,
    NotSaved,
    Refused,
    Unusable,
    describe_error,
    error_words,
)
from holdfast.ids import CallId
from holdfast.ports.journal_store import Check
from holdfast.runtime.cancellation import finish
from holdfast.runtime.drive.bound_call import bind_call
from holdfast.runtime.external_loop.blobs import pack
from holdfast.runtime.external_loop.gate import Ended, Gate
from holdfast.runtime.external_loop.proposals import loop_text, result_from
from holdfast.runtime.external_loop.steps import LoopSteps
from holdfast.runtime.ledger.outputs import keep_if_possible
from holdfast.session.authority.policy import BoundCall
from holdfast.session.commands import DropCall, FinishCall, StartTool
from holdfast.session.events import Blob
from holdfast.session.state import Call, Turn
from holdfast.session.view.surrogates import plain

Run = Callable[[Any], Any]
STOPPED = (
    "In doubt: it was stopped while it ran. It may or may not have happened; check before trying"
    " again."
)


class CallSteps(LoopSteps):
    """The calls of an external turn. See `ExternalTurn`."""

    async def start(self, gate: Gate) -> Gate:
        """
        Make the start of a ready call durable, after a last check. If the returned gate says
        `may_run`, run the call now, once, with `gate.arguments`, and record its outcome.
        """
        self._loop.check()
        if not isinstance(gate, Gate):
            raise Unusable(f"{gate!r} is not a gate", code="malformed", hint="hand in a gate")
        if gate.may_run:
            raise Unusable(
                f"{gate.call} was started already", code="malformed", hint="run it, and record it"
            )
        async with self._driving():
            turn, call = self._find(gate)
            if not self._is_startable(turn, call):
                return await self._gate(gate.call)
            return await self._started(turn, call)

    async def _start_command(self, turn: Turn, bound: BoundCall) -> StartTool:
        epoch = self._ledger.attempt.epoch
        if epoch is None:
            raise Busy("another process drives this session", hint="wait until it is free")
        return StartTool(
            turn=self.turn,
            bound=bound,
            policy=self._world.policy(),
            grants=await self._grants(turn),
            epoch=epoch,
        )

    async def _started(self, turn: Turn, call: Call) -> Gate:
        bound = await bind_call(self._world, self._ledger.state, turn, call)
        command = await self._start_command(turn, bound)
        run = (await self._drive(command, check=Check.FENCE)).of(command)
        if run is None:
            await self._driver.deliver_owed()
            return await self._gate(call.call)
        arguments = msgspec.json.decode(bound.arguments) if bound.arguments is not None else None
        return Gate(
            call=call.call,
            id=self._own_id(call),
            tool=call.tool,
            state="run",
            arguments=arguments,
            run=run,
        )

    async def call(
        self,
        gate: Gate,
        run: Run,
        *,
        timeout_seconds: float | None = None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> Gate:
        """
        Start a ready call durably, run it, and record its outcome. Return its closed gate.

        `run` takes the arguments and returns text, a `LoopResult`, or a value that is written as
        JSON. An exception is recorded as `error`, a TimeoutError as `timed_out`, a cancellation as
        `in_doubt`, and then raised. `pauses` are exceptions by which a framework leaves a call in
        order to come back to it.

        A gate that is not ready is returned as it stands, and nothing runs.
        """
        if not gate.may_start:
            return gate
        started = await self.start(gate)
        if not started.may_run:
            return started
        try:
            async with asyncio.timeout(timeout_seconds):
                value = run(started.arguments)
                if inspect.isawaitable(value):
                    value = await value
        except pauses:
            raise
        except TimeoutError as exc:
            words = f"no result in time: {error_words(exc)}".strip(": ")
            await finish(self.record(started, "timed_out", words))
            raise
        except Exception as exc:
            await finish(self.record(started, "error", describe_error(exc)))
            raise
        except BaseException:
            # Cancelled, or the program is being stopped: it may or may not have happened.
            with suppress(HoldfastError):
                await finish(self.record(started, "in_doubt", STOPPED))
            raise
        await self._record_result(started, value)
        return await self._gate(started.call)

    async def _record_result(self, started: Gate, value: Any) -> None:
        try:
            result = result_from(value)
        except Exception as exc:
            words = f"it ran, but its result can't be recorded ({describe_error(exc)})"
            await finish(self.record(started, "error", words))
            raise
        await finish(
            self.record(started, "ok", result.text, blob=result.blob, adapter=result.adapter)
        )

    async def drop(self, gate: Gate, reason: str) -> Gate:
        """
        Say that the loop will not run a call that has not started. Its prompt is closed, and its
        gate is closed as cancelled.
        """
        self._loop.check()
        hidden = self._secrecy.hidden(loop_text(reason, "reason"))
        async with self._driving():
            self._find(gate)
            command = DropCall(turn=self.turn, call=gate.call, reason=hidden)
            await self._ledger.drive(command, check=Check.FENCE)
            await self._driver.deliver_owed()
            return await self._gate(gate.call)

    async def record(
        self,
        gate: Gate,
        outcome: Ended,
        text: str,
        *,
        blob: bytes | str | None = None,
        adapter: str | None = None,
    ) -> None:
        """
        Record once how a call that could run ended; a repetition changes nothing. A long text is
        kept whole beside the journal, with its beginning in the journal. `blob` is the result as
        the framework has it; a replay of the call gets it back.
        """
        if not isinstance(gate, Gate) or not gate.may_run:
            raise Unusable(
                f"{gate.call if isinstance(gate, Gate) else gate!r} was not started, so it has no "
                "outcome",
                code="malformed",
                hint="start it with turn.start, and run and record it if gate.may_run says so",
            )
        if outcome not in (known := get_args(Ended)):
            raise Unusable(
                f"{outcome!r} is not a way for a call to end",
                code="malformed",
                hint=f"use {', '.join(known)}",
            )
        if not isinstance(text, str):
            raise Unusable(
                f"the outcome of {gate.call} is not a text: {text!r}"[:400],
                code="malformed",
                hint="hand in the text that your model reads",
            )
        self._loop.check()
        text, output = await self._kept_text(self._secrecy.hidden(plain(text)))
        packed = await self._packed_result(blob, adapter)
        command = FinishCall(
            turn=self.turn,
            call=gate.call,
            run=gate.run,
            outcome=outcome,
            text=text,
            output=output,
            result=packed,
        )
        async with self._driving():
            produced = self._ledger.attempt.produced("tool_outcome", msgspec.json.encode(command))
            done = await self._ledger.drive(command, check=Check.FENCE, keeping=[produced])
            if done.of(command) == "dropped":
                self._refuse_late(gate.call, outcome)

    async def _kept_text(self, text: str) -> tuple[str, str | None]:
        data = text.encode()
        if len(data) <= limits.TOOL_OUTPUT_VIEW_BYTES:
            return text, None
        shown = data[: limits.TOOL_OUTPUT_VIEW_BYTES].decode(errors="ignore")
        output, text = await keep_if_possible(
            self._ledger,
            data[: limits.TOOL_OUTPUT_KEPT_BYTES],
            f"{shown}\n[of {len(data)} bytes only the beginning is shown]",
        )
        return text, output

    async def _packed_result(self, blob: bytes | str | None, adapter: str | None) -> Blob | None:
        """
        A result that can't be kept must not lose the call's outcome, which is a fact by now: it
        holds a secret, is too large, or finds no room on the disk. The text, with secrets hidden,
        stands in for it.
        """
        if blob is None:
            return None
        try:
            return await pack(self._world, self._ledger, blob, adapter)
        except (NotSaved, Refused):
            return None

    def _refuse_late(self, call_id: CallId, outcome: Ended) -> None:
        turn = self._open()
        known = next((e for e in (*turn.calls, *turn.past) if e.call == call_id), None)
        if known is None or known.outcome != outcome:
            ended = f"ended as {known.outcome}" if known is not None else "ended"
            raise Refused(
                f"{call_id} has {ended} already, and that does not change",
                code="malformed",
                hint="record each call once, as it really ended",
            )
