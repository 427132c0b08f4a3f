"""
Claude's transcripts in the journal: a `SessionStore` for `ClaudeAgentOptions(session_store=...)`.

Claude's program writes its transcript on the local disk first and copies it here. The copy lets
another machine resume the conversation; calls and their outcomes are in the journal either way.
"""

import json
import time
from typing import Any

from blake3 import blake3

import holdfast

ADAPTER = "claude-store/1"


class HoldfastStore:
    """Keeps the transcripts of any number of Claude's sessions in one home."""

    def __init__(self, home: holdfast.Home) -> None:
        self._home = home
        self._known: dict[tuple[str, str], set[str]] = {}

    def _transcript(self, key: Any) -> holdfast.Items:
        name = _digest(key["project_key"], key["session_id"])
        return self._home.items(f"claude/{name}", adapter=ADAPTER)

    def _index(self, project: str) -> holdfast.Items:
        return self._home.items(f"claude/index-{_digest(project)}", adapter=ADAPTER)

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Add entries durably. One with a known `uuid` is not added again."""
        subpath = key.get("subpath", "")
        items = self._transcript(key)
        place = (items.session, subpath)
        known = self._known.get(place)
        if known is None:
            old = await self.load(key) or []
            known = self._known[place] = {each["uuid"] for each in old if "uuid" in each}
        new = [each for each in entries if each.get("uuid") not in known]
        if not new:
            return
        index = self._index(key["project_key"])
        if key["session_id"] not in {name for _, name in await index.keys()}:
            await index.add("", key=key["session_id"])
        written = {"at": int(time.time() * 1000), "entries": new}
        await items.add(json.dumps(written, ensure_ascii=False), key=subpath)
        known.update(each["uuid"] for each in new if "uuid" in each)

    async def load(self, key: Any) -> list[Any] | None:
        """All entries in their order, or None for a transcript that has none."""
        found = await self._transcript(key).list(key.get("subpath", ""))
        return [each for item in found for each in json.loads(item.blob)["entries"]] or None

    async def list_sessions(self, project_key: str) -> list[Any]:
        found = []
        for _, name in await self._index(project_key).keys():
            key = {"project_key": project_key, "session_id": name}
            if written := await self._transcript(key).list(""):
                found.append({"session_id": name, "mtime": json.loads(written[-1].blob)["at"]})
        return found

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """Claude's own summaries, computed from the entries."""
        from claude_agent_sdk import fold_session_summary

        found = []
        for each in await self.list_sessions(project_key):
            key: Any = {"project_key": project_key, "session_id": each["session_id"]}
            folded = fold_session_summary(None, key, await self.load(key) or [])
            found.append({**folded, "mtime": each["mtime"]})
        return found

    async def list_subkeys(self, key: Any) -> list[str]:
        names = (name for _, name in await self._transcript(key).keys() if name)
        return list(dict.fromkeys(names))

    async def delete(self, key: Any) -> None:
        """Remove a transcript with those of its agents, or one of them. The journal keeps both."""
        items = self._transcript(key)
        subpath = key.get("subpath")
        if subpath is None:
            await items.clear()
            index = self._index(key["project_key"])
            await index.remove([n for n, name in await index.keys() if name == key["session_id"]])
        else:
            await items.remove([n for n, name in await items.keys() if name == subpath])
        for place in [each for each in self._known if each[0] == items.session]:
            del self._known[place]


def _digest(*parts: str) -> str:
    return blake3(json.dumps(parts).encode()).hexdigest()[:32]
