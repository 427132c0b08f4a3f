"""
D3: the end of a journal that a dead writer left is cut only if a crash can have left it, and the
cut is durable, reported and named before anything else happens.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.files.conftest import OPS

from holdfast.adapters.files.paths import make_folder
from holdfast.errors import Takeover
from holdfast.journal.segment import REPAIRED
from holdfast.testing.loop import in_loop


def beside(segment: Path, steps: int) -> Path:
    """The name of the segment so many steps later."""
    life, number, _ = segment.name.split(".")
    return segment.with_name(f"{life}.{int(number) + steps:08d}.jsonl")


def plant(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


@pytest.mark.parametrize("behind", [b"", b'{"seq":'], ids=["empty", "half a header"])
@in_loop
async def test_a_torn_start_before_another_segment_is_damage(files: Any, behind: bytes) -> None:
    """A writer begins one new segment at a time."""
    await files.create(3)
    (segment,) = files.segments
    plant(beside(segment, 1), b'{"seq":')
    plant(beside(segment, 2), behind)
    async with files.store() as store:
        mark = (await store.open(OPS)).sealed
    assert mark is not None
    assert mark.code == "broken"
    assert beside(segment, 1).read_bytes() == b'{"seq":'


@in_loop
async def test_a_whole_line_where_a_segment_should_begin_is_not_cut(files: Any) -> None:
    """A crash leaves half a line. A whole one that does not verify was written by somebody else."""
    await files.create(3)
    (segment,) = files.segments
    plant(beside(segment, 1), b'{"seq":6}\n')
    async with files.store() as store:
        mark = (await store.open(OPS)).sealed
    assert mark is not None
    assert mark.code == "broken"
    assert beside(segment, 1).exists()


@in_loop
async def test_an_acknowledged_line_without_its_end_was_changed_and_is_not_torn(
    files: Any,
) -> None:
    """The bytes are as many as were acknowledged, so nobody cut them off."""
    await files.create(3)
    async with files.store() as store, files.store() as other:
        journal, peer = await store.open(OPS), await other.open(OPS)
        await peer.append(files.says(4), since=peer.head)
        (segment,) = files.segments
        with segment.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"}")
        with pytest.raises(Takeover):
            await journal.append(files.says(9), since=journal.head)


@in_loop
async def test_an_open_journal_reports_the_repair_of_a_torn_tail(files: Any) -> None:
    await files.create(3)
    async with files.store() as store:
        journal = await store.open(OPS)
        since = (await journal.append(files.says(8), since=journal.head)).head
        (segment,) = files.segments
        with segment.open("ab") as file:
            file.write(b'{"seq":99,"half a li')
        kept = await journal.append(files.says(9), since=since)
        assert [record.type for record in kept.suffix] == [REPAIRED, "note"]


@in_loop
async def test_torn_bytes_are_synced_before_a_header_names_them(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut, a header that names bytes which never reached the disk looks forged."""
    await files.create(3)
    (segment,) = files.segments
    with segment.open("ab") as file:
        file.write(b'{"seq":99,"half a li')
    happened, fsync, rename = list[str](), os.fsync, os.rename

    def synced(fd: int) -> None:
        fsync(fd)
        if os.path.samestat(os.fstat(fd), segment.stat()):
            happened.append(f"synced {os.fstat(fd).st_size > size}")

    def named(old: str, new: str, **where: int) -> None:
        rename(old, new, **where)
        if new == beside(segment, 1).name:
            happened.append("named")

    size = segment.stat().st_size - 1
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", named)
    async with files.store() as store:
        await store.open(OPS)
    assert happened == ["synced True", "named", "synced False"]


def test_a_folder_that_somebody_else_made_is_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6: its maker may have died before the sync."""
    (tmp_path / "sessions").mkdir()
    synced, fsync = list[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino) or fsync(fd))
    parent = os.open(tmp_path, os.O_RDONLY)
    try:
        make_folder(parent, "sessions")
    finally:
        os.close(parent)
    assert synced == [tmp_path.stat().st_ino]
