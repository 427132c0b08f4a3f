"""Memory items: list, show, forget."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from holdfast.ids import SessionId
from holdfast.runtime.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.runtime.memory.admin import MemoryList, MemoryReport


class MemoryVerbs:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def list(
        self,
        *,
        person: str | None,
        session: SessionId | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> "MemoryList":
        """List items, oldest first. `person` None lists everything, for the home's owner."""
        from holdfast.runtime.memory.admin import memory_list

        return await memory_list(
            self._runtime, person=person, session=session, limit=limit, after=after
        )

    def items(
        self, *, person: str | None, session: SessionId | None = None
    ) -> "AsyncIterator[MemoryReport]":
        from holdfast.runtime.memory.admin import memory_items

        return memory_items(self._runtime, person=person, session=session)

    async def show(self, name: str, *, person: str | None) -> "MemoryReport":
        from holdfast.runtime.memory.admin import memory_item

        return await memory_item(self._runtime, name, person=person)

    async def forget(self, name: str, *, person: str | None) -> None:
        """Remove an item: durable on return. Its records in the sessions' journals stay."""
        from holdfast.runtime.memory.admin import forget_memory

        await forget_memory(self._runtime, name, person=person)
