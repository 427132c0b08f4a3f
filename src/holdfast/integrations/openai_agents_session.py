"""
A session of the OpenAI Agents SDK in the journal: its items have the mac, the fence and the backup
of everything else, and an item that holds a known secret is refused.

Removing an item adds a record. An item of a turn has the turn as its key, so that a turn which is
taken up again can drop the items that its run will write again.
"""

import json
from typing import Any

from agents.memory import SessionABC, SessionSettings
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

import holdfast
from holdfast.integrations.gated_tools import turn_or_none
from holdfast.integrations.session_names import session_named

ADAPTER = "openai-agents/1"


class HoldfastSession(SessionABC):
    """The conversation of one session. An id that can't be a session's name has its own session."""

    def __init__(
        self,
        home: holdfast.Home,
        session_id: str,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        name = session_named(session_id, family="openai-agents")
        self._items = home.items(name, adapter=ADAPTER)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest `limit` items, oldest first; without a limit, all of them."""
        found = [json.loads(each.blob) for each in await self._items.list()]
        return self._newest(found, limit)

    def _newest(self, items: list[Any], limit: int | None) -> list[Any]:
        most = resolve_session_limit(limit, self.session_settings)
        if most is None or most < 0:
            return items
        return items[-most:] if most else []

    async def add_items(self, items: list[Any]) -> None:
        """Add items in one commit."""
        turn = turn_or_none()
        key = turn.turn if turn is not None else ""
        if items:
            await self._items.add_all([(key, json.dumps(each)) for each in items])

    async def pop_item(self) -> Any | None:
        """Remove and return the newest item."""
        found = await self._items.list()
        if not found:
            return None
        await self._items.remove([found[-1].seq])
        return json.loads(found[-1].blob)

    async def clear_session(self) -> None:
        await self._items.clear()

    async def position(self) -> int:
        """The number of the newest item's record, or 0."""
        keys = await self._items.keys()
        return keys[-1][0] if keys else 0

    async def rewind(self, turn: str, position: int) -> bool:
        """Remove the items that a turn added after a position. Return whether it has others."""
        mine = [seq for seq, key in await self._items.keys() if key == turn]
        await self._items.remove([seq for seq in mine if seq > position])
        return any(seq <= position for seq in mine)


class TurnSession(HoldfastSession):
    """
    The conversation during a run under Holdfast. New items are written in one commit when the run
    pauses or ends. A run that dies before that is replayed, and makes them again.
    """

    def __init__(self, home: holdfast.Home, session_id: str) -> None:
        super().__init__(home, session_id)
        self._new: list[Any] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return self._newest([*await super().get_items(-1), *self._new], limit)

    async def add_items(self, items: list[Any]) -> None:
        self._new.extend(items)

    async def pop_item(self) -> Any | None:
        return self._new.pop() if self._new else await super().pop_item()

    async def clear_session(self) -> None:
        self._new.clear()
        await super().clear_session()

    async def write(self) -> None:
        """Write the new items."""
        items, self._new = self._new, []
        await super().add_items(items)
