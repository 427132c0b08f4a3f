"""Commits of many sessions at once: each file is synced by itself, several side by side."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.files.conftest import OPS

from holdfast.adapters.files.commit.sync_thread import GroupCommitThread
from holdfast.adapters.files.home.anchor_tables import AnchorCell
from holdfast.testing.loop import in_loop


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


def committed(tmp_path: Path, count: int) -> list[Commit]:
    """One commit that holds the writer up, and behind it so many that come together."""
    syncing = GroupCommitThread(4, "test")
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


@pytest.mark.parametrize("count", [0, 1, 24])
def test_each_of_many_commits_is_synced_by_itself(
    tmp_path: Path, each: list[int], count: int
) -> None:
    """D5: a file's own sync reports the errors of that file, and of no other."""
    commits = committed(tmp_path, count)
    assert sorted(commit.fd for commit in commits) == sorted(each)


@in_loop
async def test_an_anchors_sync_is_under_way_before_it_is_awaited_and_over_before_a_cancellation_goes_on(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The caller does something else meanwhile; whoever is cancelled while awaiting it knows
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

    await files.create(1)
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


@in_loop
async def test_a_handle_that_wrote_nothing_since_its_last_sync_is_closed_without_one(
    files: Any, each: list[int]
) -> None:
    """A new session would pay for two syncs of one anchor. After a write the anchor is synced."""
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        each.clear()
        await journal.close()
        assert each == []
        journal = await store.open(OPS)
        await journal.append(files.says(1), since=journal.head)
        await journal.sync_anchor()
        each.clear()
        await journal.close()
        assert each == []
        journal = await store.open(OPS)
        await journal.append(files.says(2), since=journal.head)
        each.clear()
        await journal.close()
        assert len(each) == 1
