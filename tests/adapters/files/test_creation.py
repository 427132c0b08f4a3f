"""Creations: whole or not at all; two at once make one; leftovers are removed."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.files import FileStore
from holdfast.errors import Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


def everything_in(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


@pytest.mark.parametrize("half", ["absent", "empty", "key only", "key and anchor"])
@in_loop
async def test_lists_on_a_home_that_does_not_exist_create_nothing(files: Any, half: str) -> None:
    if half != "absent":
        files.path.mkdir(mode=0o700)
    if half.startswith("key"):
        async with files.store():
            pass
        shutil.rmtree(files.path / "home")
        (files.path / "reserve").unlink()
        if half == "key only":
            shutil.rmtree(files.path / "anchors")
    before = everything_in(files.path)
    assert await FileStore.open_existing(files.path) is None
    assert everything_in(files.path) == before
    async with files.store() as store:
        assert await store.sessions() == []
    existing = await FileStore.open_existing(files.path)
    assert existing is not None
    await existing.close()


@in_loop
async def test_a_home_whose_journal_was_deleted_is_not_created_again(files: Any) -> None:
    """
    An anchor that remembers a journal, or sessions without one: cut short, never a fresh start.
    """
    await files.create()
    shutil.rmtree(files.path / "home")
    store = await FileStore.open_home(files.path)
    try:
        with pytest.raises(Untrusted):
            await store.create(
                SessionId("ops/db"), InstanceId("i9"), [], origin="created", by="tests"
            )
    finally:
        await store.close()


def test_two_processes_at_once_make_one_home(files: Any) -> None:
    code = (
        "import asyncio,sys\nfrom pathlib import Path\nfrom holdfast.adapters.files import FileStore\n"
        "from holdfast.ids import InstanceId, SessionId\n"
        "async def main(n):\n"
        "    store = await FileStore.open_home(Path(sys.argv[1]))\n"
        "    await store.create(SessionId(f'ops/s{n}'), InstanceId(f'i{n}'), [], origin='created', by='tests')\n"
        "    await store.close()\n"
        "asyncio.run(main(sys.argv[2]))\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(files.path), str(n)]) for n in range(4)
    ]
    assert [process.wait(60) for process in started] == [0, 0, 0, 0]

    async def reading() -> tuple[Any, str]:
        async with files.store() as store:
            return await store.sessions(), (await store.verify_session(SessionId("_home"))).verdict

    assert asyncio.run(reading()) == ([f"ops/s{n}" for n in range(4)], "holds")
    assert sorted(path.name for path in (files.path / "keys").iterdir()) == ["1.key"]


@in_loop
async def test_create_refuses_an_existing_name_and_leaves_its_session_unchanged(files: Any) -> None:
    await files.create()
    async with files.store() as store:
        with pytest.raises(Refused) as caught:
            await store.create(OPS, InstanceId("i2"), [], origin="created", by="tests")
        assert caught.value.code == "exists"
        assert await files.numbers(await store.open(OPS)) == list(range(20))


@in_loop
async def test_leftovers_of_a_creation_that_died_are_removed(files: Any) -> None:
    """Before SessionCreated the session does not exist."""
    async with files.store() as store:
        folder = files.path / "sessions/ops/api"
        folder.mkdir(parents=True, mode=0o700)
        (files.path / "sessions").chmod(0o700)
        (folder / "i0.00000001.jsonl").write_bytes(b"half\n")
        (folder.parent / ".api.new.tmp").mkdir()
        (folder.parent / ".api.gone.tmp").mkdir()
        (folder.parent / ".api.gone.tmp" / "i9.00000001.jsonl").write_bytes(b"half\n")
        assert await store.sessions() == []
        with pytest.raises(Refused):
            await store.open(OPS)
        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        assert [path.name for path in sorted(folder.parent.rglob("*"))] == [
            "api",
            "i1.00000001.jsonl",
        ]
        await journal.append(files.says(1), since=journal.head)


@in_loop
async def test_a_deleted_session_is_gone_and_its_name_is_free(files: Any) -> None:
    """A handle of the old instance is refused, also after the name exists again."""
    await files.create()
    async with files.store() as store:
        old = await store.open(OPS)
        await store.delete(OPS, by="alice")
        assert await store.sessions() == []
        assert not files.folder.exists()
        with pytest.raises(Refused):
            await old.append(files.says(1), since=old.head)
        fresh = await store.create(OPS, InstanceId("i2"), [], origin="created", by="tests")
        with pytest.raises(Refused):
            await old.append(files.says(1), since=old.head)
        assert await files.numbers(fresh) == []
        with pytest.raises(Refused):
            await store.delete(SessionId("ops/none"), by="alice")


@in_loop
async def test_a_deletion_that_died_halfway_does_not_stop_the_next_one(files: Any) -> None:
    await files.create()
    left = files.folder.parent / f".{files.folder.name}.gone.tmp"
    left.mkdir()
    (left / "i9.00000001.jsonl").write_bytes(b"half\n")
    async with files.store() as store:
        await store.delete(OPS, by="alice")
    assert list(files.folder.parent.iterdir()) == []


DIES_BEFORE_IT_REMOVES = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.adapters.files import FileStore
from holdfast.adapters.files.session import directory

async def main():
    store = await FileStore.open_home(Path(sys.argv[1]))
    directory.remove_session = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    await store.delete("ops/api", by="alice")

asyncio.run(main())
"""


@in_loop
async def test_a_deletion_that_died_after_its_record_is_finished_by_the_next_one(
    files: Any,
) -> None:
    """Nobody lists the session any more, so only the same command can remove its bytes."""
    await files.create()
    (files.folder / "outputs").mkdir(mode=0o700)
    (files.folder / "outputs" / "full").write_bytes(b"what a tool said")
    died = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DIES_BEFORE_IT_REMOVES, files.path], check=False
    )
    assert died.returncode == -9
    async with files.store() as store:
        assert (await store.sessions(), files.folder.exists()) == ([], True)
        await store.delete(OPS, by="alice")
        assert list(files.folder.parent.iterdir()) == []
        with pytest.raises(Refused):
            await store.delete(OPS, by="alice")


@pytest.mark.parametrize("way", ["created", "opened"])
@in_loop
async def test_a_handle_does_not_load_from_memory_what_was_deleted(files: Any, way: str) -> None:
    """The records that a creation or an opening has verified count only while the session lives."""
    async with files.store() as store, files.store() as other:
        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        if way == "opened":
            journal = await store.open(OPS)
        await other.delete(OPS, by="tests")
        with pytest.raises(Refused) as refused:
            await journal.load(lambda _: None)
        assert refused.value.code == "unknown"


@in_loop
async def test_folders_above_a_session_are_synced_once_by_each_process(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A folder that another process made may not be durable yet, so the first session that a process
    creates in it syncs the folders above. Later sessions of that process do not.
    """
    synced = recorded_syncs(monkeypatch)
    sessions = files.path / "sessions"
    async with files.store() as store:
        await create(store, "ops/a")
    async with files.store() as store:
        synced.clear()
        await create(store, "ops/b")
        assert {str(files.path), str(sessions)} <= set(synced)
        synced.clear()
        await create(store, "ops/c")
        assert not {str(files.path), str(sessions)} & set(synced)
        assert str(sessions / "ops") in synced
        await create(store, "lab/a")
        assert str(sessions) in synced


@pytest.mark.parametrize("is_back", [True, False])
@in_loop
async def test_a_replaced_folder_above_a_session_is_synced_again(
    files: Any, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    synced = recorded_syncs(monkeypatch)
    sessions = files.path / "sessions"
    async with files.store() as store:
        await create(store, "ops/a")
        (sessions / "ops").rename(sessions / "moved")
        if is_back:
            shutil.copytree(sessions / "moved", sessions / "ops")
        synced.clear()
        await create(store, "ops/b")
        assert str(sessions) in synced
        assert (await store.verify_session(SessionId("ops/b"))).verdict == "holds"


def recorded_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the path of every file and folder at its fsync."""
    synced: list[str] = []
    fsync = os.fsync

    def record(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    return synced


async def create(store: FileStore, name: str) -> None:
    instance = InstanceId(name.replace("/", "-"))
    journal = await store.create(SessionId(name), instance, [], origin="created", by="tests")
    await journal.close()


@in_loop
async def test_a_parked_session_costs_little(files: Any) -> None:
    """At most 6 KB of disk beyond its content, however many there are."""
    async with files.store() as store:
        first = [
            await store.create(
                SessionId(f"ops/s{n}"), InstanceId(f"i{n}"), [], origin="created", by="tests"
            )
            for n in range(50)
        ]
        for journal in first:
            claim = await journal.claim()
            assert claim is not None
            await claim.release()
            await journal.close()
    sessions = files.path / "sessions"
    used = sum(
        path.stat().st_blocks * 512
        for path in [*sessions.rglob("*"), *(files.path / "anchors").iterdir()]
    )
    content = sum(-(-path.stat().st_size // 4096) * 4096 for path in sessions.rglob("*.jsonl"))
    assert (used - content) / 50 < 6000
    assert all(path.suffix == ".jsonl" for path in sessions.rglob("*") if path.is_file())
    assert not list(sessions.rglob("driver"))
