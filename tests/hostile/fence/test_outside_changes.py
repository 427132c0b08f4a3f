"""
Any change of bytes by hands without our key is a takeover, whenever and however it was made (L4;
cases 11-21).
"""

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from proof.rigs.rig import Rig

from holdfast.errors import Takeover, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Draft, Section
from holdfast.runtime.ledger.attempt import Attempt, WriteAs
from holdfast.testing import outside
from holdfast.testing.conformance.store import OPS, note, says
from holdfast.testing.loop import in_loop


async def refuses_for_good(
    rig: Rig, attempt: Attempt, *, said: list[str], taken: type[Untrusted] = Takeover
) -> None:
    """
    The attempt that comes back is refused, stays refused, wrote nothing; so is everybody else, from
    now on.
    """
    size = sum(path.stat().st_size for path in rig.segments)
    with pytest.raises(taken):
        await attempt.reacquire(says("late"))
    assert attempt.stopped is not None
    with pytest.raises(Untrusted):
        await attempt.write(says("late"))
    with pytest.raises(Untrusted):
        await attempt.write(says("late"), as_=WriteAs.PARTICIPANT)
    assert sum(path.stat().st_size for path in rig.segments) == size
    assert all(b'"late"' not in path.read_bytes() for path in rig.segments)
    assert await rig.seal() is not None
    assert await rig.said() == said
    fresh = await rig.journal()
    with pytest.raises(Untrusted):
        await fresh.append(says("late"), since=fresh.head)


async def released(rig: Rig, *said: str) -> Attempt:
    attempt = await rig.attempt()
    for text in said:
        await attempt.write(says(text))
    await attempt.release()
    return attempt


def forged(rig: Rig, text: str, *, type_: str = "note") -> bytes:
    """A row in the shape of the last one, numbered on, with a mac that nobody made with our key."""
    last = json.loads(rig.active.read_bytes().splitlines()[-1])
    row = {
        **last,
        "seq": last["seq"] + 1,
        "type": type_,
        "body": {"text": text},
        "mac": last["mac"][::-1],
    }
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(
    "row",
    [
        b"\n",
        b"a stranger was here\n",
        b'{"text":"well-formed"}\n',
        b"\xff\xfe\n",
        b"first\nsecond\nthird\n",
    ],
)
@in_loop
async def test_an_outside_append_is_a_takeover(place: Path, row: bytes) -> None:
    """Case 11."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        outside.append(rig.active, row)
        await refuses_for_good(rig, attempt, said=["born", "one"])


@in_loop
async def test_a_replayed_row_of_ours_is_a_takeover(place: Path) -> None:
    """Case 11: a genuine row at the wrong place is not genuine there."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one", "two")
        outside.append(rig.active, rig.active.read_bytes().splitlines(keepends=True)[-2])
        await refuses_for_good(rig, attempt, said=["born", "one", "two"])


@in_loop
async def test_a_row_of_another_session_is_a_takeover(place: Path) -> None:
    """Case 11: made by us, with our key, for somebody else."""
    async with Rig(place) as rig:
        other = await (await rig.store()).create(
            SessionId("ops/db"), InstanceId("i-db"), [note("born")], origin="created", by="tests"
        )
        done = await other.append(says("one"), since=other.head)
        assert done.suffix
        attempt = await released(rig)
        outside.append(rig.active, [line async for line in other.lines()][-1])
        await refuses_for_good(rig, attempt, said=["born"])


@pytest.mark.parametrize(
    "type_", ["note", "compacted", "segment_closed", "segment_opened", "tail_repaired"]
)
@in_loop
async def test_a_forged_row_of_harmless_shape_is_a_takeover(place: Path, type_: str) -> None:
    """Case 12: compaction-shaped, or like the journal's own bookkeeping: shape is not a signature."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        outside.append(rig.active, forged(rig, "summary", type_=type_))
        await refuses_for_good(rig, attempt, said=["born", "one"])


async def launder_inside(rig: Rig, attempt: Attempt) -> None:
    def decide(_: Section) -> Sequence[Draft]:
        outside.edit(rig.active, b'"one"', b'"two"')
        return [note("summary")]

    await attempt.write(decide)


async def launder_after(rig: Rig, attempt: Attempt) -> None:
    await attempt.write(says("summary"))
    outside.edit(rig.active, b'"one"', b'"two"')
    await attempt.write(says("another"))


@pytest.mark.parametrize("launder", [launder_inside, launder_after])
@in_loop
async def test_a_write_of_ours_never_launders_one_that_is_not(
    place: Path, launder: Callable[[Rig, Attempt], object]
) -> None:
    """
    Case 13: an outside edit, then an owned append of the very attempt; inside or after the
    compaction call.
    """
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        with suppress(Untrusted):  # seen at once: even better
            await launder(rig, attempt)
        await refuses_for_good(rig, attempt, said=["born"], taken=Untrusted)


@in_loop
async def test_an_edit_before_a_short_write_of_ours_is_still_seen(place: Path) -> None:
    """
    Case 13, before the compaction call: the edit is behind our position, the short write looks only
    past it.
    """
    async with Rig(place) as rig:
        attempt = await released(rig, "one", "and more")
        outside.edit(rig.active, b'"one"', b'"two"')
        with suppress(Untrusted):
            await attempt.write(says("summary"))
        await refuses_for_good(rig, attempt, said=["born"], taken=Untrusted)


@in_loop
async def test_a_peers_write_never_launders_one_that_is_not(place: Path) -> None:
    """
    Case 13: a peer that was there before the edit writes on top of it; the one that comes back
    still sees it.
    """
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        peer = rig.peer()
        peer.ask("open", session=OPS)
        outside.edit(rig.active, b'"one"', b'"two"')
        peer.ask("append", session=OPS, texts=["on top"])
        await refuses_for_good(rig, attempt, said=["born"], taken=Untrusted)


@in_loop
async def test_a_peer_that_opens_after_an_edit_refuses(place: Path) -> None:
    """Case 13: it never gets to write on top."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        outside.edit(rig.active, b'"one"', b'"two"')
        answer = rig.peer().ask("append", session=OPS, texts=["on top"])
        assert answer["error"] in {"broken", "takeover", "sealed"}
        await refuses_for_good(rig, attempt, said=["born"], taken=Untrusted)


@in_loop
async def test_an_edit_while_a_peer_holds_the_lock_is_a_takeover(place: Path) -> None:
    """Case 14: a held lock keeps our writers apart, and means nothing to outside hands."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        peer = rig.peer()
        assert peer.ask("hold", session=OPS) == {"holding": True}
        assert not rig.lock_is_free()
        outside.edit(rig.active, b'"one"', b'"two"')
        peer.ask("go")
        await refuses_for_good(rig, attempt, said=["born"], taken=Untrusted)


@in_loop
async def test_an_append_while_a_peer_holds_the_lock_is_never_acknowledged_over(
    place: Path,
) -> None:
    """
    Case 14, growing the file: the peer's own check around its write sees it, or whoever comes next
    does.
    """
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        peer = rig.peer()
        peer.ask("hold", session=OPS)
        outside.append(rig.active, b"a stranger was here\n")
        peer.ask("go")
        with pytest.raises(Untrusted):
            await attempt.reacquire(says("late"))
        assert await rig.seal() is not None
        assert (await rig.said())[:2] == ["born", "one"]


@pytest.mark.parametrize("moment", ["before", "after"])
@in_loop
async def test_an_edit_inside_a_section_of_ours_is_a_takeover_for_us_and_for_peers(
    place: Path, moment: str
) -> None:
    """Case 15: before or after our own append, with our own lock held over the first."""
    async with Rig(place) as rig:
        attempt, peer = await released(rig, "one"), await rig.attempt()
        await peer.release()

        def edit() -> None:
            outside.edit(rig.active, b'"one"', b'"two"')

        def decide(_: Section) -> Sequence[Draft]:
            if moment == "before":
                edit()
            return [note("ours")]

        try:
            await attempt.write(decide)
            if moment == "after":
                edit()
        except Untrusted:
            assert moment == "before"
        with pytest.raises(Untrusted):
            await peer.reacquire(says("late"))
        await refuses_for_good(rig, attempt, said=["born"], taken=Untrusted)


@in_loop
async def test_an_old_line_edited_under_a_new_row_is_a_takeover(place: Path) -> None:
    """Case 16: same length, and a well-formed row appended to draw the eye."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one", "two")
        outside.edit(rig.active, b'"one"', b'"1.0"')
        outside.append(rig.active, forged(rig, "harmless"))
        await refuses_for_good(rig, attempt, said=["born"])


@in_loop
async def test_a_swapped_body_is_a_takeover(place: Path) -> None:
    """Case 17: the row's header, number and mac are kept."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one", "two", "end")
        content = rig.active.read_bytes()
        swapped = (
            content.replace(b'"one"', b'"###"')
            .replace(b'"two"', b'"one"')
            .replace(b'"###"', b'"two"')
        )
        with rig.active.open("r+b") as file:
            file.write(swapped)
        await refuses_for_good(rig, attempt, said=["born"])


@in_loop
async def test_an_edit_between_two_turns_is_refused_by_the_next_open(place: Path) -> None:
    """Case 18: no attempt alive."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        await attempt.dispose()
        outside.edit(rig.active, b'"one"', b'"two"')
        journal = await rig.journal()
        assert journal.sealed is not None
        with pytest.raises(Untrusted):
            await Attempt.acquire(journal, lambda _: None)
        assert await rig.said() == ["born"]


@in_loop
async def test_an_edit_before_the_first_release_is_refused(place: Path) -> None:
    """Case 19: a fresh attempt that never was away."""
    async with Rig(place) as rig:
        first = await released(rig, "one")
        await first.dispose()
        attempt = await rig.attempt()
        outside.edit(rig.active, b'"one"', b'"two"')
        await attempt.release()
        await refuses_for_good(rig, attempt, said=["born"])


@pytest.mark.parametrize("edit", [outside.edit, outside.edit_mapped])
@in_loop
async def test_a_same_size_edit_with_restored_times_is_a_takeover(
    place: Path, edit: Callable[[Path, bytes, bytes], None]
) -> None:
    """Case 20: through write and through a memory map."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one", "two")
        with outside.same_times(rig.active):
            edit(rig.active, b'"one"', b'"1.0"')
        await refuses_for_good(rig, attempt, said=["born"])


async def prepared(place: Path) -> int:
    """A home with a short history in one segment, and how long that is."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        await attempt.dispose()
        return rig.active.stat().st_size


BYTES = [pytest.param(17, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)]


@pytest.mark.parametrize("every", BYTES)
@in_loop
async def test_every_byte_of_the_active_segment_counts_at_the_next_open(
    place: Path, every: int
) -> None:
    """
    Cases 18 and 20: any flipped bit, in headers, key names, digests, macs and line ends as well.
    """
    size = await prepared(place / "good")
    for at in range(0, size, every):
        await asyncio.to_thread(shutil.copytree, place / "good", place / f"{at}")
        async with Rig(place / f"{at}") as rig:
            outside.flip(rig.active, at)
            assert await rig.seal() is not None, at
            fresh = await rig.journal()
            with pytest.raises(Untrusted):
                await fresh.append(says("late"), since=fresh.head)


@pytest.mark.parametrize("every", BYTES)
@in_loop
async def test_every_byte_of_the_active_segment_counts_for_a_returning_process(
    place: Path, every: int
) -> None:
    """Case 20: the same, for an attempt that was away."""
    size = await prepared(place / "good")
    for at in range(0, size, every):
        await asyncio.to_thread(shutil.copytree, place / "good", place / f"{at}")
        async with Rig(place / f"{at}") as rig:
            attempt = await released(rig)
            outside.flip(rig.active, at)
            with pytest.raises(Untrusted):
                await attempt.reacquire(says("late"))
            assert await rig.seal() is not None, at


def truncated(path: Path, older: bytes) -> None:
    outside.cut(path, len(older))


def truncated_in_a_record(path: Path, _older: bytes) -> None:
    outside.cut(path, path.stat().st_size - 10)


def truncated_to_nothing(path: Path, _older: bytes) -> None:
    outside.cut(path, 0)


def truncated_and_regrown(path: Path, older: bytes) -> None:
    size = path.stat().st_size
    outside.cut(path, len(older))
    outside.append(path, b" " * (size - len(older) - 1) + b"\n")


def truncated_and_regrown_with_zeros(path: Path, older: bytes) -> None:
    size = path.stat().st_size
    outside.cut(path, len(older))
    outside.cut(path, size)


def deleted(path: Path, _older: bytes) -> None:
    path.unlink()


def replaced_by_older(path: Path, older: bytes) -> None:
    outside.replace(path, older)


@pytest.mark.parametrize(
    "shorten",
    [
        truncated,
        truncated_in_a_record,
        truncated_to_nothing,
        truncated_and_regrown,
        truncated_and_regrown_with_zeros,
        deleted,
        replaced_by_older,
    ],
)
@pytest.mark.parametrize("is_anyone_alive", [True, False])
@in_loop
async def test_history_that_went_missing_seals(
    place: Path, shorten: Callable[[Path, bytes], None], is_anyone_alive: bool
) -> None:
    """
    Case 21: cut short or broken, for whoever comes back and for the next open; what verifies stays
    readable.
    """
    async with Rig(place) as rig:
        attempt = await rig.attempt()
        older = rig.active.read_bytes()
        await attempt.write(says("acknowledged"))
        await attempt.release()
        if is_anyone_alive:
            shorten(rig.active, older)
            with pytest.raises(Untrusted):
                await attempt.reacquire(says("late"))
        else:
            await attempt.dispose()
            shorten(rig.active, older)
        mark = await rig.seal()
        assert mark is not None
        assert mark.code in {"cut_short", "broken", "takeover"}
        assert set(await rig.said()) <= {"born"}


@in_loop
async def test_bytes_put_back_do_not_lift_the_seal(place: Path) -> None:
    """D4: a person decides, not whoever can write files."""
    async with Rig(place) as rig:
        attempt = await released(rig, "one")
        good = rig.active.read_bytes()
        outside.edit(rig.active, b'"one"', b'"two"')
        with pytest.raises(Takeover):
            await attempt.reacquire()
        outside.replace(rig.active, good)
        assert await rig.seal() is not None
        fresh = await rig.journal()
        with pytest.raises(Untrusted):
            await fresh.append(says("late"), since=fresh.head)
        assert await rig.said() == ["born", "one"]


@in_loop
async def test_an_edit_of_a_closed_segment_seals_at_the_next_open(place: Path) -> None:
    """L4: closed segments are checked whole by whoever opens next."""
    async with Rig(place) as rig:
        attempt = await rig.attempt(segment_bytes=4096)
        for number in range(30):
            await attempt.write(says(f"{number:02d} " + "x" * 400))
        await attempt.dispose()
        assert len(rig.segments) > 2
        outside.edit(rig.segments[0], b'"02 ', b'"99 ')
        assert await rig.seal() is not None
        assert [text[:2] for text in await rig.said()] == ["bo", "00", "01"]


@in_loop
async def test_a_whole_segment_of_another_session_is_refused(place: Path) -> None:
    """A copy of a stranger's journal under our name: another key, another chain."""
    async with Rig(place) as rig:
        other = await (await rig.store()).create(
            SessionId("ops/db"), InstanceId("i-db"), [note("born")], origin="created", by="tests"
        )
        attempt = await released(rig)
        await asyncio.to_thread(shutil.copyfile, other.where()[0], rig.active)
        await refuses_for_good(rig, attempt, said=[], taken=Untrusted)


@in_loop
async def test_another_file_of_the_same_size_is_seen_by_the_shortest_look(place: Path) -> None:
    """
    L4: a file that we did not write to ourselves is read whole, whatever was asked for, and again
    by the next who comes.
    """
    async with Rig(place) as rig:
        attempt = await rig.attempt()
        await attempt.write(says("one"))
        outside.replace(rig.active, rig.active.read_bytes().replace(b'"one"', b'"two"'))
        with pytest.raises(Takeover):
            await attempt.write(says("late"))
        assert await rig.said() == ["born"]
