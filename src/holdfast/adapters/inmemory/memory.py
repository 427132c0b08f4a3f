"""
Memory in memory: the reference for `holdfast.ports.memory`. Rows are bytes on the disk that
outlives processes, trusted by their mac alone.
"""

from collections.abc import Sequence

import msgspec
from blake3 import blake3

from holdfast import limits
from holdfast.adapters.inmemory.disk import HOME, InMemoryDisk
from holdfast.errors import Refused
from holdfast.ids import InstanceId
from holdfast.ports.memory import MemoryMatches, MemoryRow, refuse_secret_item
from holdfast.session.features.memory.items import MemoryItem, ReaderSet, may_see, words_of

_decode = msgspec.json.Decoder(MemoryItem).decode


class InMemoryMemory:
    """Several on one disk are several processes on one home."""

    def __init__(self, disk: InMemoryDisk) -> None:
        self._rows = disk.memory
        self._key = disk.create(HOME, InstanceId("memory")).key

    def is_empty(self) -> bool:
        return not self._rows

    def add(self, item: MemoryItem) -> bool:
        refuse_secret_item(item)
        if item.id in self._rows:
            return False
        if (
            sum(row.item is not None and row.item.boundary == item.boundary for row in self.rows())
            >= limits.MEMORY_ITEMS_PER_BOUNDARY_MAX
        ):
            raise Refused(
                f"{item.boundary} remembers as much as it may",
                code="too_many",
                hint="forget something first",
            )
        body = msgspec.json.encode(item)
        self._rows[item.id] = (body, self._mac(body))
        return True

    def find(
        self, words: Sequence[str], reader_set: ReaderSet, *, limit: int, seconds: float
    ) -> MemoryMatches:
        del seconds  # a dict is never too slow
        wanted = set(words)
        found: list[tuple[int, MemoryItem]] = []
        unverified = 0
        for row in self.rows():
            if row.item is None:
                unverified += 1
            elif may_see(row.item, reader_set) and (
                hits := len(wanted & set(words_of(row.item.text)))
            ):
                found.append((hits, row.item))
        found.sort(key=lambda each: -each[0])
        return MemoryMatches(tuple(item for _, item in found[:limit]), unverified)

    def get(self, memory: str) -> MemoryItem | None:
        return self._row(memory).item if memory in self._rows else None

    def forget(self, memory: str) -> bool:
        return self._rows.pop(memory, None) is not None

    def rows(self, *, after: str | None = None, limit: int | None = None) -> Sequence[MemoryRow]:
        names = list(self._rows)
        if after is not None:
            names = names[names.index(after) + 1 :] if after in names else []
        return [self._row(name) for name in names[:limit]]

    def close(self) -> None:
        pass

    def _row(self, name: str) -> MemoryRow:
        body, mac = self._rows[name]
        item = _decode(body) if self._mac(body) == mac else None
        return MemoryRow(name, item if item is not None and item.id == name else None)

    def _mac(self, body: bytes) -> bytes:
        return blake3(b"memory " + body, key=self._key).digest()
