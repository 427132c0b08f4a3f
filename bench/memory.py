"""
Recall over 100,000 items: all of one person, and as they lie in a home that many share; by messages
of a length that people write.

Words are drawn as they are in prose: few are everywhere, most are rare. Every tenth message asks in
common words only, which is the worst that can be asked.
"""

import os
import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from bench.ground import Ground, Row, Times, timed, under
from holdfast import limits
from holdfast.adapters.sqlite.memory import SqliteMemory
from holdfast.ids import CallId, InstanceId, MemoryId, SessionId, TurnId
from holdfast.session.authority.context import Audience
from holdfast.session.features.memory.items import MemoryItem, ReaderSet, query_words

PART = "recall"
ITEMS = 100_000
MESSAGES = 200
VOCABULARY = 30_000
ITEM_WORDS = 16
GOAL_SECONDS = 0.010
_WEIGHTS = list(accumulate(1 / (rank + 10) for rank in range(VOCABULARY)))


def measure(ground: Ground) -> list[Row]:
    return [
        _recall(ground, "of one person", people=1),
        _recall(ground, "of a hundred people", people=100),
    ]


def _recall(ground: Ground, whose: str, *, people: int) -> Row:
    items = ground.count(ITEMS, 2_000)
    memory, draw = _filled(ground.fresh(f"memory-{people}"), items, people), random.Random(2)
    reader_set = ReaderSet(Audience.PERSONAL, "personal:person-0", "person-0")
    asked = [query_words(_message(draw, common=number % 10 == 0)) for number in range(MESSAGES)]

    def recall(words: tuple[str, ...]) -> None:
        memory.find(
            words,
            reader_set,
            limit=2 * limits.MEMORY_RECALLED_MAX,
            seconds=limits.MEMORY_RECALL_SECONDS,
        )

    recall(asked[0])
    times = Times([timed(lambda words=words: recall(words)) for words in asked])
    memory.close()
    note = f"p99 {times.p99 * 1e3:.1f} ms; bm25 over FTS5, MACs checked, in {items:,} items"
    return under(
        PART, f"recall in {items:,} items {whose}, p50", times.p50, GOAL_SECONDS, note=note
    )


def _filled(folder: Path, items: int, people: int) -> SqliteMemory:
    key = os.urandom(32)
    memory = SqliteMemory(folder / "memory.db", lambda generation: (generation or 1, key))
    with (
        memory._writing() as db
    ):  # all in one transaction: how fast things are remembered is the disk's affair
        for item in _items(items, people):
            memory._insert(db, item)
    return memory


def _items(count: int, people: int) -> Iterator[MemoryItem]:
    draw = random.Random(1)
    for number in range(count):
        person = f"person-{number % people}"
        yield MemoryItem(
            id=MemoryId(f"m-{number}"),
            text=" ".join(_words(draw, ITEM_WORDS)),
            audience="personal",
            boundary=f"personal:{person}",
            person=person,
            authenticity="verified",
            tainted=False,
            kind="message",
            session=SessionId("bench/memory"),
            instance=InstanceId("i"),
            turn=TurnId("t1"),
            call=CallId(f"c-{number}"),
            created_at=number,
        )


def _words(draw: random.Random, count: int) -> list[str]:
    return [
        f"word{rank}" for rank in draw.choices(range(VOCABULARY), cum_weights=_WEIGHTS, k=count)
    ]


def _message(draw: random.Random, *, common: bool) -> str:
    return (
        " ".join(f"word{draw.randrange(20)}" for _ in range(8))
        if common
        else " ".join(_words(draw, draw.randint(4, 24)))
    )
