"""
The common part of the steps of an external turn: holding the claim, resuming a parked turn, finding
a call and its gate.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from holdfast.errors import Refused
from holdfast.ids import CallId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.runtime.cancellation import wait_for
from holdfast.runtime.drive.driver import Driver
from holdfast.runtime.external_loop.blobs import pack, unpack
from holdfast.runtime.external_loop.gate import Gate
from holdfast.runtime.reports.types import approval_report, arguments_of
from holdfast.runtime.streams.in_flight import SameEventLoop
from holdfast.secrecy import secrecy_of
from holdfast.session.commands import LeaveLoop, ResumeTurn, SessionCommand
from holdfast.session.events import Blob
from holdfast.session.state import Call, CallStatus, SessionState, Turn

S = CallStatus


class LoopSteps:
    """The parts that every step of an external turn needs. See `ExternalTurn`."""

    def __init__(
        self,
        driver: Driver,
        turn: TurnId,
        *,
        close: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._driver = driver
        self._world = driver.runtime.world
        self._ledger = driver.ledger
        self._home = driver.runtime.home
        self._close = close
        self._secrecy = secrecy_of(self._world.secrets)
        self._loop = SameEventLoop()
        # One step at a time: a step is a commit, and calls run outside of it.
        self._step = asyncio.Lock()
        self._left = False
        # For a nested agent: the call that runs it, and the agents from the turn's own one down.
        self._parent: CallId | None = None
        self._path: tuple[str, ...] = ()
        self._prefix = ""
        self.turn = turn

    @property
    def is_over(self) -> bool:
        return self.turn not in self._ledger.state.turns

    def _open(self) -> Turn:
        self._loop.check()
        turn = self._ledger.state.turns.get(self.turn)
        if turn is None:
            raise Refused(f"turn {self.turn} is over", code="superseded", hint="begin another")
        return turn

    def _find(self, gate: Gate) -> tuple[Turn, Call]:
        turn = self._open()
        for each in (*turn.calls, *turn.past):
            if each.call == gate.call:
                return turn, each
        raise Refused(
            f"{gate.call} is not a call of turn {self.turn}",
            code="unknown",
            hint="hand a gate to the turn that gave it",
        )

    async def _gate(self, call_id: CallId) -> Gate:
        turn = self._ledger.state.turns.get(self.turn)
        calls = (*turn.calls, *turn.past) if turn is not None else ()
        found = next((each for each in calls if each.call == call_id), None)
        if turn is None or found is None:
            return Gate(
                call=call_id,
                id=None,
                tool="",
                state="closed",
                outcome="cancelled",
                text="Not run: the turn is over.",
            )
        gate = Gate(
            call=call_id,
            id=self._own_id(found),
            tool=found.tool,
            state="started",
            arguments=arguments_of(found.arguments if found.arguments is not None else found.made),
        )
        replace = msgspec.structs.replace
        if found.status is S.FINISHED:
            result = await unpack(self._ledger, found.result) if found.result is not None else None
            return replace(
                gate,
                state="closed",
                outcome=found.outcome,
                text=found.text,
                code=found.code,
                result=result,
            )
        if self._is_startable(turn, found):
            return replace(gate, state="ready")
        if found.status is S.STARTED:
            return gate
        report = (
            approval_report(self._ledger.session, self._ledger.instance, turn, found.approval)
            if found.approval is not None
            else None
        )
        return replace(gate, state="waiting", approval=report)

    def _is_startable(self, turn: Turn, call: Call) -> bool:
        if call.status in (S.ALLOWED, S.APPROVED):
            return not call.owes_result
        # A loop that died had started it. It declared that it may run again.
        again = call.status is S.STARTED and call.contract != "once"
        return again and call.epoch < turn.epoch

    def _own_id(self, call: Call) -> str | None:
        if call.provider_id is None:
            return None
        return call.provider_id.removeprefix(self._prefix)

    async def _packed(self, blob: bytes | str, adapter: str | None) -> Blob:
        self._loop.check()
        return await pack(self._world, self._ledger, blob, adapter)

    async def _grants(self, turn: Turn) -> tuple[Any, ...]:
        return await self._home.grants_of(turn.context.requester, self._ledger.state)

    # --- driving

    @asynccontextmanager
    async def _driving(self) -> AsyncGenerator[None, None]:
        """Hold the session's claim for one step. It is claimed again after a wait."""
        async with self._step:
            if self._left:
                raise Refused(
                    f"turn {self.turn} was left", code="left", hint="take it up again: home.turn"
                )
            if not self._driver.owns_claim:
                await self._claim_again()
            yield

    async def _claim_again(self) -> None:
        watch = self._ledger.watch()
        try:
            while not await self._driver.claim():
                await wait_for(watch)
                watch.clear()
        finally:
            self._ledger.unwatch(watch)
        await self._ledger.catch_up()
        if self._ledger.state.running not in (None, self.turn):
            # Another turn, left by a driver that died, runs first.
            await self._driver.run(self._is_free)

    def _is_free(self, state: SessionState) -> bool:
        return state.running in (None, self.turn)

    async def _drive(self, *commands: SessionCommand, check: Check) -> Any:
        """Commit, after resuming the turn if it is parked."""
        turn, epoch = self._open(), self._ledger.attempt.epoch
        resume = (
            (ResumeTurn(turn=self.turn, epoch=epoch),) if turn.parked and epoch is not None else ()
        )
        return await self._ledger.drive(*resume, *commands, check=check)

    async def _leave(self) -> None:
        async with self._step:
            if not self._driver.owns_claim:
                return
            await self._ledger.catch_up_if_behind()  # a cancelled step may be durable
            if not self.is_over:
                await self._ledger.drive(LeaveLoop(turn=self.turn))
            await self._driver.deliver_owed()
