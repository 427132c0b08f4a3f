"""D5: a write that failed leaves nothing behind that a later step could take for saved."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.files.conftest import OPS

from holdfast.errors import InDoubt, NotSaved
from holdfast.testing.loop import in_loop


class Refusals:
    """The calls that fail from now on, and all truncations and syncs in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused: dict[str, Callable[[int], bool]] = {}
        self.failed: list[int] = []
        self.happened: list[tuple[str, int]] = []
        for name in ("fsync", "fdatasync", "ftruncate", "pwrite"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *more: Any) -> Any:
            if (is_refused := self.refused.get(name)) is not None and is_refused(fd):
                self.failed.append(fd)
                raise OSError(errno.EIO, "the disk refused")
            done = real(fd, *more)
            self.happened.append((name, os.fstat(fd).st_ino))
            return done

        return call


def is_file(path: Path) -> Callable[[int], bool]:
    return lambda fd: os.path.samestat(os.fstat(fd), path.stat())


def holds_segments(count: int) -> Callable[[int], bool]:
    """A folder with so many segments."""

    def does(fd: int) -> bool:
        path = Path(f"/proc/self/fd/{fd}")
        return path.is_dir() and len(list(path.glob("*.jsonl"))) == count

    return does


def descriptors_of(path: Path) -> list[int]:
    found = list[int]()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if each.readlink() == path:
                found.append(int(each.name))
    return found


@in_loop
async def test_a_descriptor_that_reported_an_error_is_not_used_again(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second sync on it would claim success."""
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(1), since=journal.head)
        (segment,) = files.segments
        assert descriptors_of(segment)
        disk = Refusals(monkeypatch)
        disk.refused["fdatasync"] = is_file(segment)
        with pytest.raises(NotSaved):
            await journal.append(files.says(2), since=journal.head)
        (failed,) = disk.failed
        assert failed not in descriptors_of(segment)


@in_loop
async def test_not_saved_is_reported_after_the_cut_is_durable(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(1), since=journal.head)
        (segment,) = files.segments
        inode = segment.stat().st_ino
        disk = Refusals(monkeypatch)
        disk.refused["fdatasync"] = is_file(segment)
        with pytest.raises(NotSaved):
            await journal.append(files.says(2), since=journal.head)
        of_segment = [name for name, its_inode in disk.happened if its_inode == inode]
        assert of_segment[-2:] == ["ftruncate", "fsync"]


@in_loop
async def test_a_new_segment_whose_name_is_not_durable_is_taken_back_with_the_end_of_the_old_one(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename happened, and the sync of its folder failed."""
    await files.create(1, segment_bytes=2048)
    async with files.store(segment_bytes=2048) as store:
        journal = await store.open(OPS)
        (segment,) = files.segments
        while segment.stat().st_size < 2048:
            await journal.append(files.says(1), since=journal.head)
        before, head = segment.read_bytes(), journal.head
        with monkeypatch.context() as patched:
            Refusals(patched).refused["fsync"] = once(holds_segments(2))
            with pytest.raises(NotSaved):
                await journal.append(files.says(2), since=journal.head)
        assert files.segments == [segment]
        assert (segment.read_bytes(), journal.head) == (before, head)
        await journal.append(files.says(3), since=journal.head)
        numbers = await files.numbers(journal)
        await journal.close()
    async with files.store(segment_bytes=2048) as store:
        reopened = await store.open(OPS)
        assert (reopened.sealed, await files.numbers(reopened)) == (None, numbers)
        assert (2 in numbers, numbers[-1]) == (False, 3)


def once(is_refused: Callable[[int], bool]) -> Callable[[int], bool]:
    left = [True]

    def does(fd: int) -> bool:
        return left[0] and is_refused(fd) and left.pop() and not left.append(False)

    return does


@in_loop
async def test_records_whose_anchor_can_not_be_written_are_in_doubt(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are durable, and a journal without them would not be missed."""
    await files.create(1)
    (anchors,) = (files.path / "anchors").glob("*.anchors")
    async with files.store() as store:
        journal = await store.open(OPS)
        with monkeypatch.context() as patched:
            Refusals(patched).refused["pwrite"] = is_file(anchors)
            with pytest.raises(InDoubt):
                await journal.append(files.says(2), since=journal.head)
        await journal.close()
        reopened = await store.open(OPS)
        assert (reopened.sealed, await files.numbers(reopened)) == (None, [0, 2])
