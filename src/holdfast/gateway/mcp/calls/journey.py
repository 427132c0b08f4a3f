"""
The way of one call through its turn, from wherever it stands to its end.

    begun ─> gate ─┬─ ready ───> run once ─> closed ─> reply ─> the turn ends
                   ├─ waiting ─> answered, or nobody listens any more
                   └─ started elsewhere ─> closed

Several processes may take up one turn. The session's claim lets one of them act at a time, and the
start of a call is one commit: a later process finds it started or closed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.mcp.calls.flight import Flight
from holdfast.gateway.mcp.calls.outcomes import outcome_of_turn
from holdfast.gateway.mcp.calls.relayed_call import CALL, RelayedCall
from holdfast.ids import SessionId, TurnId
from holdfast.runtime.context import PROXY_AGENT
from holdfast.runtime.external_loop.first_call import FirstStart
from holdfast.runtime.external_loop.gate import Gate, LoopCall
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.state import SessionState


async def begin(
    service: Service, call: RelayedCall, equal: TurnId | None
) -> tuple[ExternalTurn, FirstStart | None]:
    """
    Take up the turn of an equal call, or begin one. A call that is allowed as it is has started by
    then, in one commit with its message. If an equal call waits in another turn by then, that one
    is taken up: its prompt is durable, since only one turn of a session runs at a time.
    """
    if equal is not None:
        try:
            return await service.loops.take_up(call.session, equal), None
        except Refused as exc:
            if exc.code != "unknown":  # else another process has ended it meanwhile
                raise

    def is_alone(state: SessionState) -> bool:
        return call.equal_among(state.turns.values(), beside=(state.running,)) is None

    incoming = Incoming(
        text=f"{call.client} calls {call.tool}",
        source=call.source,
        agent=PROXY_AGENT,
        dedup=call.key,
    )
    first = LoopCall(CALL, call.tool, call.arguments)
    turn, started = await service.loops.begin_call(call.session, incoming, first, is_alone)
    if started is not None:
        return turn, started
    async with service.live.use(call.session) as ledger:
        equal = call.equal_among(ledger.state.turns.values(), beside=(turn.turn,))
        own = ledger.state.turns.get(turn.turn)
    if equal is None or own is None or own.calls:
        return turn, None
    try:
        await turn.finish(f"The same call waits in {equal}.")
    finally:
        await turn.leave()
    # The turn that has just ended has used up the request's key.
    return await begin(service, msgspec.structs.replace(call, key=None), equal)


class Journey:
    """`forget` takes the flight out of the desk's list, `remember` puts it back."""

    def __init__(
        self,
        service: Service,
        flight: Flight,
        turn: ExternalTurn,
        *,
        forget: Callable[[], None],
        remember: Callable[[], None],
    ) -> None:
        self._service, self._flight, self._turn = service, flight, turn
        self._forget, self._remember = forget, remember

    async def go(self, call: RelayedCall | None, started: FirstStart | None) -> None:
        """Take the call to its end, or to a wait that nobody listens to."""
        gate = await self._closed(call, started)
        if gate is None:
            return
        self._flight.show(gate)
        if await self._flight.is_delivered():
            self._flight.end(here=await self._end(gate.text))

    async def _closed(self, call: RelayedCall | None, started: FirstStart | None) -> Gate | None:
        """Return the closed gate, or None if it waits and nobody listens."""
        if not self._is_over():
            try:
                gate = await self._run(call, started)
            except Refused:
                if not self._is_over():
                    raise
            else:
                if not self._is_over():
                    return gate if gate.closed else None
        # The same request again, or another process was first. The journal has the outcome.
        session, ident = SessionId(self._turn.session), TurnId(self._turn.turn)
        return await outcome_of_turn(self._service, session, ident)

    def _is_over(self) -> bool:
        return self._turn.is_over

    async def _run(self, call: RelayedCall | None, started: FirstStart | None) -> Gate:
        """Return the closed gate, or one that waits while nobody listens."""
        turn = self._turn
        if started is not None:
            self._flight.show(Gate(call=started.call, id=None, tool="", state="started"))
            gate = await turn.run(started, question_seconds=self._flight.question_seconds)
        else:
            gate = await self._gate(call)
        while not gate.closed:
            self._flight.show(gate)
            if gate.may_start:
                gate = await turn.run(gate, question_seconds=self._flight.question_seconds)
            elif not gate.waiting:
                gate = await turn.until_closed(gate)
            elif (answered := await self._answered(gate)) is None:
                return gate
            else:
                gate = answered
        return gate

    async def _end(self, reply: str) -> bool:
        """End the turn. Return False if another process ended it first."""
        if self._is_over():
            return False
        try:
            await self._turn.finish(reply)
        except Refused:
            if not self._is_over():
                raise
            return False
        return True

    async def _gate(self, call: RelayedCall | None) -> Gate:
        with suppress(Refused):  # a turn whose process died before the call was proposed
            return await self._turn.look(CALL)
        if call is None:
            raise Refused("this turn has no call", code="unknown", hint="call the tool again")
        return await self._turn.gate(call.tool, call.arguments, id=CALL)

    async def _answered(self, gate: Gate) -> Gate | None:
        """Wait for the answer while a client listens. Return None if none does any more."""
        while True:
            waiting = asyncio.ensure_future(self._turn.wait(gate))
            alone = asyncio.ensure_future(self._flight.until_alone())
            try:
                await asyncio.wait([waiting, alone], return_when=asyncio.FIRST_COMPLETED)
            finally:
                alone.cancel()
                if not waiting.done():
                    waiting.cancel()
                    await asyncio.wait([waiting])
            if not waiting.cancelled():
                return waiting.result()
            # First forget the flight, then look once more: an answer that comes later finds no
            # flight, and starts one.
            self._forget()
            found = await self._turn.look(gate)
            if found.waiting and not self._flight.has_listeners:
                return None
            self._remember()
            if not found.waiting:
                return found
