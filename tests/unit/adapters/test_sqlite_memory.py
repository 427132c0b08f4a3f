"""
Damage to the file of the memory: slow queries, locks, other programs' files, keys that come
and go, and being forgotten.
"""

import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from holdfast.adapters.sqlite.memory import SqliteMemory, copy_memory
from holdfast.errors import NotSaved, Refused
from holdfast.ports.memory import CannotRecall, MemoryMatches
from holdfast.session.features.memory.items import MemoryItem, query_words
from holdfast.testing.conformance.memory import ALICE
from holdfast.testing.memory_items import item

KEYS = {1: os.urandom(32), 2: os.urandom(32)}
WORDS = query_words("door code")


def of_keys(keys: dict[int, bytes]) -> Callable[[int | None], tuple[int, bytes] | None]:
    def key(generation: int | None) -> tuple[int, bytes] | None:
        named = max(keys, default=0) if generation is None else generation
        return (named, keys[named]) if named in keys else None

    return key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def memory_at(path: Path, keys: dict[int, bytes] = KEYS) -> SqliteMemory:
    return SqliteMemory(path, of_keys(keys))


def add_all(memory: SqliteMemory, items: list[MemoryItem]) -> None:
    """In one transaction: a sync for each would take a while."""
    with memory._writing() as db:
        for each in items:
            memory._insert(db, each)


def found(memory: SqliteMemory, seconds: float = 60) -> MemoryMatches:
    return memory.find(WORDS, ALICE, limit=8, seconds=seconds)


def test_looking_makes_no_file_and_remembering_makes_one_for_its_owner_alone(path: Path) -> None:
    memory = memory_at(path)
    assert found(memory) == MemoryMatches(())
    assert not path.exists()
    memory.add(item("1"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    memory.close()


def test_a_rotation_of_keys_forgets_nothing_and_a_lost_key_believes_nothing(path: Path) -> None:
    before = memory_at(path, {1: KEYS[1]})
    before.add(item("1"))
    before.close()
    after = memory_at(path)
    after.add(item("2"))
    assert {each.id for each in found(after).items} == {"m-1", "m-2"}
    after.close()
    lost = memory_at(path, {2: KEYS[2]})
    assert ([each.id for each in found(lost).items], found(lost).unverified) == (["m-2"], 1)
    lost.close()
    without = memory_at(path, {})
    with pytest.raises(Refused) as refused:
        without.add(item("3"))
    assert (refused.value.code, found(without)) == ("no_key", MemoryMatches((), unverified=2))
    without.close()


def test_rows_moved_to_another_boundary_or_generation_do_not_verify(path: Path) -> None:
    memory = memory_at(path)
    memory.add(item("1"))
    for change in (
        "boundary = 'team:ops'",
        "generation = 1",
        "generation = 'x'",
        "mac = 'x'",
        "id = 'm-9'",
    ):
        with sqlite3.connect(path) as db:
            before = db.execute("SELECT id, boundary, generation, mac FROM items").fetchall()[0]
            db.execute(f"UPDATE items SET {change}")  # noqa: S608  # our own words
        db.close()
        assert [row.item for row in memory.rows()] == [None], change
        with sqlite3.connect(path) as db:
            db.execute("UPDATE items SET id = ?, boundary = ?, generation = ?, mac = ?", before)
        db.close()
    assert [row.item for row in memory.rows()] == [item("1")]
    memory.close()


def test_a_search_that_takes_too_long_is_given_up(path: Path) -> None:
    """
    The bound is looked at between SQLite's steps: one that is over already stops at the first look.
    """
    memory = memory_at(path)
    add_all(memory, [item(str(number)) for number in range(400)])
    with pytest.raises(CannotRecall, match="too long"):
        found(memory, seconds=-1.0)
    assert len(found(memory).items) == 8
    memory.close()


def test_a_search_does_not_wait_for_the_process_that_holds_the_file(path: Path) -> None:
    memory = memory_at(path)
    memory.add(item("1"))
    other = apsw.Connection(
        str(path)
    )  # of the same library: locks of one process do not hinder another copy of SQLite in it
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CannotRecall, match="writing"):
        found(memory, seconds=0.01)
    other.execute("ROLLBACK")
    other.close()
    assert len(found(memory).items) == 1
    memory.close()


def test_a_search_does_not_wait_for_another_of_the_same_process(path: Path) -> None:
    memory = memory_at(path)
    memory.add(item("1"))
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with memory._guard:
            held.set()
            let_go.wait(timeout=60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(timeout=60)
        with pytest.raises(CannotRecall, match="busy"):
            found(memory, seconds=0.01)
    finally:
        let_go.set()
        holder.join()
    memory.close()


@pytest.mark.parametrize("kind", ["text", "another program", "newer", "folder"])
def test_a_file_that_is_not_ours_is_never_touched(path: Path, kind: str) -> None:
    if kind == "text":
        path.write_bytes(b"dear diary " * 500)
    elif kind == "folder":
        path.mkdir()
    else:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE theirs (x)")
            db.execute(f"PRAGMA user_version = {2 if kind == 'newer' else 0}")
            db.execute(f"PRAGMA application_id = {0x484F4C4D if kind == 'newer' else 7}")
        db.close()
    before = path.read_bytes() if path.is_file() else b""
    memory = memory_at(path)
    with pytest.raises(CannotRecall):
        found(memory)
    with pytest.raises(CannotRecall):
        memory.rows()
    with pytest.raises(NotSaved):
        memory.add(item("1"))
    with pytest.raises(NotSaved):
        memory.forget("m-1")
    assert (path.read_bytes() if path.is_file() else b"") == before
    memory.close()


def test_an_item_that_is_not_saved_is_not_there(path: Path) -> None:
    """
    Another process holds the file longer than a writer waits: nothing is kept, and the error says so.
    """
    memory = memory_at(path)
    memory.add(item("1"))
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TRIGGER no BEFORE INSERT ON items BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    db.close()
    with pytest.raises(NotSaved, match="no room"):
        memory.add(item("2"))
    assert [row.id for row in memory.rows()] == ["m-1"]
    memory.close()


def test_a_symlink_is_not_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    path.symlink_to(tmp_path / "elsewhere")
    memory = memory_at(path)
    with pytest.raises(NotSaved):
        memory.add(item("1"))
    assert (tmp_path / "elsewhere").read_bytes() == b""
    memory.close()


def test_forget_erases_every_byte_and_the_index_never_stores_plain_words(
    path: Path,
) -> None:
    memory = memory_at(path)
    memory.add(item("1", "the password is xylophone"))
    memory.add(item("2"))
    with sqlite3.connect(path) as db:
        index = b"".join(
            bytes(block) for (block,) in db.execute("SELECT block FROM words_data").fetchall()
        )
    db.close()
    assert b"xylophone" not in index
    assert b"xylophone" in path.read_bytes()
    assert memory.forget("m-1")
    assert b"xylophone" not in path.read_bytes()
    memory.close()


def test_every_commit_is_synced_with_its_folder(path: Path) -> None:
    memory = memory_at(path)
    memory.add(item("1"))
    assert memory._db is not None
    assert memory._db.pragma("synchronous") == 3
    assert memory._db.pragma("journal_mode") == "delete"
    memory.close()


def test_common_words_do_not_keep_rare_ones_from_being_found(path: Path) -> None:
    """Words that all items hold are looked up last; what one holds is found among hundreds."""
    memory = memory_at(path)
    add_all(
        memory, [item(str(number), f"the door code of house {number}") for number in range(600)]
    )
    memory.add(item("rare", "the door code of the lighthouse"))
    assert (
        memory.find(query_words("door code lighthouse"), ALICE, limit=1, seconds=60).items[0].id
        == "m-rare"
    )
    memory.close()


def test_a_copy_is_of_one_moment_and_nobody_is_stopped(path: Path, tmp_path: Path) -> None:
    memory = memory_at(path)
    memory.add(item("1"))
    copy_memory(path, tmp_path / "copy.db")
    memory.add(item("2"))
    copied = memory_at(tmp_path / "copy.db")
    assert [row.item for row in copied.rows()] == [item("1")]
    copied.close()
    memory.close()
    copy_memory(tmp_path / "absent.db", tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_memory_follows_its_file_after_a_deletion_or_a_replacement(
    path: Path, tmp_path: Path
) -> None:
    memory = memory_at(path)
    memory.add(item("1"))
    path.unlink()
    assert (memory.is_empty(), found(memory), list(memory.rows())) == (True, MemoryMatches(()), [])
    memory.add(item("2"))
    copy_memory(path, tmp_path / "copy.db")
    memory.add(item("3"))
    (tmp_path / "copy.db").rename(path)
    assert [row.id for row in memory.rows()] == ["m-2"]
    memory.close()


def test_a_forked_child_opens_the_file_anew(path: Path) -> None:
    memory = memory_at(path)
    memory.add(item("1"))
    ours = memory._db
    memory._pid = -1  # as a child finds it
    assert len(found(memory).items) == 1
    assert memory._db is not ours
    memory.close()
    assert ours is not None
    ours.close()


@pytest.mark.parametrize("way", ["garbage", "folder", "fifo", "symlink"])
def test_a_file_that_can_not_be_copied_is_named_and_the_backup_fails(
    path: Path, tmp_path: Path, way: str
) -> None:
    match way:
        case "garbage":
            path.write_bytes(b"no database" * 1000)
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            memory_at(tmp_path / "elsewhere").add(item("1"))
            path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotSaved) as caught:
        copy_memory(path, tmp_path / "copy")
    assert "doctor" in caught.value.hint
