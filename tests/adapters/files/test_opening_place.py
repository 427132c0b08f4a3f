"""
An opening starts from the place of the snapshot: the bytes before it are checked by one digest, and
every change is found as it is found without a snapshot.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.files.conftest import OPS

from holdfast.adapters.files.paths import read_into_kept
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.journal import fence as fences
from holdfast.journal.fence import SegmentPlace
from holdfast.journal.record import Head
from holdfast.ports.snapshots import Snapshot
from holdfast.testing import ManualClock
from holdfast.testing.loop import in_loop

NOTES = 40
STATE = b"a state"


async def grown(files: Any, *, behind: int = 3, **settings: Any) -> Path:
    """A session with a snapshot after 40 notes and a few notes behind it; the snapshot's path."""
    await files.create(NOTES, **settings)
    async with files.store(**settings) as store:
        journal = await store.open(OPS)
        await journal.keep_snapshot(Snapshot(journal.head, STATE))
        for number in range(NOTES, NOTES + behind):
            await journal.append(files.says(number), since=journal.head)
        await journal.close()
    [path] = files.folder.glob("*.snapshot")
    return Path(path)


async def found(files: Any) -> tuple[Any, ...]:
    """The verdict of an opening, and every record that it gives."""
    async with files.store() as store:
        journal = await store.open(OPS)
        mark = journal.sealed
        if mark is not None:
            return mark.code, mark.detail, mark.at_seq
        return "holds", await files.numbers(journal), journal.head


@pytest.fixture
def believed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines whose macs were computed one by one."""
    lines: list[bytes] = []
    believe = fences.believe

    def seen(key: bytes, previous: bytes, line: bytes) -> Any:
        lines.append(line)
        return believe(key, previous, line)

    monkeypatch.setattr(fences, "believe", seen)
    return lines


@pytest.mark.parametrize("behind", [0, 3])
@in_loop
async def test_an_opening_walks_only_the_records_behind_its_snapshot(
    files: Any, believed: list[bytes], behind: int
) -> None:
    await grown(files, behind=behind)
    async with files.store() as store:
        believed.clear()
        journal = await store.open(OPS)
        assert len(believed) == 1 + behind  # the segment's header, and the notes behind
        kept = await journal.read_snapshot()
        assert kept is not None
        assert (kept.data, kept.is_past) == (STATE, True)
        assert kept.head.seq + behind == journal.head.seq
        numbers = await files.numbers(journal)
        assert numbers == [*range(NOTES + behind)]


@in_loop
async def test_records_behind_a_snapshot_are_read_once(files: Any, believed: list[bytes]) -> None:
    """A load that starts from the snapshot uses the records that the opening has verified."""
    await grown(files)
    async with files.store() as store:
        journal = await store.open(OPS)
        kept = await journal.read_snapshot()
        assert kept is not None
        believed.clear()
        records: list[Any] = []
        head = await journal.load(records.append, after=kept.head.seq)
        assert (files.of(records), head) == ([40, 41, 42], journal.head)
        assert believed == []


@in_loop
async def test_every_change_before_the_place_is_found_as_without_a_snapshot(files: Any) -> None:
    path = await grown(files)
    snapshot = path.read_bytes()
    [segment] = files.segments
    good, home = segment.read_bytes(), files.path / "home"
    sealed = {each: each.read_bytes() for each in home.iterdir()}
    sealed |= {each: each.read_bytes() for each in (files.path / "anchors").iterdir()}
    for place in range(7, len(good), 997):
        changed = bytearray(good)
        changed[place] ^= 1
        verdicts = []
        for kept in (snapshot, None):
            for each, content in sealed.items():  # the seal of the round before is lifted
                each.write_bytes(content)
            segment.write_bytes(changed)
            path.write_bytes(kept) if kept is not None else path.unlink()
            verdicts.append(await found(files))
        assert verdicts[0] == verdicts[1]
        assert verdicts[0][0] in ("broken", "cut_short"), place


@pytest.mark.parametrize("cut", [1, 700, 4_000], ids=str)
@in_loop
async def test_a_journal_that_lost_its_end_is_cut_short_with_a_snapshot_too(
    files: Any, cut: int
) -> None:
    await grown(files)
    [segment] = files.segments
    segment.write_bytes(segment.read_bytes()[:-cut])
    assert (await found(files))[0] == "cut_short"


@in_loop
async def test_an_older_genuine_snapshot_is_only_older(files: Any) -> None:
    """Somebody put an older one back. Its bytes still stand, so it changes nothing."""
    path = await grown(files)
    older, truth = path.read_bytes(), await found(files)
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.keep_snapshot(Snapshot(journal.head, b"newer"))
        await journal.close()
    assert path.read_bytes() != older
    path.write_bytes(older)
    assert await found(files) == truth


@in_loop
async def test_a_place_in_a_closed_segment_is_not_used(files: Any) -> None:
    """The digest in the next header checks that segment."""
    await grown(files, behind=60, segment_bytes=16_000)
    assert len(files.segments) > 1
    async with files.store() as store:
        journal = await store.open(OPS)
        kept = await journal.read_snapshot()
        assert kept is not None
        assert not kept.is_past
        assert await files.numbers(journal) == [*range(NOTES + 60)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda place: place._replace(digest="0" * 64),
        lambda place: place._replace(offset=place.offset - 1),
        lambda place: place._replace(offset=10**9),
        lambda place: place._replace(number=2),
        lambda place: place._replace(seq=place.seq - 1),
        lambda place: place._replace(mac="0" * 64),
    ],
    ids=["digest", "offset", "past the end", "segment", "seq", "mac"],
)
@pytest.mark.parametrize("behind", [0, 1])
@in_loop
async def test_a_place_that_is_not_one_of_this_journal_is_not_used(
    files: Any, wrong: Callable[[SegmentPlace], SegmentPlace], behind: int
) -> None:
    """Its mac is right: a Holdfast with a bug has written it. The walk from the header counts."""
    await files.create(NOTES)
    async with files.store() as store:
        journal = await store.open(OPS)
        assert isinstance(journal, FileJournal)
        place = journal.fence.place()
        assert place is not None
        for number in range(NOTES, NOTES + behind):
            await journal.append(files.says(number), since=journal.head)
        snapshot = Snapshot(Head(place.seq, bytes.fromhex(place.mac)), STATE)
        store.keep_snapshot(journal.files, snapshot, wrong(place))
        await journal.close()
        head, journal = journal.head, await store.open(OPS)
        assert journal.head == head
        kept = await journal.read_snapshot()
        assert kept is not None
        assert not kept.is_past
        assert await files.numbers(journal) == [*range(NOTES + behind)]


@in_loop
async def test_a_place_vouches_for_its_own_record_alone(files: Any) -> None:
    """A snapshot that names another record than its place is checked against the journal."""
    await files.create(NOTES)
    async with files.store() as store:
        journal = await store.open(OPS)
        assert isinstance(journal, FileJournal)
        other = Snapshot(Head(journal.head.seq, bytes(32)), STATE)
        store.keep_snapshot(journal.files, other, journal.fence.place())
        await journal.close()
        kept = await (await store.open(OPS)).read_snapshot()
        assert kept == other


@in_loop
async def test_times_and_epochs_do_not_fall_behind_a_place(files: Any) -> None:
    """The clock was set back, and nobody drives: the next record is still no earlier."""
    clock = ManualClock()
    await files.create(NOTES, clock=clock)
    async with files.store(clock=clock) as store:
        journal = await store.open(OPS)
        claim = await journal.claim()
        assert claim is not None
        clock.advance(3_600)
        await journal.append(files.says(NOTES), since=journal.head, epoch=claim.epoch)
        await claim.release()
        await journal.keep_snapshot(Snapshot(journal.head, STATE))
        await journal.close()
    async with files.store(clock=ManualClock()) as store:
        journal = await store.open(OPS)
        kept = await journal.read_snapshot()
        assert kept is not None
        assert kept.is_past
        await journal.append(files.says(NOTES + 1), since=journal.head)
        verdict = await store.verify_session(OPS)
        assert (verdict.verdict, verdict.records) == ("holds", journal.head.seq)


def test_bytes_of_an_earlier_read_do_not_count_as_read(tmp_path: Path) -> None:
    """The buffer is kept: a file that became shorter must not look as it was."""
    path = tmp_path / "segment"
    for content in (b"the whole content", b"the who"):
        path.write_bytes(content)
        fd = os.open(path, os.O_RDONLY)
        try:
            assert bytes(read_into_kept(fd, 17)) == content
        finally:
            os.close(fd)
