"""
Many writers: tasks, threads and processes append to one session; all is kept, in one order, and
nobody is accused.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.files.notify import FileNotifier
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.locks import folder_lock
from holdfast.errors import InDoubt, InvariantBroken, Refused
from holdfast.ids import SessionId
from holdfast.limits import RECORD_BYTES_MAX
from holdfast.ports.journal_store import Check, Draft, Section
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


APPENDER = """
import asyncio, sys
from pathlib import Path
from holdfast.adapters.files import FileStore
from holdfast.ports.journal_store import Draft
async def main(home, start, count):
    store = await FileStore.open_home(Path(home), segment_bytes=4096)
    journal = await store.open("ops/api")
    for number in range(int(start), int(start) + int(count)):
        await journal.append(lambda _: [Draft("note", 1, b'{"n":%d}' % number)], since=journal.head)
    await store.close()
asyncio.run(main(*sys.argv[1:]))
"""


@in_loop
async def test_a_hundred_appends_by_four_processes_in_one_release(files: Any) -> None:
    """Accepted in order by a fence that stood before them all, rotations included."""
    await files.create(1, segment_bytes=4096)
    async with files.store(segment_bytes=4096) as store:
        journal = await store.open(OPS)
        since = journal.head
        started = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", APPENDER, str(files.path), str(start), "25"
            )
            for start in (100, 200, 300, 400)
        ]
        assert [await process.wait() for process in started] == [0, 0, 0, 0]
        done = await journal.append(files.says(1), since=since, check=Check.FENCE)
        found = files.of(done.suffix)
        assert found[-1] == 1
        for start in (100, 200, 300, 400):
            assert [n for n in found if start <= n < start + 100] == list(range(start, start + 25))
        assert (await store.verify_session(OPS)).verdict == "holds"


def test_two_spellings_of_a_folder_are_one_lock_in_a_process(tmp_path: Path) -> None:
    """L1: a thread that holds the lock is told so under the other name; it never waits for itself."""
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder, target_is_directory=True)
    one, other = (
        folder_lock(os.open(path, os.O_RDONLY | os.O_DIRECTORY), path.name)
        for path in (folder, link)
    )
    one.acquire(0)
    try:
        with pytest.raises(InvariantBroken):
            other.acquire(0)
    finally:
        one.release()


@in_loop
async def test_a_peer_that_goes_on_in_new_segments_while_we_verify_is_not_accused(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    L7: it rotates between our look at the folder and our taking the lock for what was the last
    segment.
    """
    await files.create(5, segment_bytes=4096)
    genuine = SessionFiles.locked
    wrote: list[int] = []

    @contextmanager
    def after_a_peer(ours: SessionFiles, wait_seconds: float | None = None) -> Iterator[int]:
        if ours.session == OPS and not wrote:
            wrote.append(
                subprocess.run(
                    [sys.executable, "-c", APPENDER, str(files.path), "100", "60"], check=False
                ).returncode
            )
        with genuine(ours, wait_seconds) as folder:
            yield folder

    async with files.store() as store:
        monkeypatch.setattr(SessionFiles, "locked", after_a_peer)
        verdict = await store.verify_session(OPS)
    assert wrote == [0]
    assert len(files.segments) > 2
    assert (verdict.verdict, verdict.segment) == ("holds", files.segments[-1].name)


@in_loop
async def test_appends_that_wait_together_are_synced_together(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Fifty tasks and ten threads on one session need far fewer syncs than appends, and every decision
    sees those before it.
    """
    await files.create(0)
    async with files.store() as store:
        journal = await store.open(OPS)
        syncs: list[int] = []
        genuine = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda fd: (syncs.append(fd), genuine(fd))[1])
        seen: list[int] = []

        def decide(section: Section) -> list[Draft]:
            seen.append(len(section.suffix))
            return [Draft("note", 1, b'{"n":%d}' % len(section.suffix))]

        since = journal.head
        threads = [
            threading.Thread(target=lambda: journal.append_now(decide, since=since))
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(journal.append(decide, since=since) for _ in range(50)))
        for thread in threads:
            thread.join()
        assert await files.numbers(journal) == list(range(60))
        assert sorted(seen) == list(range(60))
        assert len(syncs) < 40


@in_loop
async def test_a_refusal_of_one_does_not_touch_the_others(files: Any) -> None:
    await files.create(0)
    async with files.store() as store:
        journal = await store.open(OPS)

        def refuse(_: Section) -> list[Draft]:
            raise Refused("not today", code="policy")

        work = [
            journal.append(files.says(n) if n % 2 else refuse, since=journal.head)
            for n in range(20)
        ]
        results = await asyncio.gather(*work, return_exceptions=True)
        assert [type(result) for result in results[::2]] == [Refused] * 10
        assert sorted(await files.numbers(journal)) == list(range(1, 20, 2))


@in_loop
async def test_a_spent_handle_fails_its_own_append_and_no_other(files: Any) -> None:
    """
    It was usable when its append was put in line behind one that takes its time, and is spent by
    the time that one is done.
    """
    await files.create(0)
    async with files.store() as store:
        slow, spent, innocent = [await store.open(OPS) for _ in range(3)]
        inside, go = threading.Event(), threading.Event()

        def decide(_: Section) -> list[Draft]:
            inside.set()
            assert go.wait(30)
            return [Draft("note", 1, b'{"n":1}')]

        leading = asyncio.create_task(asyncio.to_thread(slow.append_now, decide, since=slow.head))
        await asyncio.to_thread(inside.wait, 30)
        waiting = [
            asyncio.create_task(handle.append(files.says(number), since=handle.head))
            for number, handle in ((2, spent), (3, innocent))
        ]
        await asyncio.sleep(0)
        spent.spend(InDoubt("the disk did not say"))
        go.set()
        await leading
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(outcomes[0], InDoubt)
        assert not isinstance(outcomes[1], BaseException)
        assert await files.numbers(innocent) == [1, 3]


@in_loop
async def test_the_journal_refuses_an_oversized_commit_before_it_writes(files: Any) -> None:
    """A record past 1 MiB, a commit past the batch; the journal stays as it was."""
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        before = files.segments[0].read_bytes()
        large = Draft("note", 1, b'{"n":1,"pad":"%s"}' % (b"x" * RECORD_BYTES_MAX))
        most = Draft("note", 1, b'{"n":1,"pad":"%s"}' % (b"x" * (RECORD_BYTES_MAX - 4096)))
        for drafts in ([large], [most] * 5):
            with pytest.raises(Refused) as caught:
                await journal.append(lambda _, drafts=drafts: drafts, since=journal.head)
            assert caught.value.code == "too_large"
        assert files.segments[0].read_bytes() == before
        await journal.append(lambda _: [most] * 3, since=journal.head)
        assert (await store.verify_session(OPS)).verdict == "holds"


@in_loop
async def test_times_never_fall(files: Any) -> None:
    from holdfast.testing.clock import ManualClock

    clock = ManualClock(now_ms=1_000_000)
    async with files.store(clock=clock) as store:
        from holdfast.ids import InstanceId

        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        for seconds in (10, -3600, 5, -1, 7200):
            clock.jump(seconds)
            await journal.append(files.says(1), since=journal.head)
        records: list[Any] = []
        await journal.load(records.append)
        times = [record.at for record in records]
        assert times == sorted(times)


@in_loop
async def test_opening_a_long_journal_holds_little_of_it(files: Any) -> None:
    """Bounded memory: one segment at a time."""
    import tracemalloc

    pad = b"x" * 900
    async with files.store() as store:
        from holdfast.ids import InstanceId

        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        for _ in range(40):
            await journal.append(
                lambda _: [Draft("note", 1, b'{"n":1,"pad":"%s"}' % pad)] * 500, since=journal.head
            )
    size = sum(path.stat().st_size for path in files.segments)
    assert size > 20_000_000
    async with files.store() as store:
        tracemalloc.start()
        count = 0

        def fold(_: Any) -> None:
            nonlocal count
            count += 1

        journal = await store.open(OPS)
        await journal.load(fold)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 20_000
    assert peak < size / 4


@in_loop
async def test_outputs_lie_beside_the_journal_and_are_checked(files: Any) -> None:
    from holdfast.errors import BrokenChain

    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        digest = await journal.keep_output(b"a long output")
        assert await journal.keep_output(b"a long output") == digest
        assert await journal.output(digest) == b"a long output"
        (files.folder / "outputs" / digest).write_bytes(b"another output")
        with pytest.raises(BrokenChain):
            await journal.output(digest)
        with pytest.raises(Refused):
            await journal.output("0" * 64)
        with pytest.raises(Refused):
            await journal.output("../../keys/1.key")


@in_loop
async def test_a_notice_reaches_every_listener_of_the_home(files: Any) -> None:
    """
    Across processes, over a home path longer than a socket's address; a dead listener's socket is
    removed.
    """
    home = files.path.parent / ("long" * 40)
    home.mkdir(mode=0o700)
    code = (
        "import sys\nfrom pathlib import Path\nfrom holdfast.adapters.files.notify import FileNotifier\n"
        "FileNotifier(Path(sys.argv[1])).notify('ops/api')\n"
    )
    notifier = FileNotifier(home)
    async with notifier.listen() as one, FileNotifier(home).listen() as two:
        bind = "import socket,os,sys; os.chdir(sys.argv[1]); socket.socket(1, 2).bind('dead.sock')"
        dead = await asyncio.create_subprocess_exec(sys.executable, "-c", bind, str(home / "run"))
        assert await dead.wait() == 0
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(home))
        assert await asyncio.wait_for(anext(one), 30) == OPS
        assert await asyncio.wait_for(anext(two), 30) == OPS
        assert await process.wait() == 0
        assert not (home / "run/dead.sock").exists()
        notifier.notify(OPS)
        assert await asyncio.wait_for(anext(one), 30) == OPS
    assert list((home / "run").iterdir()) == []
    FileNotifier(files.path.parent / "nowhere").notify(OPS)


@in_loop
async def test_a_load_after_an_opening_has_what_came_between(files: Any) -> None:
    """The records that opening has read are passed on only if they are still all."""
    await files.create(1)
    async with files.store() as store, files.store() as other:
        journal, theirs = await store.open(OPS), await other.open(OPS)
        appended = await theirs.append(
            lambda _: [Draft("note", 1, b'{"n":"theirs"}')], since=theirs.head
        )
        bodies: list[bytes] = []
        head = await journal.load(lambda record: bodies.append(record.body))
        assert (head, bodies[-1]) == (appended.head, b'{"n":"theirs"}')


@in_loop
async def test_cancelling_an_append_waits_for_its_outcome(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once begun it is awaited to its end; then the cancellation goes on."""
    await files.create(0)
    async with files.store() as store:
        journal = await store.open(OPS)
        inside, go = threading.Event(), threading.Event()
        fdatasync = os.fdatasync

        def wait_in_sync(fd: int) -> None:
            inside.set()
            assert go.wait(30)
            fdatasync(fd)

        monkeypatch.setattr(os, "fdatasync", wait_in_sync)
        task = asyncio.create_task(journal.append(files.says(1), since=journal.head))
        await asyncio.to_thread(inside.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await files.numbers(journal) == [1]


@in_loop
async def test_the_first_append_of_an_open_session_is_decided_at_once(files: Any) -> None:
    """No thread has to be changed to take a lock that is free."""
    await files.create(0)
    async with files.store() as store:
        journal = await store.open(OPS)
        decided_in: list[int] = []

        def decide(section: Section) -> Sequence[Draft]:
            decided_in.append(threading.get_ident())
            return files.says(1)(section)

        await journal.append(decide, since=journal.head)
        assert decided_in == [threading.get_ident()]
        assert await files.numbers(journal) == [1]


@in_loop
async def test_more_sessions_than_descriptors(files: Any) -> None:
    """
    Open handles of quiet sessions keep no descriptor: six hundred of them live in a process that
    may have four hundred.
    """
    import resource

    from holdfast.ids import InstanceId

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with files.store() as store:
        journals = [
            await store.create(
                SessionId(f"ops/s{n}"), InstanceId(f"i{n}"), [], origin="created", by="tests"
            )
            for n in range(600)
        ]
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 400, hard))
        try:
            for _ in range(2):
                await asyncio.gather(
                    *(journal.append(files.says(1), since=journal.head) for journal in journals)
                )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@in_loop
async def test_a_closed_store_leaves_no_descriptor(files: Any) -> None:
    import gc

    from holdfast.ids import InstanceId

    async with files.store() as store:
        for number in range(5):
            journal = await store.create(
                SessionId(f"ops/s{number}"),
                InstanceId(f"i{number}"),
                [],
                origin="created",
                by="tests",
            )
            await journal.append(files.says(1), since=journal.head)
            claim = await journal.claim()
            assert claim is not None
            assert files.open_descriptors(), "a claimed journal is open"
            await journal.close()
    del store, journal, claim
    gc.collect()
    assert files.open_descriptors() == []
