"""
D1, D5, D6: an append is acknowledged, and a file gets its name, only once the bytes are durable. A
failure leaves the file that was there.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.files.conftest import INSTANCE, OPS

from holdfast.adapters.files.paths import create_exclusively, create_whole
from holdfast.errors import HoldfastError, NotSaved
from holdfast.ports.journal_store import Journal
from holdfast.testing.loop import in_loop


def refuse_syncs(monkeypatch: pytest.MonkeyPatch, of: Callable[[int], bool]) -> None:
    """Every sync of a descriptor that `of` names fails."""
    real = os.fsync

    def sync(fd: int) -> None:
        if of(fd):
            raise OSError(errno.EIO, "the disk refused")
        real(fd)

    monkeypatch.setattr(os, "fsync", sync)


def is_file(fd: int) -> bool:
    return stat.S_ISREG(os.fstat(fd).st_mode)


@pytest.mark.parametrize("old", [{"name": b"old"}, {}], ids=["over an old file", "a new file"])
def test_a_file_that_cant_be_synced_leaves_the_old_one_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: dict[str, bytes]
) -> None:
    for name, data in old.items():
        (tmp_path / name).write_bytes(data)
    refuse_syncs(monkeypatch, is_file)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        for create in (create_whole, create_exclusively):
            with pytest.raises(OSError, match="refused"):
                create(folder, "name", b"new", temporary=".name.tmp")
            assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old
    finally:
        os.close(folder)


@in_loop
async def test_a_session_whose_folder_cant_be_synced_has_no_folder(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder appears with all its segments, or it does not appear."""

    def holds_a_segment(fd: int) -> bool:
        return not is_file(fd) and any(name.endswith(".jsonl") for name in os.listdir(fd))

    async with files.store() as store:
        with monkeypatch.context() as patched:
            refuse_syncs(patched, holds_a_segment)
            with pytest.raises(HoldfastError):
                await store.create(OPS, INSTANCE, [], origin="created", by="tests")
        assert not files.folder.exists()
        assert await store.sessions() == []


class Unsynced:
    """The files and folders that were changed since their last sync, by inode."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders: set[int] = set()
        self.files: set[int] = set()
        self.named: list[str] = []
        self._open, self._pwrite, self._rename, self._link = (
            os.open,
            os.pwrite,
            os.rename,
            os.link,
        )
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._synced_by(getattr(os, name)))
        for name in ("open", "pwrite", "rename", "link"):
            monkeypatch.setattr(os, name, getattr(self, name))

    def _synced_by(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            real(fd)
            self.folders.discard(os.fstat(fd).st_ino)
            self.files.discard(os.fstat(fd).st_ino)

        return sync

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_EXCL and dir_fd is not None:
            self.folders.add(os.fstat(dir_fd).st_ino)
        return self._open(path, flags, mode, dir_fd=dir_fd)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self.files.add(os.fstat(fd).st_ino)
        return self._pwrite(fd, data, offset)

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        self._check(old, new, src_dir_fd)
        self._rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def link(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        self._check(old, new, src_dir_fd)
        self._link(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def _check(self, old: str, new: str, folder: int) -> None:
        place = Path(f"/proc/self/fd/{folder}") / old
        named = {place.stat().st_ino}
        if place.is_dir():
            named |= {each.stat().st_ino for each in place.iterdir()}
        assert not named & (self.folders | self.files), f"{new} got its name before its sync"
        self.named.append(new)
        self.folders.add(os.fstat(folder).st_ino)


@in_loop
async def test_nothing_gets_its_name_before_its_sync_and_no_name_is_left_unsynced(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home, a session, a full segment, and a torn tail that goes to quarantine."""
    unsynced = Unsynced(monkeypatch)
    await files.create(30, segment_bytes=2048)
    with files.segments[-1].open("ab") as file:
        file.write(b'{"seq":99,"half a li')
    async with files.store(segment_bytes=2048) as store:
        await store.open(OPS)
    assert {"api", "1.key", files.segments[-1].name, "000001-torn_tail.json"} <= set(unsynced.named)
    assert not unsynced.folders


async def one(journal: Journal, files: Any) -> None:
    await journal.append(files.says(1), since=journal.head)


async def one_at_once(journal: Journal, files: Any) -> None:
    journal.append_now(files.says(1), since=journal.head)


async def three_together(journal: Journal, files: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(journal.append(files.says(1), since=journal.head))


async def one_behind_a_peer(journal: Journal, files: Any) -> None:
    async with files.store() as store:
        peer = await store.open(OPS)
        await peer.append(files.says(0), since=peer.head)
    await one(journal, files)


WAYS = [one, one_at_once, three_together, one_behind_a_peer]


@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_no_append_is_acknowledged_before_its_sync(
    files: Any, monkeypatch: pytest.MonkeyPatch, way: Callable[..., Any]
) -> None:
    """D1: a killed process does not show it, because the bytes stay in the page cache."""
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        unsynced = Unsynced(monkeypatch)
        for _ in range(3):
            await way(journal, files)
            assert not unsynced.files & {path.stat().st_ino for path in files.segments}


@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_an_append_whose_segment_an_older_copy_replaced_is_written_again(
    files: Any, monkeypatch: pytest.MonkeyPatch, way: Callable[..., Any]
) -> None:
    """D1: the copy takes the segment's place after the sync and before the second look."""
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        await one(journal, files)
        (segment,) = files.segments
        copy, real = segment.with_suffix(".copy"), os.fdatasync
        copy.write_bytes(segment.read_bytes())
        copy.chmod(0o600)

        def sync(fd: int) -> None:
            real(fd)
            if copy.exists() and os.path.samestat(os.fstat(fd), segment.stat()):
                copy.rename(segment)

        before = await files.numbers(journal)
        monkeypatch.setattr(os, "fdatasync", sync)
        await way(journal, files)
        assert not copy.exists()
        after = await files.numbers(journal)
        assert len(after) > len(before)
        await journal.close()
    async with files.store() as store:
        reopened = await store.open(OPS)
        assert (reopened.sealed, await files.numbers(reopened)) == (None, after)


@in_loop
async def test_nobody_appends_where_a_sync_failed(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: the journal goes on in a new segment, although the old one has room."""
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        await one(journal, files)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refusing)
            with pytest.raises(NotSaved):
                await one(journal, files)
        size = files.segments[0].stat().st_size
        await one(journal, files)
        assert len(files.segments) > 1
        assert files.segments[0].stat().st_size == size


def refusing(_: int) -> None:
    raise OSError(errno.EIO, "the disk refused")


@in_loop
async def test_a_drivers_record_has_room_because_the_reserve_is_given_back(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: the disk takes nothing while the reserve holds its blocks."""
    await files.create(1)
    real = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if (files.path / "reserve").stat().st_blocks:
            raise OSError(errno.ENOSPC, "the disk is full")
        return real(fd, data, offset)

    async with files.store() as store:
        journal = await store.open(OPS)
        claim = await journal.claim()
        assert claim is not None
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", pwrite)
            await journal.append(files.says(7), since=journal.head, epoch=claim.epoch)
        assert await files.numbers(journal) == [0, 7]
        await claim.release()


@in_loop
async def test_a_full_segment_leaves_a_synced_anchor(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: after a power cut, the anchor lags at most by the batches of the active segment."""
    await files.create(1, segment_bytes=2048)
    (anchors,) = (files.path / "anchors").glob("*.anchors")
    async with files.store(segment_bytes=2048) as store:
        journal = await store.open(OPS)
        unsynced = Unsynced(monkeypatch)
        while len(files.segments) == 1:
            await one(journal, files)
        assert anchors.stat().st_ino not in unsynced.files
        await one(journal, files)
        assert anchors.stat().st_ino in unsynced.files


@in_loop
async def test_the_name_of_a_segment_that_a_dead_peer_made_is_synced_before_anybody_acts(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: the peer died after it had renamed the segment and before it had synced the folder."""
    await files.create(1, segment_bytes=2048)
    (anchors,) = (files.path / "anchors").glob("*.anchors")
    async with files.store(segment_bytes=2048) as store:
        journal = await store.open(OPS)
        while len(files.segments) == 1:
            before = anchors.read_bytes()
            await one(journal, files)
        written = await files.numbers(journal)
        await journal.close()
    anchors.write_bytes(before)
    synced, real = list[int](), os.fsync

    def sync(fd: int) -> None:
        real(fd)
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", sync)
    async with files.store(segment_bytes=2048) as store:
        journal = await store.open(OPS)
        assert files.folder.stat().st_ino in synced
        assert (journal.sealed, await files.numbers(journal)) == (None, written)
