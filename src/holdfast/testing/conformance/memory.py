"""
The contract of every `Memory`, as one suite. Subclass it and provide a fixture `place`, as in
`conformance/store.py`.

Each test is a sentence of `holdfast.ports.memory`. Damage to a file is tested beside the file's own
memory.
"""

from typing import Protocol

import msgspec
import pytest

from holdfast import limits
from holdfast.ports.memory import Memory, MemoryMatches, MemoryRow
from holdfast.session.authority.context import Audience
from holdfast.session.features.memory.items import ReaderSet, query_words
from holdfast.testing.memory_items import item

ALICE = ReaderSet(Audience.PERSONAL, "personal:alice", "alice")
OPS = ReaderSet(Audience.TEAM, "team:ops", "bob")


class MemoryPlace(Protocol):
    """A home's memory, and changes by programs without the key."""

    def open(self) -> Memory:
        """Open it as a new process does."""
        ...

    def forge(self, name: str, body: bytes) -> None:
        """Change the stored body of a row, and nothing else."""
        ...


class MemorySuite:
    """The contract of `ports/memory.py`."""

    @pytest.fixture
    def place(self) -> MemoryPlace:
        raise NotImplementedError("bring a place")

    @pytest.fixture
    def memory(self, place: MemoryPlace) -> Memory:
        return place.open()

    def find(
        self, memory: Memory, text: str, reader_set: ReaderSet = ALICE, limit: int = 8
    ) -> MemoryMatches:
        return memory.find(query_words(text), reader_set, limit=limit, seconds=60)

    def test_an_added_item_is_found_by_any_of_its_words_and_by_the_next_process(
        self, place: MemoryPlace, memory: Memory
    ) -> None:
        assert memory.is_empty()
        assert memory.add(item("1"))
        assert not memory.is_empty()
        for known in (memory, place.open()):
            assert self.find(known, "which CODE opens it?") == MemoryMatches((item("1"),))
            assert known.get("m-1") == item("1")
            assert self.find(known, "nothing of that").items == ()

    def test_the_same_id_again_changes_nothing(self, memory: Memory) -> None:
        """A call that runs again after a crash remembers one item."""
        assert memory.add(item("1"))
        assert not memory.add(item("1", "the door code is 0000", created_at=1))
        assert [row.item for row in memory.rows()] == [item("1")]

    def test_the_best_come_first_and_no_more_than_asked_for(self, memory: Memory) -> None:
        memory.add(item("1", "the office has a door"))
        memory.add(item("2", "the office in berlin has a door with a code"))
        memory.add(item("3", "lunch is at noon"))
        assert [each.id for each in self.find(memory, "berlin office door code").items] == [
            "m-2",
            "m-1",
        ]
        assert [
            each.id for each in self.find(memory, "berlin office door code", limit=1).items
        ] == ["m-2"]

    @pytest.mark.parametrize(
        "other",
        [
            {"person": "Alice"},
            {"person": "alicé", "boundary": "personal:alicé"},
            {"person": "alice\u0301", "boundary": "personal:alice\u0301"},
            {"person": "bob", "boundary": "personal:bob"},
            {"boundary": "personal:Alice"},
            {"boundary": "team:ops"},
            {"audience": "team"},
            {"audience": "public", "boundary": "public"},
            {"audience": ""},
            {"audience": "everybody"},
        ],
        ids=str,
    )
    def test_a_search_is_narrowed_to_its_reader_set(
        self, memory: Memory, other: dict[str, str]
    ) -> None:
        memory.add(item("theirs", **other))
        memory.add(item("mine"))
        assert self.find(memory, "door code") == MemoryMatches((item("mine"),))
        assert self.find(memory, "door code", OPS).items == ()

    def test_a_team_finds_what_any_of_it_formed(self, memory: Memory) -> None:
        shared = item("ours", audience="team", boundary="team:ops", person="carol")
        memory.add(shared)
        memory.add(item("other", audience="team", boundary="team:dev", person="carol"))
        assert self.find(memory, "door code", OPS) == MemoryMatches((shared,))

    @pytest.mark.parametrize(
        "query",
        [
            '"',
            '" OR "',
            "door OR *",
            "reader set : x",
            "NEAR(door code)",
            "door^",
            "-door",
            "{door}",
            "') OR 1=1 --",
            "\0door",
            "🔑 \ud800 door",
            "(" * 500,
        ],
        ids=repr,
    )
    def test_nothing_in_a_query_has_a_meaning_of_its_own(self, memory: Memory, query: str) -> None:
        """This holds for words, and for input that is not a word."""
        memory.add(item("mine"))
        memory.add(item("theirs", person="bob", boundary="personal:bob"))
        assert set(self.find(memory, query).items) <= {item("mine")}
        assert memory.find([query], ALICE, limit=8, seconds=60).items == ()

    def test_a_row_that_does_not_verify_is_never_an_item_and_is_listed_as_what_it_is(
        self, place: MemoryPlace, memory: Memory
    ) -> None:
        memory.add(item("1"))
        memory.add(item("2", "the door of the cellar"))
        place.forge("m-1", msgspec.json.encode(item("1", "the door code is 6666")))
        known = place.open()
        assert self.find(known, "door") == MemoryMatches(
            (item("2", "the door of the cellar"),), unverified=1
        )
        assert known.get("m-1") is None
        assert list(known.rows()) == [
            MemoryRow("m-1", None),
            MemoryRow("m-2", item("2", "the door of the cellar")),
        ]
        assert known.forget("m-1")
        assert self.find(known, "door").unverified == 0

    def test_a_row_of_another_id_is_not_believed(self, place: MemoryPlace, memory: Memory) -> None:
        memory.add(item("1"))
        memory.add(item("2", person="bob", boundary="personal:bob"))
        place.forge("m-1", msgspec.json.encode(item("2", person="bob", boundary="personal:bob")))
        assert place.open().get("m-1") is None

    def test_a_forgotten_item_is_gone(self, place: MemoryPlace, memory: Memory) -> None:
        memory.add(item("1"))
        memory.add(item("2"))
        assert memory.forget("m-1")
        assert not memory.forget("m-1")
        known = place.open()
        assert (known.get("m-1"), [row.id for row in known.rows()]) == (None, ["m-2"])
        assert [each.id for each in self.find(known, "door code").items] == ["m-2"]

    def test_rows_come_in_pages_oldest_first(self, memory: Memory) -> None:
        for name in ("c", "a", "b"):
            memory.add(item(name))
        assert [row.id for row in memory.rows(limit=2)] == ["m-c", "m-a"]
        assert [row.id for row in memory.rows(after="m-a")] == ["m-b"]
        assert [row.id for row in memory.rows(after="m-b")] == []
        assert [row.id for row in memory.rows(after="m-gone")] == []

    def test_an_empty_memory_finds_and_lists_nothing(self, memory: Memory) -> None:
        assert (
            self.find(memory, "door"),
            memory.get("m-1"),
            list(memory.rows()),
            memory.forget("m-1"),
        ) == (MemoryMatches(()), None, [], False)
        assert memory.is_empty()

    def test_a_boundary_is_not_filled_without_end(
        self, memory: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from holdfast.errors import Refused

        monkeypatch.setattr(limits, "MEMORY_ITEMS_PER_BOUNDARY_MAX", 2)
        memory.add(item("1"))
        memory.add(item("2"))
        with pytest.raises(Refused) as refused:
            memory.add(item("3"))
        assert (refused.value.code, memory.get("m-3")) == ("too_many", None)
        assert memory.add(item("4", person="bob", boundary="personal:bob"))
