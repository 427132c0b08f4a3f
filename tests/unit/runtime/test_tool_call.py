"""A prepared call is released or given up, whatever happens in between."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import Unusable
from holdfast.ids import CallId, TurnId
from holdfast.runtime.drive import tool_call
from holdfast.session.authority.context import LostContext
from holdfast.session.authority.policy import BoundCall


class Waiting:
    """A launcher that waits, as far as the runtime can tell."""

    process = None
    abandoned = 0

    async def abandon(self) -> None:
        self.abandoned += 1


def test_a_prepared_call_is_abandoned_when_the_settings_become_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server tries again every half minute: each try would leave another process behind."""
    waiting = Waiting()

    async def prepared(*_: Any) -> Waiting:
        return waiting

    def policy() -> None:
        raise Unusable("holdfast.toml, line 1: no TOML", code="settings")

    async def look(*_: Any) -> BoundCall:
        return BoundCall(call=CallId("c-1"))

    async def grants_of(*_: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr(tool_call, "_prepared", prepared)
    monkeypatch.setattr(tool_call, "bind_to_tool", look)
    monkeypatch.setattr(tool_call, "tool_for", lambda *_: None)
    turn = SimpleNamespace(id=TurnId("t1"), context=LostContext("for the test"))
    state = SimpleNamespace(
        turns={turn.id: turn},
        open_call=lambda *_: SimpleNamespace(call=CallId("c-1"), tool="any"),
    )
    drive: Any = SimpleNamespace(
        world=SimpleNamespace(policy=policy),
        ledger=SimpleNamespace(state=state, drive=None),
        grants_of=grants_of,
        epoch=1,
    )
    with pytest.raises(Unusable):
        asyncio.run(tool_call.run_tool(drive, turn.id, CallId("c-1")))
    assert waiting.abandoned == 1
