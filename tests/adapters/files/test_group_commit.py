"""Appends that are committed together: each hears of its own records, however the commit ends."""

import errno
from typing import Any

import pytest
from tests.adapters.files.conftest import OPS

from holdfast.adapters.files.commit import segment_writer
from holdfast.adapters.files.commit.queued_append import QueuedAppend
from holdfast.errors import NotSaved
from holdfast.ports.journal_store import Check
from holdfast.testing.loop import in_loop

SMALL = 4096  # bytes of a segment: one append fills it


@in_loop
async def test_a_later_failure_of_a_commit_does_not_unsay_what_is_durable(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    D5: the first append fills its segment, and the new one for the second append can't be created.
    """

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    await files.create(1, segment_bytes=SMALL)
    async with files.store(segment_bytes=SMALL) as store:
        journal = await store.open(OPS)
        first, second = (
            QueuedAppend(
                journal,
                files.says(*numbers),
                since=journal.head,
                epoch=None,
                check=Check.SHORT,
            )
            for numbers in (range(100, 140), [200])
        )
        with monkeypatch.context() as patched:
            patched.setattr(segment_writer, "create_whole", refused)
            journal.queue._commit([first, second], None)
        assert files.of(first.outcome().suffix) == list(range(100, 140))
        with pytest.raises(NotSaved):
            second.outcome()
        await journal.append(files.says(300), since=journal.head)
        assert await files.numbers(journal) == [0, *range(100, 140), 300]
    async with files.store(segment_bytes=SMALL) as store:
        assert await files.numbers(await store.open(OPS)) == [0, *range(100, 140), 300]


@in_loop
async def test_appends_of_one_commit_see_each_other_and_their_own_head(files: Any) -> None:
    await files.create(1)
    async with files.store() as store:
        journals = [await store.open(OPS) for _ in range(3)]
        seen: list[list[int]] = []

        def says(number: int) -> Any:
            def decide(section: Any) -> Any:
                seen.append(files.of(section.suffix))
                return files.says(number)(section)

            return decide

        requests = [
            QueuedAppend(each, says(number), since=each.head, epoch=None, check=Check.SHORT)
            for number, each in enumerate(journals, start=1)
        ]
        journals[0].queue._commit(requests, None)
        assert seen == [[], [1], [1, 2]]
        assert [files.of(each.outcome().suffix) for each in requests] == [[1], [1, 2], [1, 2, 3]]
        heads = [each.outcome().head.seq for each in requests]
        assert heads == [heads[0], heads[0] + 1, heads[0] + 2]
        assert {each.head for each in journals} == {requests[-1].outcome().head}


@in_loop
async def test_an_append_after_a_full_segment_sees_each_record_of_its_commit_once(
    files: Any,
) -> None:
    """The first append fills its segment, so the second one makes it durable before its own."""
    await files.create(1, segment_bytes=SMALL)
    async with files.store(segment_bytes=SMALL) as store:
        journals = [await store.open(OPS) for _ in range(3)]
        seen: list[list[int]] = []

        def says(*numbers: int) -> Any:
            def decide(section: Any) -> Any:
                seen.append(files.of(section.suffix))
                return files.says(*numbers)(section)

            return decide

        filling = list(range(100, 140))
        requests = [
            QueuedAppend(each, says(*numbers), since=each.head, epoch=None, check=Check.SHORT)
            for each, numbers in zip(journals, (filling, [200], [201]), strict=True)
        ]
        journals[0].queue._commit(requests, None)
        assert seen == [[], filling, [*filling, 200]]
        assert files.of(requests[2].outcome().suffix) == [*filling, 200, 201]
        assert await files.numbers(journals[0]) == [0, *filling, 200, 201]
