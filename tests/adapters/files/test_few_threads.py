"""
A system that gives no more threads, as a container with a bound on its processes does: said as
busy, nothing written, no lock kept, nobody waits for ever.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.files.commit.sync_thread import GroupCommitThread
from holdfast.adapters.files.session.locks import holder_of
from holdfast.errors import Busy
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Appended
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")
_SECONDS = 60.0  # what hangs, hangs for ever


class Scarce:
    """From the `granted`th thread of the store on none is to be had, until `over`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, granted: int) -> None:
        real: Callable[[threading.Thread], None] = threading.Thread.start
        self.refused, self.over, self._granted = 0, False, granted

        def start(thread: threading.Thread) -> None:
            if not self.over and thread.name.startswith("holdfast-"):
                if self._granted == 0:
                    self.refused += 1
                    raise RuntimeError("can't start new thread")
                self._granted -= 1
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("granted", [0, 1, 2])
@in_loop
async def test_without_a_thread_an_append_is_busy_or_done_and_the_next_one_is_as_ever(
    files: Any, monkeypatch: pytest.MonkeyPatch, granted: int
) -> None:
    await files.create(1)
    scarce = Scarce(monkeypatch, granted)
    async with files.store() as store:
        told: list[str] = []

        async def says(number: int) -> None:
            try:
                async with asyncio.timeout(_SECONDS):
                    journal = await store.open(OPS)
                    await journal.append(files.says(number), since=journal.head)
                told.append(f"{number} done")
            except Busy as exc:
                told.append(f"{number} {exc.code}")

        for number in (1, 2):
            await says(number)
        folder = os.open(files.folder, os.O_RDONLY)
        assert holder_of(folder) is None
        os.close(folder)
        scarce.over = True
        await asyncio.gather(*(says(number) for number in (3, 4, 5)))
        assert sorted(told)[2:] == ["3 done", "4 done", "5 done"]
        done = [0, *(number for number in range(1, 6) if f"{number} done" in told)]
        assert sorted(await files.numbers(await store.open(OPS))) == done
    assert len(told) == 5
    assert (
        scarce.refused or granted == 2
    )  # with two, whether a third is asked for depends on which of them comes first


@in_loop
async def test_appends_in_the_queue_fail_when_no_thread_can_lead(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        journal.append_now(files.says(1), since=journal.head)
        scarce, go, sync = Scarce(monkeypatch, granted=1), threading.Event(), os.fdatasync

        def when_all_wait(fd: int) -> None:
            assert go.wait(_SECONDS)
            sync(fd)

        monkeypatch.setattr(os, "fdatasync", when_all_wait)
        tasks = [
            asyncio.create_task(journal.append(files.says(number), since=journal.head))
            for number in (2, 3, 4)
        ]
        await asyncio.sleep(0)  # each has begun: one is being synced, two wait behind it
        go.set()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in told] == [Appended, Busy, Busy]
        scarce.over = True
        await journal.append(files.says(5), since=journal.head)
        assert await files.numbers(journal) == [0, 1, 2, 5]


def test_a_writer_without_syncers_syncs_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The first thread is the writer's; no other is to be had, and what waits is ended all the same.
    """
    scarce = Scarce(monkeypatch, granted=1)
    syncing, ended = GroupCommitThread(4, "holdfast-sync"), []
    go = threading.Event()

    class Commit:
        def __init__(self, number: int) -> None:
            self.number, self.fd = number, os.open(tmp_path / str(number), os.O_CREAT | os.O_WRONLY)

        def write(self) -> int | None:
            assert go.wait(_SECONDS)
            return self.fd

        def end(self, failure: OSError | None) -> None:
            os.close(self.fd)
            ended.append((self.number, failure))

    assert all(syncing.put(Commit(number)) for number in range(3))
    go.set()
    syncing.stop()
    assert sorted(ended) == [(0, None), (1, None), (2, None)]
    assert scarce.refused > 0


def test_without_a_writer_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    Scarce(monkeypatch, granted=0)
    syncing = GroupCommitThread(4, "holdfast-sync")
    taken: Any = None  # it is looked at by nobody
    assert syncing.put(taken) is False
    syncing.stop()
