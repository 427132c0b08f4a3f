"""The conversation of an agent of Microsoft Agent Framework, in the journal."""

import json
from collections.abc import Sequence
from typing import Any

from agent_framework import HistoryProvider, Message

import holdfast
from holdfast.integrations.gated_tools import current_turn

ADAPTER = "agent-framework/1"


class HoldfastHistory(HistoryProvider):
    """
    The conversation of an agent in the journal, in the session of the current turn. The messages of
    a turn are kept once, when nothing of it waits.
    """

    def __init__(self, home: holdfast.Home) -> None:
        super().__init__("holdfast")
        self._home = home

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        del session_id, state, kwargs
        turn = current_turn()
        items = await self._home.items(turn.session, adapter=ADAPTER).list()
        return [
            Message.from_dict(each)
            for item in items
            if item.key != turn.turn
            for each in json.loads(item.blob)
        ]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        del session_id, state, kwargs
        turn = current_turn()
        items = self._home.items(turn.session, adapter=ADAPTER)
        if await turn.gates() or await items.list(turn.turn):
            return
        written = [each.to_dict() for each in messages]
        await items.add(json.dumps(written, ensure_ascii=False, default=str), key=turn.turn)
