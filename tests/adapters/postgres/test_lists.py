"""Index, search and memory in SQL: shared rows that count only with a mac, and words nobody sees."""

import asyncio
import time
from collections.abc import Callable, Generator

import msgspec
import pytest
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.lists.index import PostgresIndex
from holdfast.adapters.postgres.lists.memory import PostgresMemory
from holdfast.adapters.postgres.lists.search import PostgresSearch
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.ids import ApprovalId, InstanceId, TurnId
from holdfast.ports.search import SearchedText
from holdfast.session.features.memory.items import query_words
from holdfast.testing.conformance.index import OPS, row
from holdfast.testing.conformance.memory import ALICE
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_items import item

INSTANCE = InstanceId("i-first")


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


@pytest.fixture
def store(world: PostgresWorld) -> PostgresStore:
    return asyncio.run(world.store())


# --- Index


@pytest.mark.parametrize(
    "change",
    [
        "owes = 1",
        "running = 1",
        "seq = seq + 1",
        "session = 'ops/other'",
        "remind_at = 5",
        "prompts = rest",
        "waiting = 0",
    ],
)
@in_loop
async def test_a_changed_row_is_not_believed_and_gives_way_to_any_of_ours(
    world: PostgresWorld, store: PostgresStore, change: str
) -> None:
    index = PostgresIndex(store)
    await index.put(row(seq=7, waits="a-1"))
    world.rows(f"update standing set {change}")  # noqa: S608  ours
    assert [each async for each in index.rows()] == []
    assert [each async for page in index.prompting() for each in page] == []
    assert [each async for page in index.due(until=9_000) for each in page] == []
    assert [each async for each in index.with_jobs()] == []
    assert await index.next_reminder(after=0) is None
    assert await index.stale([(OPS, INSTANCE, 1)]) == [OPS]
    await index.put(row(seq=2))
    assert await index.get(OPS) == row(seq=2)


@in_loop
async def test_the_session_of_a_prompt_can_not_be_changed_by_hand(
    world: PostgresWorld, store: PostgresStore
) -> None:
    index = PostgresIndex(store)
    await index.put(row(waits="a-1"), [])
    await index.put_approval(ApprovalId("a-1"), OPS)
    world.rows("update belongs set session = 'ops/other'")
    assert await index.session_of(ApprovalId("a-1")) is None


# --- Search


def said(seq: int, text: str, *, turn: str = "t1", instance: InstanceId = INSTANCE) -> SearchedText:
    return SearchedText(
        session=OPS,
        instance=instance,
        turn=TurnId(turn),
        seq=seq,
        at=1_000 + seq,
        kind="request",
        who="alice",
        audience="personal",
        boundary="personal:alice",
        text=text,
    )


def texts(search: PostgresSearch, *words: str) -> list[str]:
    return [hit.said.text for hit in search.find(words, limit=20)]


def test_text_is_found_by_all_its_words_newest_first_whatever_their_case_and_accents(
    world: PostgresWorld, store: PostgresStore
) -> None:
    search = PostgresSearch(store)
    search.add(
        OPS, INSTANCE, 9, [said(2, "Das Caf\u00e9 am Platz"), said(3, "ein cafe, sonst nichts")]
    )
    other = PostgresSearch(asyncio.run(world.store()))
    assert texts(other, "CAFE") == ["ein cafe, sonst nichts", "Das Caf\u00e9 am Platz"]
    assert texts(other, "cafe", "platz") == ["Das Caf\u00e9 am Platz"]
    assert texts(other, "cafe am") == ["Das Caf\u00e9 am Platz"]
    assert texts(other, "am-caf\u00e9") == []
    assert texts(other, "!!!") == []
    assert other.through() == {OPS: (INSTANCE, 9)}
    assert other.turn_reader_set(OPS, TurnId("t1")) == ("personal", "personal:alice")


def test_the_same_text_added_by_two_nodes_is_found_once(store: PostgresStore) -> None:
    search = PostgresSearch(store)
    for _ in range(2):
        search.add(OPS, INSTANCE, 9, [said(2, "one branch")])
    search.add(OPS, INSTANCE, 5, [])
    assert (texts(search, "branch"), search.through()) == (["one branch"], {OPS: (INSTANCE, 9)})


def test_pages_of_hits_join_without_a_gap(store: PostgresStore) -> None:
    search = PostgresSearch(store)
    search.add(OPS, INSTANCE, 60, [said(seq, f"branch {seq}") for seq in range(2, 52)])
    seen: list[int] = []
    cursor: str | None = None
    while page := search.find(["branch"], limit=7, after=cursor):
        seen += [hit.said.seq for hit in page]
        cursor = page[-1].cursor
    assert seen == list(range(51, 1, -1))


def test_a_changed_text_is_not_found_and_a_new_instance_replaces_the_old(
    world: PostgresWorld, store: PostgresStore
) -> None:
    search = PostgresSearch(store)
    search.add(OPS, INSTANCE, 9, [said(2, "one branch")])
    world.rows("update said set body = replace(convert_from(body, 'UTF8'), 'one', 'two')::bytea")
    assert texts(search, "branch") == []
    later = InstanceId("i-later")
    search.add(OPS, later, 3, [said(2, "another branch", instance=later)])
    assert (texts(search, "branch"), search.through()) == (["another branch"], {OPS: (later, 3)})
    search.forget(OPS)
    assert (texts(search, "branch"), search.through()) == ([], {})


def test_the_readers_of_a_turn_come_from_no_row_of_another_turn(
    world: PostgresWorld, store: PostgresStore
) -> None:
    """A genuine row that stands in the place of another one says who reads something else."""
    search = PostgresSearch(store)
    shown = msgspec.structs.replace(
        said(3, "for all", turn="t2"), audience="team", boundary="team:ops"
    )
    search.add(OPS, INSTANCE, 9, [said(2, "a secret"), shown])
    assert search.turn_reader_set(OPS, TurnId("t1")) == ("personal", "personal:alice")
    world.rows(
        "update said set (body, mac) = (select body, mac from said where turn = 't2') "
        "where turn = 't1'"
    )
    assert search.turn_reader_set(OPS, TurnId("t1")) is None


def test_a_forged_note_of_how_far_a_session_was_read_is_not_believed(
    world: PostgresWorld, store: PostgresStore
) -> None:
    search = PostgresSearch(store)
    search.add(OPS, INSTANCE, 9, [said(2, "one branch")])
    world.rows("update said_through set seq = 900")
    assert search.through() == {}


# --- Memory


def test_the_database_learns_no_word_of_a_memory(
    world: PostgresWorld, store: PostgresStore
) -> None:
    """Neither as text nor as a digest that a dictionary would find."""
    from holdfast.adapters.postgres.lists.words import digests_of
    from holdfast.adapters.sqlite.memory_rows import reader_set_key

    memory = PostgresMemory(store)
    memory.add(item("1", "the Berlin door code is opensesame"))
    memory.add(item("2", "the Berlin door code is opensesame"))
    dumped = [
        repr(bytes(each) if isinstance(each, memoryview | bytes) else each)
        for table in ("memory", "memory_size", "spread")
        for found in world.rows(f"select * from {table}")  # noqa: S608  ours
        for each in found
    ]
    assert not [each for each in dumped for word in ("erlin", "door", "sesame") if word in each]
    reader_set = reader_set_key("personal", "personal:alice", "alice")
    guessed = set(digests_of(bytes(32), reader_set, ["berlin", "door", "code", "opensesame"]))
    assert not guessed & {found[0] for found in world.rows("select digest from spread")}
    bodies = world.rows("select body from memory")
    assert bodies[0] != bodies[1]
    assert len(memory.find(query_words("berlin"), ALICE, limit=8, seconds=60).items) == 2


def test_a_memory_outlives_a_rotation_of_the_keys(
    world: PostgresWorld, store: PostgresStore
) -> None:
    memory = PostgresMemory(store)
    memory.add(item("1"))
    asyncio.run(store.rotate_keys(by="tests"))
    memory.add(item("2"))
    generations = world.rows("select generation from memory order by id")
    assert generations == [(1,), (2,)]
    found = memory.find(query_words("door code"), ALICE, limit=8, seconds=60)
    assert {each.id for each in found.items} == {"m-1", "m-2"}


def test_a_process_that_was_away_while_a_key_was_rotated_believes_what_is_under_it(
    world: PostgresWorld,
) -> None:
    """It has not read the home since, and must not report a memory of ours as one that was changed."""
    first, second = (asyncio.run(world.store()) for _ in range(2))
    memory = PostgresMemory(second)
    memory.add(item("1"))
    asyncio.run(first.rotate_keys(by="tests"))
    PostgresMemory(first).add(item("2"))
    found = memory.find(query_words("door code"), ALICE, limit=8, seconds=60)
    assert {each.id for each in found.items} == {"m-1", "m-2"}
    assert found.unverified == 0


def test_the_counts_behind_the_ranking_follow_what_is_forgotten(
    world: PostgresWorld, store: PostgresStore
) -> None:
    memory = PostgresMemory(store)
    memory.add(item("1"))
    memory.add(item("2"))
    assert memory.forget("m-1")
    assert memory.forget("m-2")
    assert world.rows("select items, words from memory_size") == [(0, 0)]
    assert world.rows("select distinct items from spread") == [(0,)]
    assert memory.find(query_words("door code"), ALICE, limit=8, seconds=60).items == ()


def test_another_process_learns_of_the_first_memory(world: PostgresWorld) -> None:
    first, second = (asyncio.run(world.store(lease_seconds=1.0)) for _ in range(2))
    memory = PostgresMemory(second)
    assert memory.is_empty()
    PostgresMemory(first).add(item("1"))
    ends = time.monotonic() + 20
    while memory.is_empty() and time.monotonic() < ends:
        time.sleep(0.05)
    assert not memory.is_empty()


def test_a_server_that_is_gone_is_reported_as_a_memory_that_can_not_be_read(
    world: PostgresWorld, store: PostgresStore
) -> None:
    from holdfast.ports.memory import CannotRecall

    memory = PostgresMemory(store)
    memory.add(item("1"))
    world.rows("alter table memory rename to elsewhere")
    with pytest.raises(CannotRecall):
        memory.get("m-1")


def test_a_recall_waits_no_longer_than_it_may(world: PostgresWorld, store: PostgresStore) -> None:
    from holdfast.ports.memory import CannotRecall

    memory = PostgresMemory(store)
    memory.add(item("1"))
    with world.outsider.transaction():
        world.rows("lock table memory in access exclusive mode")
        with pytest.raises(CannotRecall, match="took too long"):
            memory.find(query_words("door"), ALICE, limit=8, seconds=0.2)
    assert memory.find(query_words("door"), ALICE, limit=8, seconds=60).items
