"""The verbs of a home for programs that drive turns with their own loop."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from os import PathLike

from holdfast.argument_checks import (
    check_source,
    check_workspace,
    plain_text,
    plain_texts,
    texts,
)
from holdfast.errors import HoldfastError
from holdfast.home.opened import OpenedHome, verb
from holdfast.ids import TurnId
from holdfast.runtime.external_loop.answered import OpenLoop
from holdfast.runtime.external_loop.calls import CallReport
from holdfast.runtime.external_loop.items import Items
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.runtime.streams.in_flight import Follower
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.context import MessageSource


class HomeLoops(OpenedHome):
    """Turns that your own loop drives, and the history that a framework keeps."""

    @asynccontextmanager
    async def turn(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        dedup: str | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: bool = True,
    ) -> AsyncGenerator[ExternalTurn, None]:
        """
        A turn driven by your own loop: see `ExternalTurn`. The same message again, with the same
        `dedup`, takes up the same turn wherever it stands.

        While another message of the session is driven, this one waits in the queue; with `wait`
        False it is refused as `Busy` instead. Leaving the block without `finish` or `fail` leaves
        the turn for a loop to take up.
        """
        with self._in_flight.verb():
            turn = await self._begin(session, text, source, agent, dedup, workspace, wait=wait)
            async with _leaving(turn):
                yield turn

    @verb
    async def begin(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        dedup: str | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: bool = True,
    ) -> ExternalTurn:
        """
        Like `turn`, without a block, for frameworks that call hooks: end with `await turn.leave()`.
        """
        turn = await self._begin(session, text, source, agent, dedup, workspace, wait=wait)
        self._begun.append(turn)
        return turn

    async def _begin(
        self,
        session: str,
        text: str,
        source: MessageSource | None,
        agent: str | None,
        dedup: str | None,
        workspace: str | PathLike[str] | None,
        *,
        wait: bool,
    ) -> ExternalTurn:
        texts({"session": session, "text": text}, {"agent": agent, "dedup": dedup})
        incoming = Incoming(
            source=None if source is None else check_source(source),
            workspace=check_workspace(workspace),
            **plain_texts({"text": text, "agent": agent, "dedup": dedup}),
        )
        return await self.service.loops.begin(plain_text(session), incoming, wait=wait)

    @asynccontextmanager
    async def take_up(
        self, session: str, turn: str, *, wait: bool = True
    ) -> AsyncGenerator[ExternalTurn, None]:
        """
        Take up an open turn of your own loop by its id, wherever the loop left it or died.
        """
        texts({"session": session, "turn": turn}, {})
        with self._in_flight.verb():
            taken = await self.service.loops.take_up(session, TurnId(turn), wait=wait)
            async with _leaving(taken):
                yield taken

    def answered(self) -> Follower[OpenLoop]:
        """
        Yield the turns of your own loops that can go on: their prompts are answered, or their loop
        left. Take each up with `home.take_up`. Ends when the home is closed.
        """
        return self._in_flight.follow(self.service.loops.ready())

    @verb
    async def calls(self, session: str, turn: str | None = None) -> tuple[CallReport, ...]:
        """The calls of a session, or of one turn of it, with their outcomes, oldest first."""
        texts({"session": session}, {"turn": turn})
        return await self.service.loops.calls(session, TurnId(turn) if turn else None)

    def items(self, session: str, *, adapter: str) -> Items:
        """
        The history that a framework keeps in a session: opaque items with `add`, `list`, `remove`
        and `clear`. `adapter` is a name with a version, such as "langchain/1".
        """
        texts({"session": session, "adapter": adapter}, {})
        return self.service.loops.items(session, adapter)


@asynccontextmanager
async def _leaving(turn: ExternalTurn) -> AsyncGenerator[None, None]:
    """Leave the turn on every way out. The loop's own error is raised, not one of leaving."""
    try:
        yield
    except BaseException:
        with suppress(HoldfastError):
            await turn.leave()
        raise
    await turn.leave()
