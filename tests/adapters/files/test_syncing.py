"""
Commits of many sessions at once: one sync for all of them where that is as good, each by itself
where it is not.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.files.conftest import OPS

from holdfast.adapters.files.commit import filesystem_sync
from holdfast.adapters.files.commit.filesystem_sync import FilesystemSync
from holdfast.adapters.files.commit.sync_thread import MANY, GroupCommitThread
from holdfast.adapters.files.session.anchors import AnchorCell
from holdfast.adapters.filesystems import filesystem_magic
from holdfast.testing.loop import in_loop

NFS = 0x6969
EXT4 = 0xEF53


class Commit:
    """
    One line to one file. Its write waits until `go`, so that those behind it have come together
    when it is over.
    """

    def __init__(self, path: Path, go: threading.Event | None = None) -> None:
        self.fd = os.open(path, os.O_CREAT | os.O_WRONLY)
        self._go = go
        self.ended = threading.Event()
        self.failure: OSError | None = None

    def write(self) -> int | None:
        if self._go is not None:
            assert self._go.wait(60)
        os.write(self.fd, b"line\n")
        return self.fd

    def end(self, failure: OSError | None) -> None:
        self.failure = failure
        self.ended.set()


class Counted(FilesystemSync):
    """The real one, which counts; or which is refused as by a disk with a bad spot."""

    syncs = 0
    refuse = False

    def sync(self) -> bool:
        self.syncs += 1
        return super().sync() and not self.refuse


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(
        filesystem_sync, "DIRTY_KIB_MAX", 1 << 60
    )  # whatever else the machine writes
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.fixture
def whole(folder: int) -> Counted:
    made = Counted.open(folder, lambda _: EXT4)
    if not isinstance(made, Counted):
        pytest.skip("no Linux that tells the errors of syncfs")
    return made


@pytest.fixture
def each(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that were synced by themselves."""
    synced: list[int] = []
    real: Callable[[int], None] = os.fdatasync

    def counted(fd: int) -> None:
        synced.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", counted)
    return synced


def committed(tmp_path: Path, whole: FilesystemSync | None, count: int) -> list[Commit]:
    """One that holds the writer up, and behind it so many that come together."""
    syncing = GroupCommitThread(4, "test", lambda: whole)
    go = threading.Event()
    commits = [
        Commit(tmp_path / str(number), go if number == 0 else None) for number in range(1 + count)
    ]
    for commit in commits:
        syncing.put(commit)
    go.set()
    syncing.stop()
    for commit in commits:
        assert (commit.ended.is_set(), commit.failure) == (True, None)
        os.close(commit.fd)
    return commits


def test_many_are_synced_with_one_call(tmp_path: Path, whole: Counted, each: list[int]) -> None:
    committed(tmp_path, whole, 3 * MANY)
    assert whole.syncs + len(each) < 2 * MANY
    assert whole.syncs > 0


def test_a_few_are_synced_each_by_itself(tmp_path: Path, whole: Counted, each: list[int]) -> None:
    committed(tmp_path, whole, MANY - 2)
    assert (whole.syncs, len(each)) == (0, MANY - 1)


def test_where_the_whole_fails_each_file_is_asked(
    tmp_path: Path, whole: Counted, each: list[int]
) -> None:
    """
    D5: an error of the filesystem is of some file or other; only a file's own sync says whether it
    is this one.
    """
    whole.refuse = True
    commits = committed(tmp_path, whole, 3 * MANY)
    assert whole.syncs > 0
    assert {commit.fd for commit in commits} == set(each)


def test_without_it_each_is_synced_by_itself(tmp_path: Path, each: list[int]) -> None:
    commits = committed(tmp_path, None, 3 * MANY)
    assert {commit.fd for commit in commits} == set(each)


@pytest.mark.parametrize("release", ["5.16.9", "4.19.0-generic", "weird"])
def test_a_kernel_that_keeps_errors_to_itself_is_not_asked(
    folder: int, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    uname = os.uname()
    monkeypatch.setattr(
        os,
        "uname",
        lambda: os.uname_result(
            (uname.sysname, uname.nodename, release, uname.version, uname.machine)
        ),
    )
    assert FilesystemSync.open(folder, lambda _: EXT4) is None


def test_a_filesystem_that_is_not_known_to_keep_it_is_not_asked(folder: int) -> None:
    assert FilesystemSync.open(folder, lambda _: NFS) is None
    assert FilesystemSync.open(folder, lambda _: None) is None


def test_others_data_is_not_waited_for(
    folder: int, tmp_path: Path, whole: FilesystemSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    elsewhere = os.open("/proc/self/status", os.O_RDONLY)
    try:
        assert filesystem_magic(elsewhere) != filesystem_magic(folder)
        assert whole.is_quick([file])
        assert not whole.is_quick([file, elsewhere]), (
            "a file of another filesystem would not be synced at all"
        )
        monkeypatch.setattr(filesystem_sync, "DIRTY_KIB_MAX", -1)
        assert not whole.is_quick([file])
        monkeypatch.setattr(filesystem_sync, "DIRTY_KIB_MAX", 1 << 60)
        monkeypatch.setattr(filesystem_sync, "SLOW_SECONDS", -1.0)
        assert whole.sync()
        assert not whole.is_quick([file]), "it took long, and the next would too"
    finally:
        os.close(file)
        os.close(elsewhere)
        whole.close()


@in_loop
async def test_an_anchors_sync_is_under_way_before_it_is_awaited_and_over_before_a_cancellation_goes_on(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Whoever asks for it does something else meanwhile; whoever is cancelled while awaiting it knows
    that it is over.
    """
    begun, may_end, ended, awaited = (
        threading.Event(),
        threading.Event(),
        list[bool](),
        asyncio.Event(),
    )

    def held(_: AnchorCell) -> None:
        begun.set()
        ended.append(may_end.wait(60))

    await files.bear(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        with monkeypatch.context() as patched:
            patched.setattr(AnchorCell, "sync", held)
            syncing = journal.sync_anchor()
            assert await asyncio.to_thread(begun.wait, 60)

            async def wait_for_it() -> None:
                awaited.set()
                await syncing

            waiting = asyncio.ensure_future(wait_for_it())
            await awaited.wait()
            waiting.cancel()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert ended == [True]
        await journal.close()
