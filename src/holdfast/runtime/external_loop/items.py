"""
The history that a framework keeps in a session: opaque items in the journal, in the order in which
they were added. Removing an item adds a record; the journal keeps both.
"""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.errors import Unusable
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Check, Record
from holdfast.runtime.context import World
from holdfast.runtime.external_loop.blobs import (
    adapter_name,
    pack,
    refuse_others,
    same_family,
    unpack,
)
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.streams.in_flight import SameEventLoop
from holdfast.runtime.verbs.accept import ensure_session
from holdfast.session.codec import decode
from holdfast.session.commands import AddItem, RemoveItems
from holdfast.session.events import Blob, ItemAdded, ItemsRemoved

_TYPES = ("item_added", "items_removed")


class Item(msgspec.Struct, frozen=True):
    """One item of a framework's history. `seq` is the number of its record."""

    seq: int
    key: str
    blob: bytes


class _Found(msgspec.Struct, frozen=True):
    seq: int
    key: str
    blob: Blob


class Items:
    """
    The items of one adapter in one session. The first look reads the journal; later ones read only
    the records that came since.
    """

    def __init__(
        self, world: World, opened: OpenSessions, session: SessionId, adapter: str
    ) -> None:
        self._world = world
        self._opened = opened
        self._loop = SameEventLoop()
        self.session = session
        self.adapter = adapter_name(adapter)
        self._instance: str | None = None
        self._seq = 0
        self._found: dict[int, _Found] = {}
        self._of_other_versions: dict[int, Blob] = {}

    async def add(self, blob: bytes | str, *, key: str = "") -> int:
        """Add an item durably. Return the number of its record."""
        (seq,) = await self.add_all([(key, blob)])
        return seq

    async def add_all(self, items: Sequence[tuple[str, bytes | str]]) -> tuple[int, ...]:
        """Add items, each as (key, blob), in one commit. Return the numbers of their records."""
        self._loop.check()
        for key, _ in items:
            if not isinstance(key, str):
                raise Unusable(f"{key!r} is not a key", code="malformed", hint="use a text")
        await ensure_session(self._world, self.session, by=self.adapter)
        async with self._opened.use(self.session) as ledger:
            adding = [
                AddItem(
                    blob=await pack(self._world, ledger, blob, self.adapter), key=str.__str__(key)
                )
                for key, blob in items
            ]
            done = await ledger.commit(*adding, check=Check.FENCE)
            return tuple(state.seq for state in done.states)

    async def list(self, key: str | None = None) -> tuple[Item, ...]:
        """The items that were not removed, oldest first; with `key`, only those of that key."""
        self._loop.check()
        if await self._world.store.current(self.session) is None:
            return ()
        async with self._opened.use(self.session) as ledger:
            await self._read(ledger)
            wanted = [each for each in self._found.values() if key in (None, each.key)]
            return tuple(
                [Item(each.seq, each.key, await unpack(ledger, each.blob)) for each in wanted]
            )

    async def keys(self) -> tuple[tuple[int, str], ...]:
        """The numbers and keys of the items, oldest first, without their contents."""
        self._loop.check()
        if await self._world.store.current(self.session) is None:
            return ()
        async with self._opened.use(self.session) as ledger:
            await self._read(ledger)
            return tuple((each.seq, each.key) for each in self._found.values())

    async def remove(self, items: Iterable[int]) -> None:
        """Remove items by their numbers. An unknown number changes nothing."""
        self._loop.check()
        if not isinstance(items, Iterable):
            raise Unusable(
                f"{items!r:.200} is not a list of numbers",
                code="malformed",
                hint="hand in the seq of each item",
            )
        if numbers := tuple(items):  # a record without numbers would remove all
            await self._removed(numbers)

    async def clear(self) -> None:
        """Remove all items of this adapter."""
        self._loop.check()
        await self._removed(())

    async def _removed(self, items: tuple[int, ...]) -> None:
        if await self._world.store.current(self.session) is None:
            return
        async with self._opened.use(self.session) as ledger:
            command = RemoveItems(adapter=self.adapter, items=items)
            await ledger.commit(command, check=Check.FENCE)

    async def _read(self, ledger: Ledger) -> None:
        await ledger.catch_up_if_behind()
        if self._instance != ledger.instance:
            self._instance, self._seq, self._found = ledger.instance, 0, {}
            self._of_other_versions = {}
        if self._seq < ledger.state.seq:
            await ledger.journal.load(self._take, after=self._seq)
        # A history that looks empty would be lost to the framework without a word.
        refuse_others(tuple(self._of_other_versions.values()), self.adapter)

    def _take(self, record: Record) -> None:
        self._seq = max(self._seq, record.seq)
        if record.type not in _TYPES:
            return
        match decode(record.type, record.version, record.body, seq=record.seq):
            case ItemAdded(blob=blob, key=key) if blob.adapter == self.adapter:
                self._found[record.seq] = _Found(record.seq, key, blob)
            case ItemsRemoved(adapter=adapter, items=items) if adapter == self.adapter:
                for seq in items or tuple(self._found):
                    self._found.pop(seq, None)
            case ItemAdded(blob=blob) if same_family(blob.adapter, self.adapter):
                self._of_other_versions[record.seq] = blob
            case ItemsRemoved(adapter=adapter, items=items) if same_family(adapter, self.adapter):
                for seq, blob in tuple(self._of_other_versions.items()):
                    if blob.adapter == adapter and (not items or seq in items):
                        del self._of_other_versions[seq]
            case _:
                pass
