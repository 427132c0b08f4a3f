"""
The calls of clients that this process works on, each as a turn of its own.

A flight outlives the request that began it: a call that was accepted is finished and recorded even
if the client is gone. A call that waits for a person costs nothing once nobody listens: its flight
ends, its prompt stands, and the answer starts another flight.

A result that no client received keeps its turn open for a while, so the same call again gets that
result instead of a second run. The journal alone says so: a restart changes nothing.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from holdfast.errors import Busy, HoldfastError, Refused
from holdfast.gateway.mcp.calls.flight import Flight, OnWait, say_nothing
from holdfast.gateway.mcp.calls.journey import Journey, begin
from holdfast.gateway.mcp.calls.relayed_call import RelayedCall
from holdfast.gateway.mcp.clients import CHANNEL
from holdfast.gateway.workers.share import ALL, Share
from holdfast.ids import SessionId, TurnId
from holdfast.limits import MCP_OPEN_CALLS_MAX, MCP_RESULT_KEPT_SECONDS
from holdfast.runtime.context import PROXY_AGENT
from holdfast.runtime.external_loop.gate import Gate
from holdfast.runtime.service import Service
from holdfast.session.state import CallStatus

_SWEEP_SECONDS = 600.0
_log = logging.getLogger("holdfast.gateway.mcp")


class CallDesk:
    """One per process. It runs answered calls of its share of the sessions."""

    def __init__(self, service: Service, share: Share = ALL) -> None:
        self._service, self._share = service, share
        self._flights: dict[tuple[SessionId, TurnId], Flight] = {}
        # Held until a call is decided, so that an equal one finds it waiting.
        self._deciding: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = (
            WeakValueDictionary()
        )
        self._group: asyncio.TaskGroup | None = None
        self._is_stopping = False

    # --- for requests

    @asynccontextmanager
    async def call(
        self, call: RelayedCall, *, wait_seconds: float, on_wait: OnWait = say_nothing
    ) -> AsyncGenerator[tuple[Flight, Gate], None]:
        """
        Make the call, or join the equal one that waits. Yield its gate when it is closed, or when
        it has waited for a person for this long. The caller says whether its client got the reply.
        """
        lock = self._deciding.setdefault(call.sameness, asyncio.Lock())
        async with lock:
            flight = self._standing(call)
            if flight is None:
                flight = self._begun(call, await self._equal_call(call), wait_seconds)
            flight.join()
            try:
                await flight.until_decided()
            except BaseException:
                flight.part()
                raise
        try:
            yield flight, await flight.until_settled(wait_seconds, on_wait)
        finally:
            flight.part()

    def _standing(self, call: RelayedCall) -> Flight | None:
        """Find the flight of an equal call that waits, or that its client has left."""
        for flight in self._flights.values():
            if flight.sameness == call.sameness and (flight.is_waiting or flight.is_forsaken):
                return flight
        return None

    async def _equal_call(self, call: RelayedCall) -> TurnId | None:
        if await self._service.live.current(call.session) is None:
            return None
        async with self._service.live.use(call.session) as ledger:
            await ledger.catch_up_if_behind()
            turns = ledger.state.turns
            beside = [turn for session, turn in self._flights if session == call.session]
            equal = call.equal_among(turns.values(), beside=beside)
        if equal is None and len(turns) >= MCP_OPEN_CALLS_MAX:
            raise Refused(
                f"{len(turns)} calls of this client wait already",
                code="too_many",
                hint="wait until some were answered",
            )
        return equal

    def _begun(self, call: RelayedCall, turn: TurnId | None, wait_seconds: float) -> Flight:
        if self._group is None or self._is_stopping:
            raise Busy("the server is stopping", hint="try again when it runs again")
        flight = Flight(call.sameness, wait_seconds)
        flight.task = self._group.create_task(self._fly(flight, call.session, turn, call))
        return flight

    # --- for answers

    async def run(self) -> None:
        """Run calls that are answered while no client listens, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            sweeping = group.create_task(self._sweep_often())
            try:
                async for loop in self._service.loops.ready():
                    if loop.agent == PROXY_AGENT and self._is_ours(loop.session):
                        await self._resume(loop.session, loop.turn)
            finally:
                self._group = None
                sweeping.cancel()

    def _is_ours(self, session: SessionId) -> bool:
        return session.startswith(f"{CHANNEL}/") and self._share.has(session)

    async def _resume(self, session: SessionId, turn: TurnId) -> None:
        """Go on with a turn that was answered. A result that waits for its client stays."""
        if (session, turn) in self._flights or self._is_stopping:
            return
        try:
            async with self._service.live.use(session) as ledger:
                found = ledger.state.turns.get(turn)
                call = found.calls[0] if found is not None and found.calls else None
        except HoldfastError as exc:
            _log.warning("%s: an answered call can't be read: %s", session, exc.message)
            return
        if self._group is None or call is None or call.status is CallStatus.FINISHED:
            return
        flight = Flight((session, call.tool, call.made))
        flight.task = self._group.create_task(self._fly(flight, session, turn, None))

    async def _fly(
        self, flight: Flight, session: SessionId, turn: TurnId | None, call: RelayedCall | None
    ) -> None:
        try:
            if call is not None:
                taken, started = await begin(self._service, call, turn)
            else:
                started = None
                taken = await self._service.loops.take_up(session, turn or TurnId(""))
            place = (session, taken.turn)

            def remember() -> None:
                self._flights[place] = flight

            def forget() -> None:
                if self._flights.get(place) is flight:
                    del self._flights[place]

            remember()
            try:
                journey = Journey(self._service, flight, taken, forget=forget, remember=remember)
                await journey.go(call, started)
            finally:
                forget()
                await taken.leave()
        except HoldfastError as exc:
            flight.fail(exc)
            if call is None:
                _log.warning("%s: an answered call was not run on: %s", session, exc.message)
        except OSError as exc:
            flight.fail(Busy(f"the system refused: {exc.strerror}", hint="try again"))
        except asyncio.CancelledError:
            flight.fail(Busy("the server is stopping", hint="try again when it runs again"))
            raise

    # --- results that nobody came for

    async def _sweep_often(self) -> None:
        while True:
            try:
                for session, _, _ in await self._service.live.heads():
                    if self._is_ours(session):
                        await self._sweep(session)
            except HoldfastError as exc:
                _log.warning("results that nobody came for are kept longer: %s", exc.message)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _sweep(self, session: SessionId) -> None:
        row = await self._service.live.row(session)
        if row is not None and row.phase == "idle":
            return
        async with self._service.live.use(session) as ledger:
            await ledger.catch_up_if_behind()
            before = self._service.live.now_ms() - MCP_RESULT_KEPT_SECONDS * 1000
            old = [
                turn.id
                for turn in ledger.state.turns.values()
                if turn.agent == PROXY_AGENT and turn.is_left and turn.parked_at < before
                if all(call.status is CallStatus.FINISHED for call in turn.calls)
                if (session, turn.id) not in self._flights
            ]
        for turn in old:
            await self._end(session, turn, "No client came for the result.")

    async def collected(self, session: SessionId, turn: TurnId) -> None:
        """End the turn of a result that its person has now. Nothing happens if it has ended."""
        async with self._service.live.use(session) as ledger:
            found = ledger.state.turns.get(turn)
            if found is None or not found.is_left or (session, turn) in self._flights:
                return
        await self._end(session, turn, "The result was asked for.")

    async def _end(self, session: SessionId, turn: TurnId, reply: str) -> None:
        taken = await self._service.loops.take_up(session, turn)
        try:
            await taken.finish(reply)
        finally:
            await taken.leave()

    # --- the end

    async def stop(self, grace_seconds: float) -> None:
        """Begin nothing new. Let running tools end, within bounds; prompts stand."""
        self._is_stopping = True
        flights = list(self._flights.values())
        for flight in flights:
            flight.let_go()
        running = [each.task for each in flights if each.task is not None and not each.is_waiting]
        if running:
            _, late = await asyncio.wait(running, timeout=grace_seconds)
            for task in late:
                task.cancel()
