"""
Remembered items in SQL, shared by all nodes. See `holdfast.ports.memory`.

The database learns no word of a memory. A body is masked with a keystream under the home's key,
with a mac over the masked bytes, and words are keyed digests that name their reader set. So an item
of another reader set can't even match, and the rows tell a reader of the database nothing but how
many there are. The journal of the session in which an item was formed has its text: that is the
session's history.

The mask is BLAKE3 in keyed mode, read to the body's length, over a random nonce: a pseudo-random
function that the project uses already, and no second library.
"""

import contextlib
import logging
import math
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from blake3 import blake3

from holdfast import limits
from holdfast.adapters.postgres.lists.words import digests_of, is_storable
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.sqlite.memory_rows import (
    ROWS_READ,
    believed_item,
    item_mac,
    newest_key,
    rarest,
    reader_set_key,
    too_many,
)
from holdfast.errors import HoldfastError, InDoubt, NotSaved
from holdfast.ports.memory import CannotRecall, MemoryMatches, MemoryRow, refuse_secret_item
from holdfast.session.features.memory.items import MemoryItem, ReaderSet, words_of

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

_log = logging.getLogger("holdfast.postgres")

_NONCE_BYTES = 24  # random ones of this length never repeat
_ADD = "select hf.add_memory(%s, %s, %s, %s::bigint[], %s, %s, %s)::text"
_ROW = "select id, boundary, generation, body, mac from hf.memory"
_GET = _ROW + " where id = %s"
_PAGE = _ROW + " where n > %s order by n limit %s"
_SPREAD = (
    "select digest, items, (select coalesce(sum(items), 0)::bigint from hf.memory_size), "
    "(select coalesce(sum(words), 0)::bigint from hf.memory_size) "
    "from hf.spread where digest = any(%s::bigint[]) and items > 0"
)
_FIND = (
    "select id, boundary, generation, body, mac, cardinality(words), "
    "(select array_agg(w) from unnest(words) w where w = any(%(wanted)s::bigint[])) "
    "from hf.memory where words && %(chosen)s::bigint[] limit %(most)s"
)
_READ_SECONDS = 5.0
# As in SQLite's full-text search, so that both rank alike.
_K1, _B = 1.2, 0.75


class PostgresMemory:
    """The memory of one home. Its calls block; never make them on the event loop."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store
        self._keys = store.memory_key

    def is_empty(self) -> bool:
        """As known at the last look, which every process makes with each renewal of its lease."""
        return not self._store.has_memories

    # --- Writing

    def add(self, item: MemoryItem) -> bool:
        refuse_secret_item(item)
        generation, secret = newest_key(self._keys)
        body = _masked(secret, os.urandom(_NONCE_BYTES), msgspec.json.encode(item))
        values = (
            *(item.id, item.boundary, generation, self._digests_of(item), body),
            *(item_mac(secret, item.id, body), limits.MEMORY_ITEMS_PER_BOUNDARY_MAX),
        )
        (row,) = self._write(lambda wire: wire.rows(_ADD, values))
        self._store.has_memories = True
        if row[0] == "t":
            raise too_many(item.boundary, limits.MEMORY_ITEMS_PER_BOUNDARY_MAX)
        return bool(row[0] == "k")

    def forget(self, memory: str) -> bool:
        if not is_storable(memory):
            return False
        (row,) = self._write(lambda wire: wire.rows("select hf.forget_memory(%s)", (memory,)))
        return bool(row[0])

    def _write(self, work: Any) -> Any:
        """
        A lost connection is made again, once. Both statements give the right result twice: an item
        is kept once by its id.
        """
        try:
            return self._store.read_now(work)
        except (NotSaved, InDoubt):
            raise
        except HoldfastError as exc:
            raise NotSaved(f"memory was not written: {exc}", hint="try again") from exc

    # --- Reading

    def find(
        self, words: Sequence[str], reader_set: ReaderSet, *, limit: int, seconds: float
    ) -> MemoryMatches:
        wanted = self._digests(
            reader_set_key(reader_set.audience.value, reader_set.boundary, reader_set.person), words
        )
        if not wanted or self.is_empty():
            return MemoryMatches(())
        ranked = self._read(lambda wire: _candidates(wire, wanted), seconds)[:limit]
        items = [self._believed(each.row) for each in ranked]
        return MemoryMatches(tuple(item for item in items if item is not None), items.count(None))

    def get(self, memory: str) -> MemoryItem | None:
        if not is_storable(memory):
            return None
        row = self._read(lambda wire: wire.one(_GET, (memory,)), _READ_SECONDS)
        return self._believed(row) if row is not None else None

    def rows(self, *, after: str | None = None, limit: int | None = None) -> Sequence[MemoryRow]:
        def work(wire: Wire) -> list[tuple[Any, ...]]:
            place = (
                (0,)
                if after is None
                else wire.one("select n from hf.memory where id = %s", (after,))
                if is_storable(after)
                else None
            )
            return wire.rows(_PAGE, (place[0], limit)) if place is not None else []

        return [MemoryRow(row[0], self._believed(row)) for row in self._read(work, None)]

    def _read(self, work: Any, seconds: float | None) -> Any:
        try:
            return self._store.read_now(work, seconds)
        except TimeoutError as exc:
            raise CannotRecall("it took too long") from exc
        except HoldfastError as exc:
            raise CannotRecall(f"memory can't be read: {exc}") from exc

    def close(self) -> None:
        """The store closes the connections."""

    # --- Rows

    def _believed(self, row: tuple[Any, ...]) -> MemoryItem | None:
        if row[2] not in self._store.keys:  # another process may have rotated the keys
            with contextlib.suppress(HoldfastError):
                self._store.read_now(self._store.refresh)
        return believed_item(self._keys, row, opened=_unmasked)

    def _digests_of(self, item: MemoryItem) -> list[int]:
        return self._digests(
            reader_set_key(item.audience, item.boundary, item.person), words_of(item.text)
        )

    def _digests(self, reader_set: str, words: Iterable[str]) -> list[int]:
        """Always under the first key: a rotation would else hide every item."""
        first = self._keys(1)
        if first is None:
            return []
        return digests_of(blake3(b"memory words", key=first[1]).digest(), reader_set, words)


class _Candidate(NamedTuple):
    rank: float
    row: tuple[Any, ...]


def _candidates(wire: Wire, wanted: Sequence[int]) -> list[_Candidate]:
    """The items that hold the rarest of these words, the best first, as BM25 ranks them."""
    spread = wire.rows(_SPREAD, (list(wanted),))
    if not spread:
        return []
    held = {digest: items for digest, items, _, _ in spread}
    total, words = max(1, spread[0][2]), max(1, spread[0][3])
    chosen = rarest((items, digest) for digest, items in held.items())
    found = wire.rows(_FIND, {"wanted": list(held), "chosen": chosen, "most": ROWS_READ})
    ranked = [
        _Candidate(_rank(hits or (), held, size=size, total=total, mean=words / total), tuple(row))
        for *row, size, hits in found
    ]
    return sorted(ranked, key=lambda each: (-each.rank, each.row[0]))


def _rank(
    hits: Sequence[int], held: dict[int, int], *, size: int, total: int, mean: float
) -> float:
    length = _K1 * (1 - _B + _B * size / mean)
    return sum(
        max(1e-6, math.log((total - held[each] + 0.5) / (held[each] + 0.5)))
        * ((_K1 + 1) / (1 + length))
        for each in hits
    )


def _masked(key: bytes, nonce: bytes, plain: bytes) -> bytes:
    stream = blake3(nonce, key=blake3(b"memory mask", key=key).digest()).digest(length=len(plain))
    mixed = int.from_bytes(plain, "big") ^ int.from_bytes(stream, "big")
    return nonce + mixed.to_bytes(len(plain), "big")


def _unmasked(key: bytes, stored: bytes) -> bytes:
    """For a body whose mac verified."""
    nonce, body = stored[:_NONCE_BYTES], stored[_NONCE_BYTES:]
    return _masked(key, nonce, body)[_NONCE_BYTES:]
