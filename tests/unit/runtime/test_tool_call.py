"""What is got ready for a call is let go or given up, whatever happens in between."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import Unusable
from holdfast.ids import CallId, TurnId
from holdfast.runtime.drive import tool_call
from holdfast.session.authority.context import LostContext
from holdfast.session.authority.policy import Looked


class Waiting:
    """A launcher that waits, as far as the runtime can tell."""

    process = None
    abandoned = 0

    async def abandon(self) -> None:
        self.abandoned += 1


def test_what_is_ready_is_given_up_when_the_settings_can_not_be_read_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server tries again every half minute: each try would leave another process behind."""
    waiting = Waiting()

    async def prepared(*_: Any) -> Waiting:
        return waiting

    def policy() -> None:
        raise Unusable("holdfast.toml, line 1: no TOML", code="settings")

    async def look(*_: Any) -> Looked:
        return Looked(call=CallId("c-1"))

    async def grants_of(*_: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr(tool_call, "_prepared", prepared)
    monkeypatch.setattr(tool_call, "look", look)
    turn = SimpleNamespace(turn=TurnId("t1"), context=LostContext("for the test"))
    state = SimpleNamespace(
        turns={turn.turn: turn}, open_call=lambda *_: SimpleNamespace(call=CallId("c-1"))
    )
    world: Any = SimpleNamespace(policy=policy)
    ledger: Any = SimpleNamespace(state=state, drive=None)
    home: Any = SimpleNamespace(grants_of=grants_of)
    none: Any = None
    with pytest.raises(Unusable):
        asyncio.run(tool_call.run_tool(world, ledger, home, none, turn.turn, CallId("c-1"), 1))
    assert waiting.abandoned == 1
