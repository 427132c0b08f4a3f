"""
Two small persistent collections, so that state can be frozen and still cheap to change.

`PersistentList` is an append-only sequence whose versions share their past: adding is O(1), and old
versions do not change. `Window` remembers the last N keys, also in O(1) amortised per addition.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# A Window copies at most this many entries per addition. As many chunks make up the usual 4,096.
_CHUNK = 64


_Cell = tuple[Any, Any]


class PersistentList(Generic[T]):
    """Immutable; `PersistentList()` is empty. Iterates from the oldest."""

    __slots__ = ("_cell", "_length", "_walked")

    def __init__(
        self, cell: _Cell | None = None, length: int = 0, walked: tuple[T, ...] = ()
    ) -> None:
        # (the cell before, the item). Nested tuples, because CPython frees those without recursion,
        # however long the list is.
        self._cell = cell
        self._length = length
        # The oldest items, as far as this version or an earlier one was ever iterated. A long list
        # is walked from its end to that point, and no further.
        self._walked = walked

    def add(self, item: T) -> "PersistentList[T]":
        return PersistentList((self._cell, item), self._length + 1, self._walked)

    def extend(self, items: Iterable[T]) -> "PersistentList[T]":
        trail = self
        for item in items:
            trail = trail.add(item)
        return trail

    @classmethod
    def of(cls, items: Iterable[T]) -> "PersistentList[T]":
        kept = tuple(items)
        cell: _Cell | None = None
        for item in kept:
            cell = (cell, item)
        return cls(cell, len(kept), kept)

    def first(self, length: int) -> "PersistentList[T]":
        """Return the version that had this many items. It shares them."""
        cell: Any = self._cell
        for _ in range(self._length - length):
            cell = cell[0]
        return PersistentList(cell, length, self._walked[:length])

    def continues(self, other: "PersistentList[T]") -> bool:
        """Return True if `other` is an earlier version of this list, or this one."""
        if len(other) > self._length:
            return False
        earlier = self.first(len(other))
        return earlier._cell is other._cell  # noqa: SLF001  of this very class

    def last(self) -> T | None:
        return None if self._cell is None else self._cell[1]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        if len(self._walked) < self._length:
            newer: list[T] = []
            cell: Any = self._cell
            for _ in range(self._length - len(self._walked)):
                cell, item = cell
                newer.append(item)
            self._walked = (*self._walked, *reversed(newer))
        return iter(self._walked)

    def newest_first(self) -> Iterator[T]:
        """
        Iterate from the newest, for callers that read only the last few: older items are not
        walked.
        """
        cell = self._cell
        while cell is not None:
            yield cell[1]
            cell = cell[0]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PersistentList)
            and len(self) == len(other)
            and list(self) == list(other)
        )

    def __hash__(self) -> int:
        return hash(self._length)

    def __repr__(self) -> str:
        return f"Trail({list(self)!r})"


class Window(Generic[T]):
    """The last `size` entries by key; the newest wins. Immutable."""

    __slots__ = ("_chunks", "_size")

    def __init__(self, size: int, chunks: tuple[dict[str, T], ...] = ()) -> None:
        self._size = size
        self._chunks = chunks

    @classmethod
    def of(cls, size: int, chunks: Iterable[Iterable[tuple[str, T]]]) -> "Window[T]":
        """
        Restore a window from the result of `parts`. It forgets the same keys at the same time.
        """
        return cls(size, tuple(dict(chunk) for chunk in chunks))

    def parts(self) -> tuple[int, tuple[dict[str, T], ...]]:
        """Return its size and its entries, grouped as they are inside."""
        return self._size, self._chunks

    def add(self, key: str, value: T) -> "Window[T]":
        chunks = self._chunks
        if chunks and len(chunks[-1]) < _CHUNK:
            return Window(self._size, (*chunks[:-1], {**chunks[-1], key: value}))
        kept = -(-self._size // _CHUNK)
        return Window(self._size, (*chunks[-kept:], {key: value}))

    def get(self, key: str) -> T | None:
        for chunk in reversed(self._chunks):
            if key in chunk:
                return chunk[key]
        return None

    def __contains__(self, key: str) -> bool:
        return any(key in chunk for chunk in self._chunks)

    def items(self) -> Iterator[tuple[str, T]]:
        for chunk in self._chunks:
            yield from chunk.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Window) and dict(self.items()) == dict(other.items())

    def __hash__(self) -> int:
        return hash(tuple(key for key, _ in self.items()))
