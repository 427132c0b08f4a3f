"""
Ctrl-C in the very thread that commits: whatever was half done in memory accuses nobody, and the
next look at the disk is the truth.
"""

import asyncio
import sys
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest

from holdfast.adapters.files.home.registry import FileRegistry
from holdfast.errors import InDoubt, Takeover
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Check
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")
OURS = ("holdfast.adapters.files", "holdfast.journal")


INTERRUPTS = [KeyboardInterrupt, MemoryError]


@contextmanager
def interrupted_at(entry: int, by: type[BaseException] = KeyboardInterrupt) -> Iterator[None]:
    """
    The interpreter looks for signals, and for room on its stack, where a function begins: there, at
    the Nth of ours. A finalizer is left out: it may close what an earlier test forgot, at any time,
    and its exception reaches nobody.
    """
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> None:
        nonlocal seen
        if event == "call" and _is_ours(frame) and not _is_finalizer(frame):
            seen += 1
            if seen == entry:
                sys.settrace(None)
                raise by

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(OURS)


def _is_finalizer(frame: FrameType) -> bool:
    caller = frame.f_back
    return caller is not None and caller.f_globals.get("__name__") == "weakref"


@pytest.mark.parametrize("by", INTERRUPTS)
@in_loop
async def test_an_append_that_is_interrupted_anywhere_accuses_nobody(
    files: Any, by: type[BaseException]
) -> None:
    """
    L7, D2: the handle is in doubt or as good as before; a fresh one finds what is on the disk, and
    all of it holds.
    """
    await files.create(3)
    places = 0
    async with files.store(lock_wait_seconds=0.05) as store:
        while True:
            journal = await store.open(OPS)
            try:
                with interrupted_at(places + 1, by):
                    journal.append_now(files.says(1000 + places), since=journal.head)
            except by:
                places += 1
            else:
                break
            with_it = None
            with suppress(InDoubt):
                with_it = journal.append_now(
                    files.says(2000), since=journal.head, check=Check.FENCE
                )
            fresh = await store.open(OPS)
            assert (fresh.sealed, (await store.verify_session(OPS)).verdict) == (None, "holds"), (
                f"at place {places}"
            )
            assert with_it is None or fresh.head == with_it.head
            await journal.close()
            await fresh.close()
            assert places < 500
    assert places > 20
    async with files.store() as store:
        kept = [
            number for number in await files.numbers(await store.open(OPS)) if 1000 <= number < 2000
        ]
    assert kept == sorted(set(kept)), "each at most once, in order"


class Interrupted:
    """
    An awaitable whose first step, in the event loop's own thread, is interrupted at the Nth entry;
    what is left of it goes on as usual.
    """

    def __init__(self, steps: Coroutine[Any, Any, Any], entry: int) -> None:
        self._steps, self._entry = steps.__await__(), entry

    def __await__(self) -> Generator[Any, None, Any]:
        with interrupted_at(self._entry):
            first = next(self._steps)
        yield first
        return (yield from self._steps)


@in_loop
async def test_an_asynchronous_append_that_is_interrupted_is_begun_whole_or_not_at_all(
    files: Any,
) -> None:
    """
    L7, D2: decided in the loop's thread, where Ctrl-C may come; nobody waits for ever, nobody is
    accused.
    """
    await files.create(3)
    places = 0
    async with files.store(lock_wait_seconds=0.05) as store:
        journal = await store.open(OPS)
        while True:
            try:
                await Interrupted(
                    journal.append(files.says(1000 + places), since=journal.head), places + 1
                )
            except KeyboardInterrupt:
                places += 1
            else:
                break
            await asyncio.to_thread(journal.queue.wait_until_idle)
            done = await journal.append(files.says(2000), since=journal.head, check=Check.FENCE)
            assert files.of(done.suffix)[-1] == 2000
            await asyncio.to_thread(
                journal.queue.wait_until_idle
            )  # or the next one would be led by somebody else
            assert places < 500
        assert (journal.sealed, (await store.verify_session(OPS)).verdict) == (None, "holds")
        kept = [number for number in await files.numbers(journal) if 1000 <= number < 2000]
        assert kept == sorted(set(kept)), "each at most once, in order"
    assert places > 20


@pytest.mark.parametrize("by", INTERRUPTS)
@in_loop
async def test_a_look_at_the_home_that_is_interrupted_begins_anew(
    files: Any, monkeypatch: pytest.MonkeyPatch, by: type[BaseException]
) -> None:
    """
    D4: a session that another process made, deleted or sealed meanwhile is not missed because
    Ctrl-C came while it was read.
    """
    await files.create(1)
    async with files.store() as store, files.store() as other:
        await other.create(SessionId("ops/web"), InstanceId("i2"), [], origin="created", by="tests")
        await other.delete(OPS, by="tests")
        with monkeypatch.context() as patched:
            patched.setattr(FileRegistry, "fold", Mock(side_effect=by))
            with pytest.raises(by):
                store._own.refresh()
        assert await store.sessions() == ["ops/web"]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()])
@in_loop
async def test_appends_that_wait_together_have_an_outcome_whatever_their_seal_meets(
    files: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """
    L4: the damage is reported to every caller, the handle stays spent, and the next process that
    opens the session seals it.
    """
    await files.create(3)
    async with files.store() as store:
        journal = await store.open(OPS)
        damaged = files.segments[0].read_bytes().replace(b'{"n":1}', b'{"n":7}')
        files.segments[0].write_bytes(damaged)
        with monkeypatch.context() as patched:
            patched.setattr(FileRegistry, "fold", Mock(side_effect=error))
            work = [
                journal.append(files.says(number), since=journal.head, check=Check.FENCE)
                for number in (5, 6)
            ]
            outcomes = await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), 20)
        assert [type(outcome) for outcome in outcomes] == [Takeover, Takeover]
        with pytest.raises(Takeover):
            await journal.append(files.says(7), since=journal.head)
    async with files.store() as store:
        assert (await store.open(OPS)).sealed is not None
