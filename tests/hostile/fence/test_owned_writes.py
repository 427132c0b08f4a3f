"""
Owned writes are accepted, in any order, from any task, thread or process that holds the key (L5,
L7; cases 1-10).
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from proof.rigs.rig import Rig

from holdfast.ports.journal_store import Appended, Draft, Record, Section
from holdfast.testing import outside
from holdfast.testing.conformance.store import OPS, note, says, texts
from holdfast.testing.loop import in_loop


@in_loop
async def test_a_write_of_another_attempt_is_folded_in(place: Path) -> None:
    """Case 1, in one process."""
    async with Rig(place) as rig:
        folded: list[Record] = []
        attempt, other = await rig.attempt(folded), await rig.attempt()
        await attempt.release()
        await other.write(says("theirs"))
        await attempt.reacquire(says("ours"))
        assert texts(folded) == await rig.said() == ["born", "theirs", "ours"]


@in_loop
async def test_a_write_of_another_process_is_folded_in(place: Path) -> None:
    """Case 1, from another process."""
    async with Rig(place) as rig:
        folded: list[Record] = []
        attempt = await rig.attempt(folded)
        await attempt.release()
        rig.peer().append(OPS, "theirs")
        await attempt.reacquire(says("ours"))
        assert texts(folded) == await rig.said() == ["born", "theirs", "ours"]


@in_loop
async def test_a_synchronous_write_while_released_is_accepted(place: Path) -> None:
    """Case 2: compaction's path, from the loop's thread and from another one."""
    async with Rig(place) as rig:
        attempt = await rig.attempt()
        await attempt.release()
        journal = await rig.journal()
        journal.append_now(says("summary"), since=journal.head)
        written = says("summary from a thread")
        await asyncio.to_thread(journal.append_now, written, since=journal.head)
        await attempt.reacquire(says("reply"))
        assert await rig.said() == ["born", "summary", "summary from a thread", "reply"]


@in_loop
async def test_a_disposed_attempt_does_not_cast_a_shadow(place: Path) -> None:
    """
    Case 3: released and disposed, then a later attempt, then compaction in the later one's window.
    """
    async with Rig(place) as rig:
        earlier = await rig.attempt()
        await earlier.release()
        await earlier.dispose()
        later = await rig.attempt()
        await later.write(says("later"))
        await later.release()
        await later.write(says("summary"))
        await later.reacquire(says("reply"))
        assert await rig.said() == ["born", "later", "summary", "reply"]


@in_loop
async def test_a_peers_write_before_our_own_short_write_is_accepted(place: Path) -> None:
    """
    Case 4: the second attempt publishes while the first is released, then the first one's
    compaction appends.
    """
    async with Rig(place) as rig:
        folded: list[Record] = []
        first, second = await rig.attempt(folded), await rig.attempt()
        await first.release()
        await second.write(says("published"))
        await first.write(says("summary"))
        await first.reacquire(says("reply"))
        assert texts(folded) == await rig.said() == ["born", "published", "summary", "reply"]


@in_loop
async def test_it_does_not_matter_whether_a_write_was_announced(place: Path) -> None:
    """
    Case 5: one process writes and tells nobody, another attempt writes after it; both came after
    our release.
    """
    async with Rig(place) as rig:
        folded: list[Record] = []
        first, second = await rig.attempt(folded), await rig.attempt()
        await first.release()
        rig.peer().append(OPS, "unannounced")
        await second.write(says("announced"))
        await first.reacquire()
        assert texts(folded) == ["born", "unannounced", "announced"]


@in_loop
async def test_seventy_writes_of_peers_are_folded_in_order(place: Path) -> None:
    """Case 6."""
    async with Rig(place) as rig:
        folded: list[Record] = []
        attempt = await rig.attempt(folded)
        others = [await rig.attempt() for _ in range(2)]
        await attempt.release()
        for number in range(70):
            await others[number % 2].write(says(f"{number}"))
        await attempt.reacquire(says("reply"))
        assert texts(folded) == ["born", *(f"{number}" for number in range(70)), "reply"]


@in_loop
async def test_a_hundred_writes_of_four_processes_are_accepted(place: Path) -> None:
    """
    The same under real contention: none is lost, none is doubled, each process keeps its order,
    nobody is accused.
    """
    async with Rig(place) as rig:
        folded: list[Record] = []
        attempt = await rig.attempt(folded)
        peers = [rig.peer() for _ in range(4)]
        for peer in peers:
            peer.ask("open", session=OPS)
        await attempt.release()
        for number in range(25):
            for who, peer in enumerate(peers):
                peer.tell("append", session=OPS, texts=[f"{who}.{number}"])
        for peer in peers:
            for _ in range(25):
                assert "error" not in peer.hear()
        await attempt.reacquire()
        assert sorted(texts(folded)[1:]) == sorted(
            f"{who}.{number}" for who in range(4) for number in range(25)
        )
        for who in range(4):
            theirs = [text for text in texts(folded) if text.startswith(f"{who}.")]
            assert theirs == [f"{who}.{number}" for number in range(25)]


@in_loop
async def test_a_delivery_mirror_and_the_reply_are_both_written_once(place: Path) -> None:
    """
    Case 7: the mirror writes while the answer streams; the reply follows at once. No deadlock, no
    duplicate.
    """
    async with Rig(place) as rig:
        folded: list[Record] = []
        attempt = await rig.attempt(folded)
        await attempt.release()
        streamed: asyncio.Queue[str | None] = asyncio.Queue()

        async def mirror() -> None:
            while (part := await streamed.get()) is not None:
                await attempt.write(says(f"mirrored {part}"))

        async with asyncio.TaskGroup() as group:
            group.create_task(mirror())
            for part in ("one", "two", "three"):
                await streamed.put(part)
            await streamed.put(None)
            await attempt.reacquire(says("reply"))
        written = await rig.said()
        assert sorted(written) == [
            "born",
            "mirrored one",
            "mirrored three",
            "mirrored two",
            "reply",
        ]
        assert [text for text in written if text.startswith("mirrored")] == [
            *("mirrored one", "mirrored two", "mirrored three")
        ]
        assert texts(folded) == written


@in_loop
async def test_a_task_started_inside_a_write_takes_its_own_lock(place: Path) -> None:
    """Case 8: it is resumed after that write ended, and writes by itself."""
    async with Rig(place) as rig:
        attempt = await rig.attempt()
        loop = asyncio.get_running_loop()
        started: asyncio.Future[Appended] = loop.create_future()

        async def detached() -> None:
            started.set_result(await attempt.write(says("detached")))

        def decide(_: Section) -> Sequence[Draft]:
            asyncio.run_coroutine_threadsafe(detached(), loop)
            return [note("section")]

        await attempt.write(decide)
        assert texts((await started).suffix)[-1] == "detached"
        assert await rig.said() == ["born", "section", "detached"]


@in_loop
async def test_a_thread_started_inside_a_write_takes_its_own_lock(place: Path) -> None:
    """Case 8, with a thread: it waits for the write that started it, and does not join it."""
    async with Rig(place) as rig:
        attempt = await rig.attempt()
        threads: list[threading.Thread] = []

        def decide(_: Section) -> Sequence[Draft]:
            write = attempt.write(says("from a thread"))
            thread = threading.Thread(target=asyncio.run, args=(write,))
            threads.append(thread)
            thread.start()
            return [note("section")]

        await attempt.write(decide)
        await asyncio.to_thread(threads[0].join)
        assert await rig.said() == ["born", "section", "from a thread"]


@in_loop
async def test_an_exception_of_the_caller_does_not_harm_the_next_write(place: Path) -> None:
    """Case 9: after the write, and inside it."""
    async with Rig(place) as rig:
        attempt = await rig.attempt()

        async def caller() -> None:
            await attempt.write(says("written"))
            raise ValueError("of the caller")

        def decide(_: Section) -> Sequence[Draft]:
            raise ValueError("of the decide")

        with pytest.raises(ValueError, match="of the caller"):
            await caller()
        with pytest.raises(ValueError, match="of the decide"):
            await attempt.write(decide)
        with pytest.raises(ValueError, match="of the decide"):
            await attempt.reacquire(decide)
        await attempt.write(says("next"))
        assert await rig.said() == ["born", "written", "next"]


def restored_times(path: Path) -> None:
    with outside.same_times(path):
        path.touch()


def replaced_by_identical(path: Path) -> None:
    outside.replace(path, path.read_bytes())


def rewritten_identically(path: Path) -> None:
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content)


def moved_away_and_back(path: Path) -> None:
    away = path.with_suffix(".away")
    path.rename(away)
    away.rename(path)


@pytest.mark.parametrize(
    "harmless",
    [
        outside.touch,
        restored_times,
        replaced_by_identical,
        rewritten_identically,
        moved_away_and_back,
    ],
)
@in_loop
async def test_a_change_of_file_metadata_is_not_reported_as_tampering(
    place: Path, harmless: Callable[[Path], None]
) -> None:
    """
    Case 10: times and inodes are not history. Writes after it reach the file that has the name.
    """
    async with Rig(place) as rig:
        attempt, other = await rig.attempt(), await rig.attempt()
        await attempt.write(says("one"))
        await attempt.release()
        harmless(rig.active)
        await attempt.reacquire(says("two"))
        await other.write(says("three"))
        assert await rig.said() == ["born", "one", "two", "three"]


@pytest.mark.parametrize("keep", [1, 7, 100, -2])
@in_loop
async def test_a_peer_killed_in_mid_write_is_not_a_takeover(place: Path, keep: int) -> None:
    """
    Case 10: a torn tail is cut, kept in quarantine and journalled; -2 is all but the closing brace
    and newline.
    """
    async with Rig(place) as rig:
        folded: list[Record] = []
        attempt = await rig.attempt(folded)
        await attempt.write(says("acknowledged"))
        await attempt.release()
        size = rig.active.stat().st_size
        peer = rig.peer()
        peer.tell("die_writing", session=OPS, keep=keep)
        assert peer.wait() == -9
        assert rig.active.stat().st_size > size
        await attempt.reacquire(says("reply"))
        assert texts(folded) == await rig.said() == ["born", "acknowledged", "reply"]
        assert [record.type for record in folded].count("tail_repaired") == 1
        (kept,) = await (await rig.journal()).quarantined()
        assert (rig.path / kept).is_file()


@in_loop
async def test_an_open_after_a_peer_was_killed_in_mid_write_is_not_an_accusation(
    place: Path,
) -> None:
    """Case 10, with nobody alive meanwhile."""
    async with Rig(place) as rig:
        peer = rig.peer()
        peer.append(OPS, "acknowledged")
        peer.tell("die_writing", session=OPS, keep=50)
        assert peer.wait() == -9
        attempt = await rig.attempt()
        await attempt.write(says("next"))
        assert await rig.seal() is None
        assert await rig.said() == ["born", "acknowledged", "next"]


@in_loop
async def test_a_peer_killed_after_its_write_leaves_a_record_of_ours(place: Path) -> None:
    """Case 10: whole and signed, though never acknowledged; it is folded like any other."""
    async with Rig(place) as rig:
        folded: list[Record] = []
        attempt = await rig.attempt(folded)
        await attempt.release()
        peer = rig.peer()
        peer.tell("die_writing", session=OPS, keep=1 << 20)
        assert peer.wait() == -9
        await attempt.reacquire(says("reply"))
        assert texts(folded) == await rig.said() == ["born", "torn", "reply"]


@in_loop
async def test_rotations_of_a_peer_are_followed(place: Path) -> None:
    """Case 10: several segments later, everything is folded in order, and the fence still holds."""
    async with Rig(place) as rig:
        folded: list[Record] = []
        attempt = await rig.attempt(folded, segment_bytes=4096)
        await attempt.release()
        peer = rig.peer(segment_bytes=4096)
        for number in range(40):
            peer.append(OPS, f"{number} " + "x" * 400)
        assert len(rig.segments) > 2
        await attempt.reacquire(says("reply"))
        assert [text.split()[0] for text in texts(folded)] == [
            "born",
            *(f"{n}" for n in range(40)),
            "reply",
        ]
        await attempt.release()
        await attempt.reacquire(says("again"))
        assert (await rig.said())[-2:] == ["reply", "again"]
