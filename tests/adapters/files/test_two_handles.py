"""
Two handles of one process on one session: the one that is behind goes on from the position of the
other, and believes nothing that it would not have believed by reading.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.files.session import catch_up
from holdfast.adapters.recent_records import RecentRecords
from holdfast.errors import Takeover
from holdfast.ids import SessionId
from holdfast.journal.record import Record
from holdfast.ports.journal_store import Check
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


def recent(records: list[Record]) -> RecentRecords:
    found = RecentRecords(records_max=64, bytes_max=1 << 20)
    found.add(records)
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions after which a handle read the journal."""
    found: list[int] = []
    read_on = catch_up.read_on

    def counted(files: Any, folder: int, fence: Any, *others: Any) -> Any:
        found.append(fence.seq)
        return read_on(files, folder, fence, *others)

    monkeypatch.setattr(catch_up, "read_on", counted)
    return found


@in_loop
async def test_a_handle_goes_on_from_another_of_this_process_without_reading(
    files: Any, reads: list[int]
) -> None:
    await files.create(3)
    async with files.store() as store:
        first, second = await store.open(OPS), await store.open(OPS)
        await first.append(files.says(3), since=first.head)
        reads.clear()
        behind = second.head
        await first.append(files.says(4), since=first.head)
        done = await second.append(files.says(5), since=behind)
        assert files.of(done.suffix) == [3, 4, 5]
        done = await first.append(files.says(6), since=first.head)
        assert files.of(done.suffix) == [5, 6]
        assert len(reads) == 1, "only the first time, when the other had not written its own head"
        assert await files.numbers(await store.open(OPS)) == list(range(7))


@pytest.mark.parametrize("changed", [b'{"n":1}', b'{"n":4}'])
@in_loop
async def test_a_change_before_the_position_of_the_other_is_a_takeover(
    files: Any, changed: bytes
) -> None:
    """L4: also in a record that only the other handle has seen."""
    await files.create(3)
    async with files.store() as store:
        first, second = await store.open(OPS), await store.open(OPS)
        for number in (3, 4):
            await first.append(files.says(number), since=first.head)
        (segment,) = files.segments
        data = segment.read_bytes()
        with segment.open("r+b") as file:
            file.write(data.replace(changed, b'{"n":8}'))
        with pytest.raises(Takeover):
            await second.append(files.says(5), since=second.head, check=Check.FENCE)


@in_loop
async def test_a_handle_whose_head_the_other_does_not_have_reads(
    files: Any, reads: list[int]
) -> None:
    """A head of another history: what follows the other's may not follow ours."""
    await files.create(3)
    async with files.store() as store:
        first, second = await store.open(OPS), await store.open(OPS)
        for number in (3, 4):
            await first.append(files.says(number), since=first.head)
        await second.append(files.says(5), since=second.head)
        await first.append(files.says(6), since=first.head)
        reads.clear()
        behind = second.head
        first.recent = recent(
            [
                replace(record, mac=bytes(32)) if record.seq == behind.seq else record
                for record in first.recent.since(0)
            ]
        )
        done = await second.append(files.says(7), since=behind)
        assert (files.of(done.suffix), reads) == ([6, 7], [behind.seq])


@in_loop
async def test_a_handle_does_not_pass_over_a_record_that_the_other_has_not_remembered_yet(
    files: Any,
) -> None:
    """A reader moves the other one on at that moment, in another thread."""
    await files.create(3)
    async with files.store() as store:
        first, second = await store.open(OPS), await store.open(OPS)
        for number in (3, 4):
            await first.append(files.says(number), since=first.head)
        await second.append(files.says(5), since=second.head)
        for number in (6, 7):
            await first.append(files.says(number), since=first.head)
        first.recent = recent(first.recent.since(0)[:-1])
        done = await second.append(files.says(8), since=second.head)
        assert files.of(done.suffix) == [6, 7, 8]
