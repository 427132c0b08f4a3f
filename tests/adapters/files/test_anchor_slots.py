"""
Hands without a key on the two halves of an anchor, and the crashes that look like them.

Each attack cuts something that was acknowledged and makes the anchor forget it; each honest crash
leaves a half that cannot be read. The first is always sealed, at open and by `verify`, and the
second never is.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.home import anchor_tables
from holdfast.errors import InDoubt, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")
SLOT, CLAIMS, CELL = 192, 384, 512


class Cell:
    """The anchor of `ops/api`, or of the home, as bytes in a file."""

    def __init__(self, home: Path, table: str = "0000.anchors") -> None:
        self.path = home / "anchors" / table

    def read(self) -> bytes:
        return self.path.read_bytes()[:CELL]

    def write(self, cell: bytes) -> None:
        with self.path.open("r+b") as file:
            file.write(cell)

    @property
    def newer(self) -> int:
        """Where the newer slot starts."""
        cell = self.read()
        even, odd = (int.from_bytes(cell[start + 8 : start + 16], "big") for start in (0, SLOT))
        return SLOT if odd > even else 0

    def put(self, at: int, data: bytes) -> None:
        cell = self.read()
        self.write(cell[:at] + data + cell[at + len(data) :])

    def zero_newer(self) -> None:
        self.put(self.newer, bytes(SLOT))

    def zero_older(self) -> None:
        self.put(SLOT - self.newer, bytes(SLOT))

    def copy_older_over_newer(self) -> None:
        newer, cell = self.newer, self.read()
        self.put(newer, cell[SLOT - newer : 2 * SLOT - newer])

    def copy_newer_over_older(self) -> None:
        newer, cell = self.newer, self.read()
        self.put(SLOT - newer, cell[newer : newer + SLOT])

    def of_a_key_that_never_was(self) -> None:
        self.put(self.newer + 4, (77).to_bytes(4, "big"))

    def flip_newer(self) -> None:
        at = self.newer + 100
        self.put(at, bytes([self.read()[at] ^ 1]))


FORGET = {
    "zeroed": Cell.zero_newer,
    "older copied over newer": Cell.copy_older_over_newer,
    "another key": Cell.of_a_key_that_never_was,
    "one bit": Cell.flip_newer,
}
"""Ways to make the newer half of an anchor say nothing."""


async def verdicts(home: Path) -> tuple[str, str | None]:
    """The verdict of `verify`, and then the effect of an open: the code of the seal."""
    store = await FileStore.open_home(home)
    try:
        verdict = (await store.verify_session(OPS)).verdict
        journal = await store.open(OPS)
        return verdict, journal.sealed.code if journal.sealed else None
    finally:
        await store.close()


@pytest.mark.parametrize(
    "left",
    [b"", b"{", b'{"seq":24,"at":17', b"\0" * 300],
    ids=["nothing", "one byte", "half a header", "zeros"],
)
@pytest.mark.parametrize("forget", FORGET)
@in_loop
async def test_a_cut_batch_that_its_slot_has_forgotten_is_missed(
    files: Any, forget: str, left: bytes
) -> None:
    """
    D4: without a key and without an old copy, an acknowledged batch is not undone, whatever is left
    behind in its place.
    """
    await files.create(20)
    segment = files.segments[0]
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:-1]) + left)
    FORGET[forget](Cell(files.path))
    assert await verdicts(files.path) == ("cut_short", "cut_short")


@pytest.mark.parametrize("kept", [0, 1, 2])
@in_loop
async def test_a_batch_that_was_cut_in_its_middle_is_missed(files: Any, kept: int) -> None:
    """D4: records that verify may still be half a batch. With both halves of the anchor, and with one."""
    async with files.store() as store:
        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        await journal.append(files.says(1), since=journal.head)
        await journal.append(files.says(2, 3, 4), since=journal.head)
    lines = files.segments[0].read_bytes().splitlines(keepends=True)
    assert len(lines) == 5
    files.segments[0].write_bytes(b"".join(lines[: 2 + kept]))
    for forget in (lambda: None, Cell(files.path).zero_newer):
        forget()
        assert (await verdicts(files.path))[0] == "cut_short"
        assert (await verdicts(files.path))[1] == "cut_short"


@in_loop
async def test_a_rotation_whose_new_segment_is_gone_is_missed(files: Any) -> None:
    """D4: the closing record alone is not a whole batch."""
    await files.create(20, segment_bytes=4096)
    last = files.segments[-1]
    first_batch = b"".join(last.read_bytes().splitlines(keepends=True)[:2])
    async with files.store(segment_bytes=4096) as store:
        journal = await store.open(OPS)
        number = 20
        before = len(files.segments)
        while len(files.segments) == before:
            await journal.append(files.says(number), since=journal.head)
            number += 1
    assert first_batch
    files.segments[-1].unlink()
    Cell(files.path).zero_newer()
    assert await verdicts(files.path) == ("cut_short", "cut_short")


@pytest.mark.parametrize(
    "change", [Cell.zero_older, Cell.copy_newer_over_older], ids=["zeroed", "newer copied over it"]
)
@in_loop
async def test_the_older_half_is_not_dispensable(
    files: Any, change: Callable[[Cell], None]
) -> None:
    """No crash of ours damages it: a slot is written only over a batch that is durable."""
    await files.create(5)
    change(Cell(files.path))
    assert await verdicts(files.path) == ("cut_short", "cut_short")


@in_loop
async def test_an_older_copy_of_one_half_is_seen(files: Any) -> None:
    """The two counters are exactly one apart."""
    await files.create(5)
    cell = Cell(files.path)
    older, at = cell.read()[cell.newer : cell.newer + SLOT], cell.newer
    async with files.store() as store:
        journal = await store.open(OPS)
        size = 0
        for number in range(4):
            size = files.segments[0].stat().st_size
            await journal.append(files.says(5 + number), since=journal.head)
    assert cell.newer == at
    cell.put(at, older)
    os.truncate(files.segments[0], size)
    assert await verdicts(files.path) == ("cut_short", "cut_short")


@pytest.mark.parametrize("forget", FORGET)
@in_loop
async def test_a_slot_that_was_never_finished_accuses_nobody(files: Any, forget: str) -> None:
    """
    L7: a crash in mid write of a slot. Its batch is whole: the slot is written again before anybody
    appends, and two crashes in a row are as one.
    """
    await files.create(5)
    cell = Cell(files.path)
    for _ in range(2):
        FORGET[forget](cell)
        async with files.store() as store:
            assert (await store.verify_session(OPS)).verdict == "holds"
            assert [head[2] for head in await store.heads()] != [7], "a list does not guess"
            journal = await store.open(OPS)
            assert journal.sealed is None
            assert await files.numbers(journal) == list(range(5))
            assert [head[2] for head in await store.heads()] == [6]
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(5), since=journal.head)
        assert (await store.verify_session(OPS)).verdict == "holds"


@in_loop
async def test_every_torn_write_of_a_slot_is_settled(files: Any, tmp_path: Path) -> None:
    """L7: a crash after any number of bytes of a slot, with and without half a batch behind it."""
    await files.create(5)
    before = Cell(files.path).read()
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(5), since=journal.head)
    after, at = Cell(files.path).read(), Cell(files.path).newer
    for size in range(0, SLOT + 1, 13):
        for tail, verdict in ((b"", "holds"), (b'{"seq":', "torn_tail")):
            home = tmp_path / "copy"
            shutil.copytree(files.path, home)
            Cell(home).write(before[:at] + after[at : at + size] + before[at + size :])
            with next((home / "sessions/ops/api").glob("*.jsonl")).open("ab") as file:
                file.write(tail)
            assert await verdicts(home) == (verdict, None), size
            store = await FileStore.open_home(home)
            assert await files.numbers(await store.open(OPS)) == list(range(6))
            await store.close()
            shutil.rmtree(home)


@in_loop
async def test_a_living_process_sees_a_slot_that_was_wiped_under_it(files: Any) -> None:
    """It settles the cell before it appends; with the batch gone too, it writes nothing."""
    cell = Cell(files.path)
    async with files.store() as store:
        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        await journal.append(files.says(0), since=journal.head)
        cell.zero_newer()
        await journal.append(files.says(1), since=journal.head)
        size = files.segments[0].stat().st_size
        await journal.append(files.says(2), since=journal.head)
        cell.zero_newer()
        os.truncate(files.segments[0], size)
        with pytest.raises(Untrusted):
            await journal.append(files.says(3), since=journal.head)
    assert (await verdicts(files.path))[1] is not None


@in_loop
async def test_an_anchor_that_lags_by_several_batches_ends_one_batch_apart(files: Any) -> None:
    """
    After a power cut: once somebody has caught up, wiping the newer half and cutting all but the
    first of those batches is missed.
    """
    await files.create(3)
    cell = Cell(files.path)
    lagging = cell.read()
    async with files.store() as store:
        journal = await store.open(OPS)
        for number in range(3, 7):
            await journal.append(files.says(number), since=journal.head)
    lines = files.segments[0].read_bytes().splitlines(keepends=True)
    cell.write(lagging)
    assert await verdicts(files.path) == ("holds", None)
    cell.zero_newer()
    files.segments[0].write_bytes(b"".join(lines[:-2]))
    assert await verdicts(files.path) == ("cut_short", "cut_short")


@in_loop
async def test_appends_that_were_committed_together_end_one_decision_apart(files: Any) -> None:
    """D4: of a group commit too, no acknowledged append can be cut together with its slot."""
    async with files.store() as store:
        await (await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")).close()
        handles = [await store.open(OPS) for _ in range(6)]
        await asyncio.gather(
            *(
                handle.append(files.says(number), since=handle.head)
                for number, handle in enumerate(handles)
            )
        )
        assert len(await files.numbers(await store.open(OPS))) == 6
    cell = Cell(files.path)
    cell.zero_newer()
    lines = files.segments[0].read_bytes().splitlines(keepends=True)
    files.segments[0].write_bytes(b"".join(lines[:-1]))
    assert await verdicts(files.path) == ("cut_short", "cut_short")


@in_loop
async def test_a_claim_moves_no_slot(files: Any) -> None:
    """A claim without a record has a field of its own, whose wiping undoes nothing."""
    await files.create(2)
    cell = Cell(files.path)
    slots = cell.read()[:CLAIMS]
    async with files.store() as store:
        journal = await store.open(OPS)
        claim = await journal.claim()
        assert claim is not None
        assert claim.epoch == 1
        assert cell.read()[:CLAIMS] == slots
        await claim.release()
        again = await journal.claim()
        assert again is not None
        assert again.epoch == 2
    cell.put(CLAIMS, bytes(64))
    assert await verdicts(files.path) == ("holds", None)
    cell.put(CLAIMS, bytes(128))
    assert await verdicts(files.path) == ("cut_short", "cut_short")


@pytest.mark.parametrize("forget", FORGET)
@in_loop
async def test_the_homes_own_anchor_follows_the_same_rule(files: Any, forget: str) -> None:
    """
    D4: a revoked token or a seal is not undone by wiping half of the home's anchor; a crash in mid
    write of it accuses nobody.
    """
    await files.create(2)
    cell = Cell(files.path, "_home")
    FORGET[forget](cell)
    async with files.store() as store:
        assert (await store.verify_session(OPS)).verdict == "holds"
        journal = await store.open(OPS)
        FORGET[forget](cell)
        await journal.append(
            files.says(2), since=journal.head
        )  # with the session's lock held, the home's is not waited for
        await store.create(SessionId("ops/db"), InstanceId("i2"), [], origin="created", by="tests")
    home = max((files.path / "home").glob("*.jsonl"))
    lines = home.read_bytes().splitlines(keepends=True)
    home.write_bytes(b"".join(lines[:-1]))
    FORGET[forget](cell)
    async with files.store() as store:
        with pytest.raises(
            (Untrusted, Refused)
        ):  # a key that never was: nothing can be verified or written
            await store.seals()


@in_loop
async def test_a_living_process_misses_what_was_cut_from_the_home(files: Any) -> None:
    """
    D4, G3: a process that has not yet read a revocation is not kept from it by cutting it together
    with its slot.
    """
    await files.create(2)
    cell, home = Cell(files.path, "_home"), files.path / "home"
    async with files.store() as here, files.store() as there:
        await here.seals()
        await there.create(SessionId("ops/db"), InstanceId("i2"), [], origin="created", by="tests")
        path = max(home.glob("*.jsonl"))
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
        cell.zero_newer()
        with pytest.raises(Untrusted):
            await here.seals()


@in_loop
async def test_a_slot_that_could_not_be_written_is_in_doubt_and_then_settled(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed anchor write: nothing is acknowledged, and whoever comes next finds the batch."""
    async with files.store() as store:
        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        await journal.append(files.says(0), since=journal.head)

        def half(fd: int, data: bytes, offset: int) -> None:
            os.pwrite(fd, data[: len(data) // 2], offset)
            raise OSError(5, "the disk took half of it")

        with monkeypatch.context() as patched:
            patched.setattr(anchor_tables, "write_all", half)
            with pytest.raises(InDoubt):
                await journal.append(files.says(1), since=journal.head)
        again = await store.open(OPS)
        assert await files.numbers(again) == [0, 1]
        await again.append(files.says(2), since=again.head)
    assert await verdicts(files.path) == ("holds", None)


@in_loop
async def test_a_changed_record_of_the_home_is_not_passed_over_by_a_process_that_runs_on(
    files: Any,
) -> None:
    """D4: it may be the record that takes a right away."""
    await files.create(3)
    async with files.store() as ours, files.store() as theirs:
        assert await ours.sessions() == [OPS]
        await theirs.create(SessionId("ops/new"), InstanceId("i-2"), [], origin="created", by="x")
        (segment,) = (files.path / "home").glob("*.jsonl")
        data = segment.read_bytes()
        segment.write_bytes(data[:-10] + bytes([data[-10] ^ 1]) + data[-9:])
        with pytest.raises(Untrusted):
            await ours.sessions()
        with pytest.raises(Untrusted):  # the home is sealed: it can be read, and takes no write
            await ours.create(SessionId("ops/more"), InstanceId("i-3"), [], origin="x", by="x")


@in_loop
async def test_a_slot_that_is_written_again_is_durable_before_anybody_appends(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    L7: with one slot torn and its new bytes only in a cache, a power cut in the next write of the
    other slot would leave none.
    """
    await files.create(5)
    cell = Cell(files.path)
    cell.zero_newer()
    steps: list[str] = []
    for name in ("fdatasync", "fsync", "pwrite"):
        real = getattr(os, name)

        def step(fd: int, *words: Any, name: str = name, real: Any = real) -> Any:
            where = os.fspath(Path(f"/proc/self/fd/{fd}").readlink())
            if where.endswith((".anchors", ".jsonl")):
                steps.append(f"{name} {where.rpartition('.')[2]}")
            return real(fd, *words)

        monkeypatch.setattr(os, name, step)
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(5), since=journal.head)
    monkeypatch.undo()
    mended = steps.index("pwrite anchors")
    appended = steps.index("pwrite jsonl", mended)
    assert {"fdatasync anchors", "fsync anchors"} & set(steps[mended:appended]), steps
