"""
Damage to the index's file: deleted, garbled, forged, locked, shared, left behind by a crash.
Nobody is told, and nothing is forgotten.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.adapters.files import FileStore
from holdfast.adapters.sqlite import index as module
from holdfast.adapters.sqlite import index_file
from holdfast.adapters.sqlite.index import LAYOUT, SqliteIndex
from holdfast.ids import ApprovalId, SessionId
from holdfast.testing.conformance.index import INSTANCE, OPS, row
from holdfast.testing.conformance.store import create_session, say
from holdfast.testing.loop import in_loop

KEY = bytes(range(32))


class Now:
    """An index for callers without an event loop: over SQLite nothing waits."""

    def __init__(self, index: SqliteIndex) -> None:
        self.index = index

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.index, name)
        if name == "close":
            return method

        async def done(found: Any) -> Any:
            return [each async for each in found] if hasattr(found, "__aiter__") else await found

        return lambda *given, **named: asyncio.run(done(method(*given, **named)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., Now]]:
    """Indexes on one path, each as another process would have it."""
    with contextlib.ExitStack() as stack:

        def open_(key: bytes = KEY, busy_ms: int = LAYOUT.busy_ms) -> Now:
            layout = LAYOUT._replace(busy_ms=busy_ms)
            index = SqliteIndex(path, lambda: (key,), layout=layout)
            stack.callback(index.close)
            return Now(index)

        yield open_


def outside(path: Path, sql: str) -> None:
    """Somebody with SQLite and without the key."""
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute(sql)


# Forged


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE sessions SET prompts = replace(CAST(prompts AS TEXT), 'rm -r build', 'ls')",
        "UPDATE sessions SET prompts = CAST(replace(CAST(prompts AS TEXT), 'rm -r build', 'ls') AS BLOB)",
        "UPDATE sessions SET waiting = 0",
        "UPDATE sessions SET waiting = NULL WHERE 0; UPDATE sessions SET waiting = 0.5",
        "UPDATE sessions SET remind_at = 1",
        "UPDATE sessions SET seq = 99",
        "UPDATE sessions SET seq = 7.5",
        "UPDATE sessions SET instance = 'i-other'",
        "UPDATE sessions SET mac = zeroblob(32)",
        "UPDATE sessions SET session = 'ops/db'",
        "UPDATE sessions SET rest = zeroblob(1)",
        "UPDATE sessions SET owes = 1",
        "UPDATE sessions SET running = 1",
        "UPDATE sessions SET expires_at = 9001",
        "DELETE FROM sessions",
    ],
)
def test_a_forged_row_is_not_shown_and_its_session_is_opened_instead(
    path: Path, opened: Callable[..., Now], sql: str
) -> None:
    """And what the journal says then is kept, whatever the forged row claimed to be."""
    opened().put(row(seq=7, waits="a-1"))
    outside(path, sql)
    index = opened()
    assert (list(index.rows()), list(index.rows(only_waiting=True)), index.get(OPS)) == (
        [],
        [],
        None,
    )
    assert [each for page in index.prompting() for each in page] == []
    assert [each for page in index.due(until=9_000) for each in page] == []
    assert list(index.with_jobs()) == []
    assert list(index.stale([(OPS, INSTANCE, 7)])) == [OPS]
    index.put(row(seq=7, waits="a-1"))
    assert list(index.rows(only_waiting=True)) == [row(seq=7, waits="a-1")]
    assert list(index.stale([(OPS, INSTANCE, 7)])) == []


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE sessions SET remind_at = 9000",
        "UPDATE sessions SET remind_at = 1.5",
        "UPDATE sessions SET remind_at = 0",
    ],
)
def test_a_forged_time_of_a_reminder_wakes_nobody_and_is_found_by_the_next_look(
    path: Path, opened: Callable[..., Now], sql: str
) -> None:
    """
    Put off or brought forward: the row is not believed, so its session is opened, and the others'
    reminders are found as before.
    """
    index = opened()
    index.put(row(reminds=3_000))
    outside(path, sql)
    index.put(row("ops/later", reminds=7_000))
    assert (index.next_reminder(after=0), list(index.reminding(after=0, until=10_000))) == (
        7_000,
        ["ops/later"],
    )
    assert list(index.stale([(OPS, INSTANCE, 1)])) == [OPS]


@pytest.mark.parametrize(
    "sql", ["UPDATE sessions SET expires_at = 4000", "UPDATE sessions SET expires_at = 0"]
)
def test_a_forged_end_of_a_prompt_moves_no_timer_and_is_found_by_the_next_look(
    path: Path, opened: Callable[..., Now], sql: str
) -> None:
    index = opened()
    index.put(row(waits="a-1", expires=3_000))
    outside(path, sql)
    index.put(row("ops/later", waits="a-2", expires=7_000))
    assert index.next_expiry(after=0) == 7_000
    assert list(index.stale([(OPS, INSTANCE, 1)])) == [OPS]


def test_a_timer_query_searches_an_index_without_a_scan(
    path: Path, opened: Callable[..., Now]
) -> None:
    index = opened()
    index.put(row(waits="a-1"))
    db = apsw.Connection(str(path))
    try:
        for column, name in (
            ("expires_at", "sessions_expiring"),
            ("remind_at", "sessions_reminding"),
        ):
            plan = db.execute(
                f"EXPLAIN QUERY PLAN {module._PAGES_BY_TIME[column]}", (0, "", 1, 1)
            ).fetchall()
            assert [step[-1].split(" (")[0] for step in plan] == [
                f"SEARCH sessions USING INDEX {name}"
            ]
    finally:
        db.close()


def test_an_old_row_put_back_is_behind(path: Path, opened: Callable[..., Now]) -> None:
    """It is genuine; the head says that it is not the last."""
    opened().put(row(seq=7, waits="a-1"))
    older = path.read_bytes()
    opened().put(row(seq=8))
    path.write_bytes(older)
    assert list(opened().stale([(OPS, INSTANCE, 8)])) == [OPS]


def test_malformed_text_is_noticed(path: Path, opened: Callable[..., Now]) -> None:
    opened().put(row())
    outside(path, "UPDATE sessions SET session = CAST(x'ff' AS TEXT)")
    assert list(opened().stale([(OPS, INSTANCE, 1)])) == [OPS]


def test_a_prompt_is_not_sent_to_another_session(path: Path, opened: Callable[..., Now]) -> None:
    opened().put_approval(ApprovalId("a-1"), OPS)
    outside(path, "UPDATE approvals SET session = 'ops/db'")
    assert opened().session_of(ApprovalId("a-1")) is None


def test_rows_under_another_key_are_nobodys(opened: Callable[..., Now]) -> None:
    """After a rotation the index is filled anew."""
    opened().put(row())
    other = opened(bytes(32))
    assert list(other.rows()) == []
    assert list(other.stale([(OPS, INSTANCE, 1)])) == [OPS]


# Deleted, garbled, foreign, in the way


def test_deleted_while_it_is_open(path: Path, opened: Callable[..., Now]) -> None:
    """The next use makes a new one; others that have it open see the same new one."""
    here, there = opened(), opened()
    here.put(row())
    assert list(there.rows()) == [row()]
    path.unlink()
    assert list(there.stale([(OPS, INSTANCE, 1)])) == [OPS]
    there.put(row(seq=2))
    assert list(here.rows()) == list(there.rows()) == [row(seq=2)]


def test_replaced_by_an_older_copy_while_it_is_open(path: Path, opened: Callable[..., Now]) -> None:
    index = opened()
    index.put(row(seq=1))
    copy = path.read_bytes()
    index.put(row(seq=2))
    path.unlink()
    path.write_bytes(copy)
    assert list(index.rows()) == [row(seq=1)]


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff" * 9000)


def short_garbage(path: Path) -> None:
    path.write_bytes(b"no")


def foreign(path: Path) -> None:
    outside(path, "CREATE TABLE sessions (x); PRAGMA user_version = 1; PRAGMA journal_mode = WAL")


def of_a_newer_version(path: Path) -> None:
    outside(
        path,
        f"CREATE TABLE sessions (x); PRAGMA application_id = {module.LAYOUT.application}; PRAGMA user_version = 999",
    )


def without_its_tables(path: Path) -> None:
    outside(
        path,
        f"CREATE TABLE boot (id TEXT); PRAGMA application_id = {module.LAYOUT.application}; PRAGMA user_version = {module.LAYOUT.version}",
    )


def a_symlink(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(b"precious")
    path.symlink_to("elsewhere")


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    "put_there",
    [garbage, short_garbage, foreign, of_a_newer_version, without_its_tables, a_symlink, a_fifo],
)
def test_a_foreign_index_file_is_replaced(
    path: Path, opened: Callable[..., Now], put_there: Callable[[Path], None]
) -> None:
    put_there(path)
    index = opened()
    assert list(index.stale([(OPS, INSTANCE, 1)])) == [OPS]
    index.put(row())
    assert list(opened().rows()) == [row()]
    elsewhere = path.parent / "elsewhere"
    assert not elsewhere.exists() or elsewhere.read_bytes() == b"precious"


def test_overwritten_while_it_is_open(path: Path, opened: Callable[..., Now]) -> None:
    """The same inode, every byte another."""
    index = opened()
    for number in range(400):
        index.put(row(f"ops/{number:03d}"))
    with path.open("r+b") as file:
        file.write(b"\xa5" * path.stat().st_size)
    assert list(index.stale([(OPS, INSTANCE, 1)])) == [OPS]
    index.put(row())
    assert list(opened().rows()) == [row()]


def test_cut_while_it_is_open(path: Path, opened: Callable[..., Now]) -> None:
    index = opened()
    for number in range(400):
        index.put(row(f"ops/{number:03d}"))
    os.truncate(path, 8192)
    index.put(row(seq=2))
    assert opened().get(OPS) == row(seq=2)


def test_only_the_owner_may_read_the_index_file(path: Path, opened: Callable[..., Now]) -> None:
    """It holds what people were asked."""
    before = os.umask(0)
    try:
        opened().put(row())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_locked_file_is_bypassed_and_filled_later(path: Path, opened: Callable[..., Now]) -> None:
    """
    The caller waits once, for a moment; what it said meanwhile is listed, and reaches the file when
    the lock is gone.
    """
    opened().put(row("ops/before"))
    index = opened(busy_ms=20)
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("BEGIN EXCLUSIVE")
        index.put(row(waits="a-1"))
        index.put_approval(ApprovalId("a-1"), OPS)
        assert list(index.rows()) == [row(waits="a-1")]
        assert list(index.stale([(OPS, INSTANCE, 1), (SessionId("ops/before"), INSTANCE, 1)])) == [
            "ops/before"
        ]
    index.index._file._bypassed_until = 0.0
    assert list(index.rows()) == [row(waits="a-1"), row("ops/before")]
    assert opened().session_of(ApprovalId("a-1")) == OPS
    assert list(opened().rows()) == list(index.rows())


def test_an_index_without_its_folder_stays_in_memory(tmp_path: Path) -> None:
    index = Now(SqliteIndex(tmp_path / "absent" / "index.db", lambda: (KEY,)))
    index.put(row())
    assert list(index.rows()) == [row()]
    index.close()
    index.put(row())
    assert list(index.rows()) == []


def test_after_a_reboot_the_file_is_checked_once(
    path: Path, opened: Callable[..., Now], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is synced, so a power cut may have mixed pages of different times."""
    index = opened()
    for number in range(400):
        index.put(row(f"ops/{number:03d}"))
    monkeypatch.setattr(index_file, "_boot_id", lambda: "another boot")
    assert len(list(opened().rows())) == 400
    pages = path.read_bytes()
    mixed = pages[: -2 * 4096] + pages[4096 * 3 : 4096 * 5]
    path.unlink()
    path.write_bytes(mixed)
    monkeypatch.setattr(index_file, "_boot_id", lambda: "a third boot")
    assert list(opened().rows()) == []


# Several of us

_WRITER = """
import asyncio, sys
from pathlib import Path
from holdfast.adapters.sqlite import index as module
from holdfast.testing.conformance.index import row
# on a busy machine the other one may hold the file for longer than a turn would wait, and then it is bypassed
patient = module.LAYOUT._replace(busy_ms=60_000)
index = module.SqliteIndex(Path(sys.argv[1]), lambda: (bytes(range(32)),), layout=patient)
async def main():
    for number in range(300):
        await index.put(row(f"{sys.argv[2]}/{number:03d}", 1 + number % 3))
        await index.put(row("ops/shared", 1 + number))
asyncio.run(main())
index.close()
"""


def test_two_processes_lose_nothing_to_each_other(path: Path, opened: Callable[..., Now]) -> None:
    """Born by both at once, written by both; of the row that both put, the newest stays."""
    processes = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name])
        for name in ("one", "two")
    ]
    assert [process.wait(110) for process in processes] == [0, 0]
    rows = list(opened().rows())
    assert [each.session for each in rows] == [
        *(f"one/{number:03d}" for number in range(300)),
        "ops/shared",
        *(f"two/{number:03d}" for number in range(300)),
    ]
    assert opened().get(SessionId("ops/shared")) == row("ops/shared", 300)


def test_threads_share_one_index(opened: Callable[..., Now]) -> None:
    index = opened()

    def write(who: str) -> None:
        for number in range(100):
            index.put(row(f"{who}/{number:03d}"))
            list(index.rows(limit=5))

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(index.rows())) == 300


_KILLED_IN_MID_WRITE = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from holdfast.adapters.sqlite.index import SqliteIndex
from holdfast.testing.conformance.index import row
index = SqliteIndex(Path(sys.argv[1]), lambda: (bytes(range(32)),))
async def main():
    for number in range(10**9):
        await index.put(row(f"ops/{number % 500:03d}", number))
        if number == 600:
            print("going", flush=True)
asyncio.run(main())
"""


def test_a_writer_killed_at_any_moment_leaves_a_usable_file(
    path: Path, opened: Callable[..., Now]
) -> None:
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", _KILLED_IN_MID_WRITE, str(path)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"going\n"
            process.send_signal(signal.SIGKILL)
        index = opened()
        assert len(list(index.rows())) == 500
        index.put(row("ops/000", 10**9))
        assert index.get(SessionId("ops/000")) == row("ops/000", 10**9)
        path.unlink()


# With a store

_CRASHES_BEFORE_THE_INDEX = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.adapters.files import FileStore
from holdfast.adapters.sqlite.index import SqliteIndex
from holdfast.ids import InstanceId, SessionId
from holdfast.testing.conformance.store import create_session, say
from holdfast.testing.conformance.index import row
async def main():
    store = await FileStore.open_home(Path(sys.argv[1]))
    journal = await create_session(store)
    index = SqliteIndex(store.path / "index.db", store.index_keys)
    await index.put(row(seq=journal.head.seq))
    await say(journal, "a prompt")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@in_loop
async def test_a_crash_between_append_and_index_is_noticed(tmp_path: Path) -> None:
    """
    The anchor knows of the record, the row does not: the session is opened instead of believing the
    row.
    """
    killed = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-c", _CRASHES_BEFORE_THE_INDEX, str(tmp_path / "home")], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    store = await FileStore.open_home(tmp_path / "home")
    index = SqliteIndex(store.path / "index.db", store.index_keys)
    try:
        assert await index.get(OPS) is not None
        assert list(await index.stale(await store.heads())) == [OPS]
        journal = await store.open(OPS)
        await index.put(row(seq=journal.head.seq))
        assert list(await index.stale(await store.heads())) == []
    finally:
        index.close()
        await store.close()


def test_a_row_of_before_a_rotation_is_not_believed_and_accuses_nobody(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A process that stays follows the rotation by itself; a row under no key of ours is still said.
    """
    keys = [KEY]
    index = Now(SqliteIndex(path, lambda: tuple(keys)))
    index.put(row("ops/a"))
    keys.insert(0, bytes(32))
    assert list(index.rows()) == []
    assert caplog.messages == []
    index.put(row("ops/a"))
    assert [each.session for each in index.rows()] == ["ops/a"]
    keys[:] = [b"x" * 32]
    assert list(index.rows()) == []
    assert caplog.messages == ["the index has a row for 'ops/a' that is not ours"]
    index.close()


@in_loop
async def test_the_key_of_the_index_is_the_homes_and_turns_with_it(tmp_path: Path) -> None:
    """
    Equal in every process, another one after a rotation, and nobody's when the home has lost its
    own.
    """
    here, there = (
        await FileStore.open_home(tmp_path / "home"),
        await FileStore.open_home(tmp_path / "home"),
    )
    key = here.index_keys()
    assert key == there.index_keys()
    await here.rotate_keys(by="tests")
    await here.sessions()
    assert here.index_keys() != key
    await here.close()
    await there.close()
    for each in (tmp_path / "home" / "keys").iterdir():
        each.unlink()
    keyless = await FileStore.open_home(tmp_path / "home")
    assert keyless.index_keys() != keyless.index_keys()
    await keyless.close()


@in_loop
async def test_an_anchor_that_was_destroyed_has_its_session_opened(tmp_path: Path) -> None:
    """No row is as new as a head that nobody knows."""
    store = await FileStore.open_home(tmp_path / "home")
    try:
        journal = await create_session(store)
        await say(journal, "one")
        index = SqliteIndex(store.path / "index.db", store.index_keys)
        await index.put(row(seq=journal.head.seq))
        assert list(await index.stale(await store.heads())) == []
        table = tmp_path / "home" / "anchors" / "0000.anchors"
        table.write_bytes(bytes(table.stat().st_size))
        assert list(await index.stale(await store.heads())) == [OPS]
        index.close()
    finally:
        await store.close()
