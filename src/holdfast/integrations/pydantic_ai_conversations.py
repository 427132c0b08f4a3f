"""
Pydantic AI's conversations in the journal: a `ConversationStore` whose records and messages have
the mac, the fence and the backup of everything else.

Every save is one item that names the revision it replaces. Reading applies the items in their
order, and passes over one that names another revision: of two savers the first wins, in any number
of processes. A deleted conversation no longer loads; the journal keeps its messages.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter

import holdfast

ADAPTER = "pydantic-ai-conversations/1"
_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)
_SAVED: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class HoldfastConversations(ConversationStore):
    """Keeps any number of conversations in one session of a home, by default one for all."""

    def __init__(self, home: holdfast.Home, *, session: str = "pydantic-ai/conversations") -> None:
        self._home = home
        self._items = home.items(session, adapter=ADAPTER)
        self._seq = 0
        self._records: dict[str, ConversationRecord] = {}
        self._entries: dict[str, ConversationEntry] = {}
        self._turns: set[str] = set()
        self._turn: str | None = None

    async def save_turn(self, result: Any, turn: holdfast.ExternalTurn) -> None:
        """Save the result of a turn once, also if its line runs again after a crash."""
        await self._refresh()
        name = f"{(await self._home.session(turn.session)).instance} {turn.turn}"
        if name in self._turns:
            return
        self._turn = name
        try:
            await self.save(result)
        finally:
            self._turn = None

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        await self._refresh()
        found = self._records.get(conversation_id)
        return _RECORD.validate_json(_RECORD.dump_json(found)) if found is not None else None

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        await self._refresh()
        found = [each for each in self._records.values() if scope in (None, each.scope)]
        found.sort(key=lambda each: each.updated_at, reverse=True)
        return [_RECORD.validate_json(_RECORD.dump_json(each)) for each in found[:limit]]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        messages = [each.message for each in new_entries]
        saved = {
            "replaces": expected_revision,
            "record": _RECORD.dump_python(record, mode="json"),
            "entries": [[each.id, each.parent_id] for each in new_entries],
            "messages": ModelMessagesTypeAdapter.dump_python(messages, mode="json"),
            "turn": self._turn,
        }
        await self._items.add(_SAVED.dump_json(saved), key=f"saved {record.revision}")
        await self._refresh()
        stored = self._records.get(record.conversation_id)
        if stored is None or stored.revision != record.revision:
            raise ConversationConflict(record.conversation_id)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await self._refresh()
        stored = self._records.get(conversation_id)
        if stored is None or stored.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        gone = {"deletes": conversation_id, "replaces": expected_revision}
        await self._items.add(_SAVED.dump_json(gone), key=f"deleted {expected_revision}")
        await self._refresh()

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        await self._refresh()
        return self._entries[entry_id]

    async def _refresh(self) -> None:
        """Apply the items that came since the last look."""
        for seq, key in await self._items.keys():
            if seq > self._seq:
                for item in await self._items.list(key):
                    if item.seq == seq:
                        self._apply(_SAVED.validate_json(item.blob))
                self._seq = max(self._seq, seq)

    def _apply(self, saved: dict[str, Any]) -> None:
        record = _RECORD.validate_python(saved["record"]) if "record" in saved else None
        conversation = record.conversation_id if record is not None else saved["deletes"]
        stored = self._records.get(conversation)
        if (stored.revision if stored is not None else None) != saved["replaces"]:
            return
        if record is None:
            del self._records[conversation]
            return
        messages = ModelMessagesTypeAdapter.validate_python(saved["messages"])
        entries = {
            name: ConversationEntry(id=name, parent_id=parent, message=message)
            for (name, parent), message in zip(saved["entries"], messages, strict=True)
        }
        if record.head_id is not None and record.head_id not in {*self._entries, *entries}:
            return
        self._entries |= entries
        self._records[conversation] = record
        if saved["turn"] is not None:
            self._turns.add(saved["turn"])
