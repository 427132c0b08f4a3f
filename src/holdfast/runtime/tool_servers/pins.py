"""
The pins of the home's journal, and the withdrawal of a tool.

A withdrawal is one commit to the home's journal: the tool and its grants go together. The open
prompts stand in other journals, so they are closed afterwards, one session at a time. A crash
between the two runs nothing: a call of a withdrawn tool cannot be bound. The next drive of such a
session closes its prompts.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from holdfast.errors import HoldfastError
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Check
from holdfast.ports.tool_servers import ServerFound
from holdfast.runtime.context import World
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.session.commands import VoidPrompts
from holdfast.session.home.authority import withdrawing
from holdfast.session.home.events import AnyHomeEvent, HomeState, ToolPinned
from holdfast.session.state import SessionState

_log = logging.getLogger("holdfast.mcp")

BY_HOLDFAST = "holdfast"  # found by a comparison, decided by no person
REASON = "the tool was withdrawn, because its definition is not the one that was pinned"


class HomePins:
    """The pins of one open home."""

    def __init__(self, world: World, home: HomeLedger, sessions: OpenSessions) -> None:
        self._world, self._home, self._sessions = world, home, sessions

    def pins(self) -> Mapping[str, ToolPinned]:
        return self._home.state.pins

    async def refresh(self) -> Mapping[str, ToolPinned]:
        return (await self._home.refresh()).pins

    async def compare(self, found: ServerFound) -> Mapping[str, ToolPinned]:
        """Withdraw what is gone or differs. A server that could not be asked proves nothing."""
        if found.problem:
            return await self.refresh()
        now = {each.name: each.digest for each in found.tools}

        def missing(state: HomeState) -> Mapping[str, str | None]:
            pins = state.pins.values()
            return {e.name: None for e in pins if e.server == found.server and e.name not in now}

        def different(state: HomeState) -> Mapping[str, str | None]:
            pins = [each for each in state.pins.values() if each.name in now]
            return {each.name: now[each.name] for each in pins if each.digest != now[each.name]}

        state = await self._home.refresh()
        if not missing(state) and not different(state):  # as it nearly always is
            return state.pins
        gone = await self._withdraw(missing, by=BY_HOLDFAST, reason="removed")
        changed = await self._withdraw(different, by=BY_HOLDFAST, reason="changed")
        if gone or changed:
            _log.warning(
                "the server %s no longer defines as pinned: %s",
                found.server,
                ", ".join((*gone, *changed)),
            )
            await self.void_prompts((*gone, *changed))
        return self.pins()

    def is_doubted(self, server: str) -> bool:
        return any(
            pin.server == server and withdrawn.reason == "changed"
            for pin, withdrawn in self._home.state.withdrawn.values()
        )

    async def unpin(self, names: Sequence[str], *, by: str) -> Sequence[str]:
        """Withdraw these tools. Return those that were pinned."""
        gone = await self._withdraw(
            lambda state: dict.fromkeys(name for name in names if name in state.pins),
            by=by,
            reason="unpinned",
        )
        await self.void_prompts(gone)
        return gone

    async def pin(self, pins: Sequence[ToolPinned]) -> None:
        """
        Pin these tools. Grants and prompts of an earlier pin of another digest end with it.
        """
        other = {
            each.name: each.digest
            for each in pins
            if (known := (await self.refresh()).get(each.name)) is not None
            and known.digest != each.digest
        }
        gone = await self._withdraw(lambda _: other, by=BY_HOLDFAST, reason="changed")
        await self._home.append(*pins)
        await self.void_prompts(gone)

    async def _withdraw(
        self, which: Callable[[HomeState], Mapping[str, str | None]], *, by: str, reason: str
    ) -> Sequence[str]:
        """Withdraw the tools that `which` names under the lock. Return their names."""
        if not which(await self._home.refresh()):
            return ()
        gone: list[str] = []

        def decide(state: HomeState) -> Sequence[AnyHomeEvent]:
            tools = which(state)
            gone[:] = [name for name in tools if name in state.pins]
            return withdrawing(state, tools, by=by, reason=reason)

        await self._home.append_decided(decide)
        return tuple(gone)

    # --- prompts

    async def void_prompts(self, tools: Sequence[str]) -> None:
        """Close the open prompts of these tools in every session that has any."""
        if not tools:
            return
        rows = [row async for row in self._world.index.rows(only_waiting=True)]
        for row in rows:
            try:
                await self._void_in(row.session, tools)
            except HoldfastError as exc:
                # Its prompts allow nothing. The session's next drive closes them.
                _log.warning(
                    "%s: a withdrawn tool's prompt stays open (%s): %s",
                    row.session,
                    exc.code,
                    exc.message,
                )

    async def _void_in(self, session: SessionId, tools: Sequence[str]) -> None:
        async with self._sessions.use(session) as ledger:
            await ledger.catch_up_if_behind()
            await void_in(ledger, tools)

    async def settle(self, ledger: Ledger) -> None:
        """
        Close the prompts of this session whose tool was withdrawn. Costs nothing where no prompt of
        a server's tool is open.
        """
        if not any(_is_served(name) for name in _asked(ledger.state)):
            return
        withdrawn = (await self._home.refresh()).withdrawn
        await void_in(ledger, [name for name in _asked(ledger.state) if name in withdrawn])


async def void_in(ledger: Ledger, tools: Sequence[str]) -> None:
    asked = [name for name in _asked(ledger.state) if name in tools]
    if asked:
        await ledger.commit(VoidPrompts(tools=tuple(asked), reason=REASON), check=Check.FENCE)


def _asked(state: SessionState) -> set[str]:
    return {call.tool for turn in state.turns.values() for call in turn.waiting}


def _is_served(tool: str) -> bool:
    return "." in tool
