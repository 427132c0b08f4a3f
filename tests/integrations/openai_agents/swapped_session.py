"""
A plugin of pytest that puts `HoldfastSession` in the place of the SDK's own session, for the SDK's
own tests. Each step opens the home anew, so that nothing is remembered by a process.
"""

import tempfile
from pathlib import Path
from typing import Any

import agents
from agents.memory import SessionABC
from agents.memory.session_settings import SessionSettings, coerce_session_settings

import holdfast
from holdfast.integrations.openai_agents import HoldfastSession


class SwappedSession(SessionABC):
    """Has the constructor that the tests use."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        memory = str(db_path) == ":memory:"
        self._folder = Path(tempfile.mkdtemp()) if memory else Path(f"{db_path}.home")

    async def _step(self, name: str, *given: Any) -> Any:
        async with holdfast.open(self._folder) as home:
            own = HoldfastSession(home, self.session_id, session_settings=self.session_settings)
            return await getattr(own, name)(*given)

    async def get_items(self, limit: int | None = None) -> Any:
        return await self._step("get_items", limit)

    async def add_items(self, items: list[Any]) -> None:
        await self._step("add_items", items)

    async def pop_item(self) -> Any:
        return await self._step("pop_item")

    async def clear_session(self) -> None:
        await self._step("clear_session")

    def close(self) -> None:
        """Nothing is open between two steps."""


agents.SQLiteSession = SwappedSession
