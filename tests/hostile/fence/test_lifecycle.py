"""
The lock's lifecycle: let go of once on every path, never inherited, never robbed, never held over
foreign work (L1-L3; cases 25-33).
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from proof.rigs.rig import Rig, WatchedJournal
from proof.rigs.ticking import ticking

from holdfast.errors import Busy, Fenced, HoldfastError, InvariantBroken, Untrusted
from holdfast.ports.journal_store import Claim, Draft, Record, Section
from holdfast.runtime.ledger.attempt import Attempt, AttemptState
from holdfast.testing import outside
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.store import OPS, note, says, texts
from holdfast.testing.loop import in_loop


class CountedClaim:
    """A claim that counts how often it is given up."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self.releases = 0

    @property
    def epoch(self) -> int:
        return self._claim.epoch

    async def release(self) -> None:
        self.releases += 1
        await self._claim.release()


async def counted(rig: Rig) -> tuple[Attempt, CountedClaim]:
    journal = await rig.journal()
    claim = await journal.claim()
    assert claim is not None
    counting = CountedClaim(claim)
    return await Attempt.acquire(journal, lambda _: None, claim=counting), counting


class HeldSection:
    """A write that stays inside its locked section until told to go on; run it in a thread."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.inside, self.go = threading.Event(), threading.Event()

    def __call__(self, _: Section) -> Sequence[Draft]:
        self.inside.set()
        assert self.go.wait(timeout=60)
        return [note(self._text)]


ENDS = ["abort", "dispose"]


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
@pytest.mark.parametrize("fate", ["held", "released", "taken over", "caller failed"])
@in_loop
async def test_every_end_gives_up_the_claim_exactly_once(
    place: Path, first: str, second: str, fate: str
) -> None:
    """
    Case 25: twice, after success, after a takeover, after an error of the caller; the next driver
    gets in.
    """
    async with Rig(place) as rig:
        attempt, claim = await counted(rig)
        if fate != "held":
            await attempt.release()
        if fate == "taken over":
            outside.append(rig.active, b"a stranger was here\n")
            with pytest.raises(Untrusted):
                await attempt.reacquire()
        if fate == "caller failed":
            with pytest.raises(ZeroDivisionError):
                await attempt.write(lambda _: [1 / 0])
        await getattr(attempt, first)()
        await getattr(attempt, second)()
        assert claim.releases == 1
        assert attempt.phase is AttemptState.OVER
        assert rig.lock_is_free()
        with pytest.raises(InvariantBroken):
            await attempt.write(says("late"))
        if fate != "taken over":
            assert await (await rig.journal()).claim() is not None


@in_loop
async def test_a_release_asked_for_inside_a_write_comes_right_after_it(place: Path) -> None:
    """Case 26: the write is whole, and the fence is behind it."""
    async with Rig(place) as rig:
        attempt = await rig.attempt()

        def decide(_: Section) -> Sequence[Draft]:
            attempt.release_nowait()
            assert attempt.phase is AttemptState.HELD
            return [note("one")]

        await attempt.write(decide)
        assert attempt.phase is AttemptState.RELEASED
        assert attempt.fence == attempt.position
        await attempt.reacquire(says("two"))
        assert await rig.said() == ["born", "one", "two"]


@in_loop
async def test_a_release_waits_for_a_write_of_a_thread(place: Path) -> None:
    """Case 26, with the write in another thread: what it wrote is before the fence."""
    async with Rig(place) as rig:
        attempt, section = await rig.attempt(), HeldSection("one")
        async with asyncio.TaskGroup() as group:
            group.create_task(
                asyncio.to_thread(lambda: asyncio.run(ticking(attempt.write(section))))
            )
            await asyncio.to_thread(section.inside.wait)
            releasing = group.create_task(ticking(attempt.release()))
            await asyncio.sleep(0)
            assert attempt.phase is AttemptState.HELD
            assert not releasing.done()
            section.go.set()
        assert attempt.phase is AttemptState.RELEASED
        assert attempt.fence == attempt.position
        assert await rig.said() == ["born", "one"]


@in_loop
async def test_cleanup_waits_for_a_running_write_and_a_running_release(place: Path) -> None:
    """Case 27: nothing is torn down under a writer; then the claim is free."""
    async with Rig(place) as rig:
        attempt, claim = await counted(rig)
        section = HeldSection("one")
        async with asyncio.TaskGroup() as group:
            group.create_task(
                asyncio.to_thread(lambda: asyncio.run(ticking(attempt.write(section))))
            )
            await asyncio.to_thread(section.inside.wait)
            releasing = group.create_task(ticking(attempt.release()))
            disposing = group.create_task(ticking(attempt.dispose()))
            # Time enough to do wrong; right code never depends on it.
            await asyncio.wait({releasing, disposing}, timeout=0.3)
            assert not disposing.done()
            assert claim.releases == 0
            section.go.set()
        assert releasing.done()
        assert claim.releases == 1
        assert await rig.said() == ["born", "one"]


@in_loop
async def test_cleanup_asked_for_inside_a_write_does_not_deadlock(place: Path) -> None:
    """Case 28: the write is whole, the claim is given up right after it."""
    async with Rig(place) as rig:
        attempt, claim = await counted(rig)

        def decide(_: Section) -> Sequence[Draft]:
            attempt.abort_nowait()
            return [note("one")]

        await attempt.write(decide)
        assert claim.releases == 1
        assert await rig.said() == ["born", "one"]


@in_loop
async def test_cleanup_by_a_task_started_inside_a_write_does_not_deadlock(place: Path) -> None:
    """Case 28: the task waits for the write, the write does not wait for the task."""
    async with Rig(place) as rig:
        attempt, claim = await counted(rig)
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        async def cleanup() -> None:
            await attempt.dispose()
            over.set()

        def decide(_: Section) -> Sequence[Draft]:
            asyncio.run_coroutine_threadsafe(cleanup(), loop)
            return [note("one")]

        await attempt.write(decide)
        await over.wait()
        assert claim.releases == 1
        assert await rig.said() == ["born", "one"]


@in_loop
async def test_an_error_while_letting_go_fails_the_call_and_frees_everything(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Case 29: the anchor can't be made durable; whoever asked hears of it, the next driver gets in.
    """
    async with Rig(place) as rig:
        attempt, claim = await counted(rig)

        async def failing() -> None:
            raise Busy("the disk is tired")

        monkeypatch.setattr(attempt._journal, "sync_anchor", failing)
        with pytest.raises(Busy):
            await attempt.dispose()
        assert claim.releases == 1
        assert rig.lock_is_free()
        await attempt.dispose()
        assert claim.releases == 1
        assert await (await rig.journal()).claim() is not None


@pytest.mark.parametrize(
    "calls", [("stat", "fstat"), ("read", "pread", "preadv", "readv")], ids=["stat", "read"]
)
@in_loop
async def test_an_error_of_the_disk_while_coming_back_frees_the_lock(
    place: Path, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...]
) -> None:
    """
    Case 29: looking at the file fails; the call fails by a name of ours, the lock is free, the next
    try works.
    """
    async with Rig(place) as rig:
        attempt = await rig.attempt()
        await attempt.write(says("one"))
        await attempt.release()

        def failing(*_args: object, **_kwargs: object) -> object:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as broken:
            for call in calls:
                broken.setattr(os, call, failing)
            with pytest.raises(HoldfastError) as caught:
                await attempt.reacquire()
        assert not isinstance(caught.value, Untrusted)
        assert rig.lock_is_free()
        await attempt.reacquire(says("two"))
        assert await rig.said() == ["born", "one", "two"]


def is_running(pid: int) -> bool:
    """Not gone, and no mere zombie."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


@in_loop
async def test_a_killed_owner_leaves_the_lock_free_at_once(place: Path) -> None:
    """
    Case 30: within a second, though a child process that it started with all its descriptors is
    still alive.
    """
    async with Rig(place) as rig:
        journal = await rig.journal()
        peer = rig.peer()
        child = peer.ask("spawn_holding", session=OPS)["child"]
        assert not rig.lock_is_free()
        peer.kill()
        try:
            # Nobody gives the lock back but the kernel: were it still held by the child, this would
            # be Busy.
            await journal.append(says("next"), since=journal.head)
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)
        assert await rig.said() == ["born", "next"]


@in_loop
async def test_a_forked_child_of_a_killed_owner_keeps_neither_lock_nor_claim(place: Path) -> None:
    """L2: the child shares its parent's open files, and lives on when the parent is killed."""
    async with Rig(place) as rig:
        journal = await rig.journal()
        peer = rig.peer()
        dead = peer.ask("claim", session=OPS)["epoch"]
        child = peer.ask("fork_holding", session=OPS)["child"]
        assert not rig.lock_is_free()
        peer.kill()
        try:
            assert rig.lock_is_free()
            claim = await journal.claim()
            assert claim is not None
            assert claim.epoch > dead
            await journal.append(says("next"), since=journal.head, epoch=claim.epoch)
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)
        assert await rig.said() == ["born", "next"]


@in_loop
async def test_a_killed_driver_leaves_the_claim_free_at_once(place: Path) -> None:
    """Case 30, for the driver's claim: a higher epoch for the next one."""
    async with Rig(place) as rig:
        journal = await rig.journal()
        peer = rig.peer()
        dead = peer.ask("claim", session=OPS)["epoch"]
        assert await journal.claim() is None
        peer.kill()
        claim = await journal.claim()
        assert claim is not None
        assert claim.epoch > dead


@in_loop
async def test_a_driver_whose_folder_was_removed_writes_nothing(place: Path) -> None:
    """C1: the next driver would lock another folder, so this one's lock excludes nobody."""
    async with Rig(place) as rig:
        journal = await rig.journal()
        claim = await journal.claim()
        assert claim is not None
        (rig.folder / "driver").rmdir()
        with pytest.raises(Fenced):
            await journal.append(says("late"), since=journal.head, epoch=claim.epoch)
        assert await rig.said() == ["born"]


@in_loop
async def test_a_driver_whose_folder_is_put_back_is_fenced_by_the_newer_claim(place: Path) -> None:
    """C1: the folder has its name again, but another driver had a claim meanwhile."""
    async with Rig(place) as rig:
        journal, other = await rig.journal(), await rig.journal()
        old = await journal.claim()
        assert old is not None
        folder, away = rig.folder / "driver", rig.path.with_name("away")
        folder.rename(away)
        new = await other.claim()
        assert new is not None
        assert new.epoch > old.epoch
        away.rename(folder)
        with pytest.raises(Fenced):
            await journal.append(says("late"), since=journal.head, epoch=old.epoch)
        assert await rig.said() == ["born"]


@in_loop
async def test_a_symlinked_path_is_the_same_lock(place: Path, tmp_path: Path) -> None:
    """
    Case 31: identity counts, not spelling; nobody writes beside a writer, in one process or in
    another.
    """
    async with Rig(place) as rig:
        link = tmp_path / "link"
        link.symlink_to(place, target_is_directory=True)
        direct, linked = await rig.journal(), await (await rig.store(path=link)).open(OPS)
        section, seen = HeldSection("direct"), list[bool]()

        def through_link(_: Section) -> Sequence[Draft]:
            seen.append(section.go.is_set())
            return [note("linked")]

        async with asyncio.TaskGroup() as group:
            group.create_task(
                asyncio.to_thread(direct.append_now, section, since=direct.head)  # it blocks
            )
            await asyncio.to_thread(section.inside.wait)
            waiting = group.create_task(linked.append(through_link, since=linked.head))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done()
            section.go.set()
        assert seen == [True]
        assert await rig.said() == ["born", "direct", "linked"]
        claim = await direct.claim()
        assert claim is not None
        assert await linked.claim() is None


@in_loop
async def test_a_living_but_slow_owner_is_never_robbed(place: Path) -> None:
    """
    Case 32: frozen, while our clock moves on an hour and back; the waiter is told who holds it and
    for how long.
    """
    async with Rig(place) as rig:
        clock = ManualClock()
        journal = await rig.journal(clock=clock, lock_wait_seconds=0.1)
        peer = rig.peer()
        peer.ask("claim", session=OPS)
        assert peer.ask("hold", session=OPS) == {"holding": True}
        peer.stop()
        for hours in (0, 1, -2):
            clock.jump(hours * 3600)
            with pytest.raises(Busy) as caught:
                await journal.append(says("robbed"), since=journal.head)
            assert caught.value.holder is not None
            assert str(peer.pid) in caught.value.holder
            assert caught.value.held_seconds is not None
            assert caught.value.held_seconds >= 0.1
            assert await journal.claim() is None
        peer.go_on()
        assert "error" not in peer.ask("go")
        await journal.append(says("next"), since=journal.head)
        assert await rig.said() == ["born", "held", "next"]


@in_loop
async def test_the_lock_has_no_file_that_can_be_deleted(place: Path) -> None:
    """
    Case 32a: everything that may be deleted around a held lock is deleted; nobody else gets in.
    """
    async with Rig(place) as rig:
        journal = await rig.journal(lock_wait_seconds=0.05)
        peer = rig.peer()
        peer.ask("hold", session=OPS)
        delete_whatever_is_called_lock(place)
        with pytest.raises(Busy):
            await journal.append(says("beside"), since=journal.head)
        peer.ask("go")
        await journal.append(says("next"), since=journal.head)
        assert await rig.said() == ["born", "held", "next"]


def delete_whatever_is_called_lock(place: Path) -> None:
    for path in place.rglob("*lock*"):
        path.unlink()


def replaced_by_identical(rig: Rig) -> None:
    outside.replace(rig.active, rig.active.read_bytes())


def deleted(rig: Rig) -> None:
    rig.active.unlink()


def folder_swapped(rig: Rig) -> None:
    away = rig.folder.with_name("away")
    rig.folder.rename(away)
    rig.folder.mkdir(mode=0o700)
    for path in away.iterdir():
        if path.is_file():
            copy = rig.folder / path.name
            copy.write_bytes(path.read_bytes())
            copy.chmod(0o600)


@pytest.mark.parametrize("swap", [replaced_by_identical, deleted, folder_swapped])
@in_loop
async def test_nothing_is_acknowledged_on_an_orphan_inode(
    place: Path, swap: Callable[[Rig], None]
) -> None:
    """
    Case 32a: the segment is swapped between our check and our write; what was acknowledged is under
    its name.
    """
    async with Rig(place) as rig:
        attempt = await rig.attempt()
        await attempt.write(says("one"))

        def decide(_: Section) -> Sequence[Draft]:
            swap(rig)
            return [note("two")]

        try:
            await attempt.write(decide)
        except HoldfastError:
            return
        assert any(b'"two"' in path.read_bytes() for path in rig.segments)
        assert await rig.said() == ["born", "one", "two"]


@pytest.mark.parametrize("moment", ["before the write", "after the write"])
@in_loop
async def test_a_backup_tool_that_swaps_the_file_while_it_is_written_is_not_an_accusation(
    place: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """
    Case 32a and L7: the file is opened, then a copy takes its name. Every acknowledged record is in the copy, and nobody is accused.
    """
    async with Rig(place) as rig:
        attempt = await rig.attempt()
        await attempt.write(says("one"))
        waiting = [rig.active]

        def swap_once(fd: int) -> None:
            if waiting and str(Path(f"/proc/self/fd/{fd}").readlink()) == str(waiting[0]):
                waiting.clear()
                replaced_by_identical(rig)

        with monkeypatch.context() as patched:
            for call in (
                ("pwrite", "pwritev", "write", "writev")
                if moment == "before the write"
                else ("fdatasync", "fsync")
            ):
                patched.setattr(
                    os,
                    call,
                    swapping(getattr(os, call), swap_once, is_first=moment == "before the write"),
                )
            await attempt.write(says("two"))
        assert waiting == []
        assert any(b'"two"' in path.read_bytes() for path in rig.segments)
        await attempt.reacquire(says("three"))
        assert await rig.said() == ["born", "one", "two", "three"]


def swapping(
    genuine: Callable[..., object], swap: Callable[[int], None], *, is_first: bool
) -> Callable[..., object]:
    def call(fd: int, *rest: object) -> object:
        if is_first:
            swap(fd)
        done = genuine(fd, *rest)
        if not is_first:
            swap(fd)
        return done

    return call


@pytest.mark.parametrize("way", ["reacquire", "open"])
@in_loop
async def test_records_past_the_anchor_are_made_durable_before_anyone_acts_on_them(
    place: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Case 32b: a peer wrote a whole record and died before its sync; we sync it, then fold it."""
    async with Rig(place) as rig:
        happened: list[str] = []

        def fold(record: Record) -> None:
            happened.extend(texts([record]))

        attempt = await Attempt.acquire(await rig.journal(), fold)
        await attempt.release()
        peer = rig.peer()
        peer.tell("die_writing", session=OPS, keep=1 << 20)
        peer.wait()
        watch_syncs(monkeypatch, happened)
        happened.clear()
        if way == "reacquire":
            await attempt.reacquire()
        else:
            await Attempt.acquire(await rig.journal(), fold)
        monkeypatch.undo()
        assert "segment synced" in happened
        assert happened.index("segment synced") < happened.index("torn")
        await attempt.dispose()
        assert await rig.said() == ["born", "torn"]


def watch_syncs(monkeypatch: pytest.MonkeyPatch, happened: list[str]) -> None:
    for name in ("fsync", "fdatasync"):
        genuine = getattr(os, name)

        def watched(fd: int, genuine: Callable[[int], None] = genuine) -> None:
            genuine(fd)
            if str(Path(f"/proc/self/fd/{fd}").readlink()).endswith(".jsonl"):
                happened.append("segment synced")

        monkeypatch.setattr(os, name, watched)


@in_loop
async def test_no_lock_is_held_over_foreign_work(place: Path) -> None:
    """
    Case 33: a model, a tool, a prompt and a summary each find the lock free, and another process
    writes meanwhile.
    """
    async with Rig(place) as rig:
        watched = WatchedJournal(await rig.journal(), rig.lock_is_free)
        claim = await watched.claim()
        folded: list[Record] = []
        attempt = await Attempt.acquire(watched, folded.append, claim=claim)
        peer = rig.peer()
        for work in ("model", "tool", "prompt", "summary"):
            await attempt.write(says(f"{work} started"))
            await attempt.release()
            await asyncio.sleep(0)
            assert rig.lock_is_free(), work
            peer.append(OPS, f"during {work}")
            outcome = attempt.produced("outcome", b"{}")
            await attempt.reacquire(says(f"{work} ended"), keeping=[outcome])
        await attempt.write(says("done"))
        await attempt.dispose()
        assert watched.calls >= 4 * 2 + 4
        expected = [
            f"{what} {work}"
            for work in ("model", "tool", "prompt", "summary")
            for what in ("during",)
        ]
        assert [text for text in texts(folded) if text.startswith("during")] == expected
        assert await rig.said() == texts(folded)
