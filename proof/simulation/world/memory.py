"""
A memory with random faults: slow, failing, full, and sometimes returning items that were not asked
for, because a store does not judge.

It contains canaries from the beginning, one for each boundary: words that only memory knows, so
memory is the source wherever one appears. The result of each search is kept outside of all
processes.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.adapters.inmemory import InMemoryDisk, InMemoryMemory
from holdfast.errors import NotSaved
from holdfast.ids import CallId, InstanceId, MemoryId, SessionId, TurnId
from holdfast.ports.memory import CannotRecall, MemoryMatches
from holdfast.session.features.memory.items import MemoryItem, ReaderSet, words_of
from proof.simulation.virtual_loop import VirtualLoop
from proof.simulation.world.ports import START_MS, Chaos

CANARY = re.compile(r"kept4[a-z]+")
RECALL_SECONDS = 0.5
Label = tuple[str, str, str | None]
"""Audience, boundary and person."""
PLACED: dict[str, Label] = {
    "kept4alice": ("personal", "personal:alice", "alice"),
    "kept4bob": ("personal", "personal:bob", "bob"),
    "kept4carol": ("personal", "personal:carol", "carol"),
    "kept4ops": ("team", "team:ops", "carol"),
    "kept4web": ("team", "team:web", "alice"),
    "kept4nobody": ("everybody", "public", "alice"),
}
"""
Canary: the label it was stored with. The last one's audience does not exist, so nobody may see it.
"""


class SimulatedSearch(NamedTuple):
    """
    One search, and whether its caller got an answer in time. `items` counts the returned items of
    the caller's own boundary.
    """

    words: tuple[str, ...]
    answered: bool
    items: int


def place_canaries(disk: InMemoryDisk) -> None:
    memory = InMemoryMemory(disk)
    for canary, (audience, boundary, person) in PLACED.items():
        item = MemoryItem(
            id=MemoryId(f"m-{canary}"),
            text=f"the service and {canary}",
            audience=audience,
            boundary=boundary,
            person=person or "",
            authenticity="verified",
            tainted=False,
            kind="message",
            session=SessionId("notes/long-ago"),
            instance=InstanceId("long-ago"),
            turn=TurnId("t1"),
            call=CallId(f"c-{canary}"),
            created_at=START_MS - 1,
        )
        memory.add(item)


class SimulatedMemory(InMemoryMemory):
    """One process's access to the memory."""

    def __init__(self, disk: InMemoryDisk, chaos: Chaos, searches: list[SimulatedSearch]) -> None:
        super().__init__(disk)
        self._chaos = chaos
        self._searches = searches

    def find(
        self, words: Sequence[str], reader_set: ReaderSet, *, limit: int, seconds: float
    ) -> MemoryMatches:
        took = self._chaos.dice.uniform(0, 4 * seconds) if self._chaos.strikes(0.2) else 0.0
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.take(took)
        found = super().find(words, reader_set, limit=limit, seconds=seconds)
        failed = self._chaos.strikes(0.15)
        own = sum(
            is_of(
                (item.audience, item.boundary, item.person),
                (reader_set.audience.value, reader_set.boundary, reader_set.person),
            )
            for item in found.items
        )
        self._searches.append(SimulatedSearch(tuple(words), not failed and took < 2 * seconds, own))
        if failed:
            raise CannotRecall("dice")
        return (
            MemoryMatches(self._everything(words), found.unverified)
            if self._chaos.strikes(0.2)
            else found
        )

    def _everything(self, words: Sequence[str]) -> tuple[MemoryItem, ...]:
        """Return everything, as if labels did not exist."""
        items = [row.item for row in self.rows() if row.item is not None]
        return tuple(item for item in items if set(words) & set(words_of(item.text)))

    def add(self, item: MemoryItem) -> bool:
        if self._chaos.strikes(0.1):
            raise NotSaved("dice")
        return super().add(item)


def is_of(whose: Label, reader_set: Label) -> bool:
    """
    Return whether a reader with this label may see it. Implemented here again, so that a filter of
    the runtime that lets everything through does not judge itself.
    """
    return (
        whose[:2] == reader_set[:2]
        and whose[0] in ("personal", "team")
        and (whose[0] == "team" or whose[2] == reader_set[2])
    )
