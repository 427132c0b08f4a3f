"""Turns that a caller's own loop drives: begin one, take one up, and the history beside it."""

from collections.abc import AsyncGenerator

from holdfast.ids import TurnId, session_id
from holdfast.runtime.cancellation import finish
from holdfast.runtime.external_loop.answered import OpenLoop, open_loops
from holdfast.runtime.external_loop.calls import CallReport, calls_of
from holdfast.runtime.external_loop.first_call import FirstCall, FirstStart, StillWanted
from holdfast.runtime.external_loop.gate import LoopCall
from holdfast.runtime.external_loop.items import Items
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.runtime.external_loop.turns import ExternalTurns
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.verbs.accept import Incoming


class LoopVerbs:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._turns = ExternalTurns(runtime)

    async def begin(self, session: str, incoming: Incoming, *, wait: bool = True) -> ExternalTurn:
        """
        Begin a turn that the caller's own loop drives, or take up the turn of the same message. The
        caller leaves it.
        """
        return await self._turns.begin(session_id(session), incoming, wait=wait)

    async def begin_call(
        self, session: str, incoming: Incoming, call: LoopCall, is_wanted: StillWanted
    ) -> tuple[ExternalTurn, FirstStart | None]:
        """
        Like `begin`, and make this call in the same commit if it is allowed as it is. Hand a
        started call to `turn.run`; without one, go on as after `begin`.
        """
        first = FirstCall(self._runtime.world, self._runtime.home, call, is_wanted)
        try:
            turn = await self._turns.begin(session_id(session), incoming, wait=True, first=first)
        finally:
            await finish(first.abandon_unstarted())
        return turn, first.started()

    async def take_up(self, session: str, turn: TurnId, *, wait: bool = True) -> ExternalTurn:
        """Take up an open turn of an external loop by its id. The caller leaves it."""
        return await self._turns.again(session_id(session), turn, wait=wait)

    def ready(self) -> AsyncGenerator[OpenLoop, None]:
        """Yield external turns that can go on, as they come, without end."""
        return open_loops(self._runtime.world, self._runtime.sessions)

    async def calls(self, session: str, turn: TurnId | None = None) -> tuple[CallReport, ...]:
        """The calls of a session, or of one turn, with their outcomes, from its journal."""
        async with self._runtime.sessions.use(session_id(session)) as ledger:
            await ledger.catch_up_if_behind()
            return await calls_of(ledger, turn)

    def items(self, session: str, adapter: str) -> Items:
        """The history that a framework keeps in a session."""
        return Items(self._runtime.world, self._runtime.sessions, session_id(session), adapter)
