"""
L1, L3, C1: the lock is that of the folder which the path names, nobody is robbed of it, and every
append of a driver is fenced, whatever waits beside it.
"""

import asyncio
import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.files.conftest import OPS

from holdfast.adapters.files.session.locks import folder_lock
from holdfast.errors import Busy, Fenced
from holdfast.testing.loop import in_loop


@in_loop
async def test_the_lock_is_of_the_folder_that_the_path_names_now(files: Any) -> None:
    """A backup tool has put a copy into the folder's place, and another process has locked it."""
    await files.create(2)
    async with files.store(lock_wait_seconds=0.1) as store:
        journal = await store.open(OPS)
        await journal.append(files.says(5), since=journal.head)
        old = files.folder.with_name("old")
        files.folder.rename(old)
        shutil.copytree(old, files.folder)
        files.folder.chmod(0o700)
        other = os.open(files.folder, os.O_RDONLY)
        try:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(Busy):
                await journal.append(files.says(6), since=journal.head)
        finally:
            os.close(other)
        await journal.append(files.says(7), since=journal.head)
        assert await files.numbers(journal) == [0, 1, 5, 7]


def test_a_thread_that_waited_long_enough_does_not_take_the_lock(tmp_path: Path) -> None:
    """Threads of one process share one descriptor, for which the kernel has one lock."""
    lock = folder_lock(os.open(tmp_path, os.O_RDONLY), "ops/api")
    refused = list[Busy]()

    def wait() -> None:
        try:
            lock.acquire(0.05)
        except Busy as exc:
            refused.append(exc)

    lock.acquire(1)
    try:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        assert lock.is_ours
    finally:
        lock.release()
    assert len(refused) == 1


@in_loop
async def test_a_closed_handle_leaves_the_claim_of_another_process_alone(files: Any) -> None:
    """It kept the driver's folder from an earlier drive, and somebody else drives now."""
    await files.create(1)
    async with files.store() as ours, files.store() as theirs:
        first, second = await ours.open(OPS), await theirs.open(OPS)
        claim = await first.claim()
        assert claim is not None
        await claim.release()
        other = await second.claim()
        assert other is not None
        await first.close()
        await second.append(files.says(3), since=second.head, epoch=other.epoch)
        assert await files.numbers(second) == [0, 3]
        await other.release()


@in_loop
async def test_a_stale_driver_is_fenced_also_behind_a_message_that_waits_with_it(
    files: Any,
) -> None:
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        stale = await journal.claim()
        assert stale is not None
        await stale.release()
        claim = await journal.claim()
        assert claim is not None
        outcomes = await asyncio.gather(
            journal.append(files.says(1), since=journal.head),
            journal.append(files.says(2), since=journal.head),
            journal.append(files.says(3), since=journal.head, epoch=stale.epoch),
            journal.append(files.says(4), since=journal.head, epoch=claim.epoch),
            return_exceptions=True,
        )
        assert [isinstance(each, Fenced) for each in outcomes] == [False, False, True, False]
        assert 3 not in await files.numbers(journal)
        await claim.release()
