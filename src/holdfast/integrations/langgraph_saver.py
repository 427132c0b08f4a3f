"""
A LangGraph checkpointer in the journal: checkpoints have the mac, the fence and the backup of
everything else, and a blob that holds a known secret is refused.

A thread whose id is a session's name lies in that session, and any other in a session of its own.
Values of channels are stored once per version. Only the asynchronous methods are there.
"""

import base64
import json
import operator
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

import holdfast
from holdfast.integrations.session_names import session_named

ADAPTER = "langgraph/1"
_LINKS_MAX = 64  # versions that one list builds on; reading it takes as many looks
_NONE = object()


class _Stored(NamedTuple):
    """A list that was stored, and the number of versions that its own version builds on."""

    version: str
    items: list[Any]
    links: int

    def is_beginning_of(self, value: list[Any]) -> bool:
        return len(value) >= len(self.items) and all(map(operator.is_, self.items, value))


class HoldfastSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of any number of threads in one home."""

    def __init__(self, home: holdfast.Home) -> None:
        super().__init__()
        self._home = home
        self._threads: dict[str, holdfast.Items] = {}
        # The list that this process stored last for a channel: (thread, namespace, channel).
        self._last: dict[tuple[str, str, str], _Stored] = {}

    def _items(self, thread: str) -> holdfast.Items:
        if thread not in self._threads:
            self._threads[thread] = self._home.items(
                session_named(thread, family="langgraph"), adapter=ADAPTER
            )
        return self._threads[thread]

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, space = _place(config)
        values = checkpoint["channel_values"]
        bare = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        parent = config["configurable"].get("checkpoint_id")
        whole = [
            self._out(bare),
            self._out(get_checkpoint_metadata(config, metadata)),
            parent,
            sorted(values),
        ]
        items = [
            (
                _key("b", thread, space, channel, str(version)),
                json.dumps(self._written((thread, space, channel), str(version), values)),
            )
            for channel, version in new_versions.items()
        ]
        items.append((_key("c", thread, space, checkpoint["id"]), json.dumps(whole)))
        await self._items(thread).add_all(items)
        return _config(thread, space, checkpoint["id"])

    def _written(
        self, place: tuple[str, str, str], version: str, values: dict[str, Any]
    ) -> dict[str, Any]:
        """
        The value of a channel. A list that begins with the very objects of the version before, such
        as a growing conversation, is stored as its new part alone.
        """
        if place[2] not in values:
            return {}
        value = values[place[2]]
        before = self._last.pop(place, None)
        if type(value) is not list:
            return {"value": self._out(value)}
        grows = before is not None and before.is_beginning_of(value)
        if before is None or not grows or before.links >= _LINKS_MAX:
            self._last[place] = _Stored(version, list(value), 0)
            return {"value": self._out(value)}
        self._last[place] = _Stored(version, list(value), before.links + 1)
        return {"base": before.version, "value": self._out(value[len(before.items) :])}

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        thread, space = _place(config)
        checkpoint = str(config["configurable"]["checkpoint_id"])
        items = [
            (
                _key("w", thread, space, checkpoint, task_id, str(WRITES_IDX_MAP.get(channel, n))),
                json.dumps([channel, self._out(value), task_path]),
            )
            for n, (channel, value) in enumerate(writes)
        ]
        if items:
            await self._items(thread).add_all(items)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, space = _place(config)
        wanted = get_checkpoint_id(config)
        items = self._items(thread)
        found = [
            parts[3]
            for parts in _parts(await items.keys())
            if parts[:3] == ["c", thread, space] and (wanted is None or parts[3] == wanted)
        ]
        return await self._tuple(thread, space, max(found)) if found else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        if config is None:
            threads = await self._all_threads()
        else:
            threads = [str(config["configurable"]["thread_id"])]
        wanted = None if config is None else get_checkpoint_id(config)
        space = None if config is None else config["configurable"].get("checkpoint_ns")
        earlier = None if before is None else get_checkpoint_id(before)
        count = 0
        for thread in threads:
            known = _checkpoints(await self._items(thread).keys(), thread)
            for checkpoint, place in sorted(known, reverse=True):
                if (space is not None and place != space) or wanted not in (None, checkpoint):
                    continue
                if earlier is not None and checkpoint >= earlier:
                    continue
                found = await self._tuple(thread, place, checkpoint)
                metadata: dict[str, Any] = dict(found.metadata)
                if filter and any(metadata.get(key) != value for key, value in filter.items()):
                    continue
                if limit is not None and count >= limit:
                    return
                count += 1
                yield found

    async def _all_threads(self) -> list[str]:
        found: dict[str, None] = {}
        for session in await self._home.sessions():
            items = self._home.items(session.session, adapter=ADAPTER)
            found.update(dict.fromkeys(parts[1] for parts in _parts(await items.keys())))
        return list(found)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._remove(thread_id, lambda _: True)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        for thread in await self._all_threads():
            gone = {
                (place, checkpoint)
                for checkpoint, place in _checkpoints(await self._items(thread).keys(), thread)
                if (await self._tuple(thread, place, checkpoint)).metadata.get("run_id") in run_ids
            }
            if gone:
                await self._remove(
                    thread, lambda key, gone=gone: key[0] != "b" and (key[2], key[3]) in gone
                )

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        copies = [
            (_key(parts[0], target_thread_id, *parts[2:]), each.blob)
            for each in await self._items(source_thread_id).list()
            if (parts := json.loads(each.key))[1] == source_thread_id
        ]
        if copies:
            await self._items(target_thread_id).add_all(copies)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread)
                continue
            newest: dict[str, str] = {}
            for checkpoint, place in _checkpoints(await self._items(thread).keys(), thread):
                newest[place] = max(checkpoint, newest.get(place, ""))
            kept = set(newest.items())
            await self._remove(
                thread, lambda key, kept=kept: key[0] != "b" and (key[2], key[3]) not in kept
            )

    async def _remove(self, thread: str, matches: Callable[..., bool]) -> None:
        items = self._items(thread)
        mine = [
            seq
            for seq, key in await items.keys()
            if (parts := json.loads(key))[1] == thread and matches(parts)
        ]
        await items.remove(mine)

    async def _tuple(self, thread: str, space: str, checkpoint: str) -> CheckpointTuple:
        items = self._items(thread)
        whole = await items.list(_key("c", thread, space, checkpoint))
        bare, metadata, parent, present = json.loads(whole[-1].blob)
        stored: dict[str, Any] = self._in(bare)
        values: dict[str, Any] = {}
        for channel in present:
            version = stored["channel_versions"].get(channel)
            kept = await self._value(items, (thread, space, channel), str(version))
            if kept is not _NONE:
                values[channel] = kept
        return CheckpointTuple(
            config=_config(thread, space, checkpoint),
            checkpoint={**stored, "channel_values": values},
            metadata=self._in(metadata),
            parent_config=_config(thread, space, parent) if parent else None,
            pending_writes=await self._writes(thread, space, checkpoint),
        )

    async def _value(self, items: holdfast.Items, place: tuple[str, str, str], version: str) -> Any:
        parts: list[Any] = []
        wanted: str | None = version
        while wanted is not None:
            kept = await items.list(_key("b", *place, wanted))
            stored = json.loads(kept[-1].blob) if kept else {}
            if "value" not in stored:
                return _NONE
            parts.append(self._in(stored["value"]))
            wanted = stored.get("base")
        if len(parts) == 1:
            return parts[0]
        return [each for part in reversed(parts) for each in part]

    async def _writes(self, thread: str, space: str, checkpoint: str) -> list[tuple[str, str, Any]]:
        items = self._items(thread)
        mine = ["w", thread, space, checkpoint]
        latest: dict[tuple[str, int], str] = {}
        for _, key in await items.keys():
            parts = json.loads(key)
            if parts[:4] == mine:
                place = (parts[4], int(parts[5]))
                # A repeated ordinary write does not count; one with a place of its own replaces.
                if place not in latest or place[1] < 0:
                    latest[place] = key
        found: list[tuple[str, str, Any]] = []
        for (task, number), key in latest.items():
            kept = await items.list(key)
            channel, value, _ = json.loads((kept[-1] if number < 0 else kept[0]).blob)
            found.append((task, channel, self._in(value)))
        return found

    def get_next_version(self, current: str | None, channel: None) -> str:
        del channel
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311  # tells branches apart

    def _out(self, value: Any) -> list[str]:
        kind, data = self.serde.dumps_typed(value)
        return [kind, base64.b64encode(data).decode()]

    def _in(self, value: Sequence[str]) -> Any:
        return self.serde.loads_typed((value[0], base64.b64decode(value[1])))


def _key(*parts: str) -> str:
    return json.dumps(parts)


def _parts(keys: Sequence[tuple[int, str]]) -> Iterator[list[str]]:
    for _, key in keys:
        yield json.loads(key)


def _checkpoints(keys: Sequence[tuple[int, str]], thread: str) -> set[tuple[str, str]]:
    """The checkpoints of a thread, each as (id, namespace)."""
    return {(each[3], each[2]) for each in _parts(keys) if each[:2] == ["c", thread]}


def _place(config: RunnableConfig) -> tuple[str, str]:
    given = config["configurable"]
    return str(given["thread_id"]), str(given.get("checkpoint_ns", ""))


def _config(thread: str, space: str, checkpoint: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": space,
            "checkpoint_id": checkpoint,
        }
    }
