"""
`verify` names the first damage, and its place: the word, the last
record that holds, the segment and the byte.
"""

from pathlib import Path
from typing import Any

import pytest

from holdfast.ids import SessionId
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")
SEGMENT_BYTES = 1400


async def lines_of(files: Any) -> list[tuple[Path, int, bytes]]:
    """
    Every line of a session of three segments and two keys: its file, where it starts, and what it
    is.
    """
    await files.create(6, segment_bytes=SEGMENT_BYTES)
    async with files.store(segment_bytes=SEGMENT_BYTES) as store:
        await store.rotate_keys(by="tests")
        journal = await store.open(OPS)
        for number in range(6, 16):
            await journal.append(files.says(number), since=journal.head)
    assert len(files.segments) == 3
    found: list[tuple[Path, int, bytes]] = []
    for path in files.segments:
        start = 0
        for line in path.read_bytes().splitlines(keepends=True):
            found.append((path, start, line))
            start += len(line)
    return found


@in_loop
async def test_a_changed_byte_is_broken_where_it_is(files: Any) -> None:
    """
    Above all in a header, which says where the segment before it ends: that one is not blamed for
    what another says of it.
    """
    lines = await lines_of(files)
    async with files.store(segment_bytes=SEGMENT_BYTES) as store:
        for seq, (path, start, line) in enumerate(lines):
            whole = path.read_bytes()
            named = (
                range(line.index(b'"key"'), line.index(b'"mac"'))
                if b"segment_opened" in line
                else ()
            )  # key, number and length of the one before
            for place in sorted({*range(0, len(line), 97), *named}):
                changed = bytearray(whole)
                changed[start + place] ^= 1 << (place % 8)
                path.write_bytes(changed)
                found = await store.verify_session(OPS)
                assert (found.verdict, found.at_seq, found.segment, found.byte, found.records) == (
                    "broken",
                    seq or None,
                    path.name,
                    start,
                    seq,
                ), place
            path.write_bytes(whole)
        assert (await store.verify_session(OPS)).verdict == "holds"


@pytest.mark.parametrize(
    "hostile",
    [b"\xb9" * 40, b"[" * 3000, b'"', b"9" * 400],
    ids=["no UTF-8", "nested without end", "half a text", "a number without end"],
)
@pytest.mark.parametrize("number", [0, 1, 2])
@in_loop
async def test_a_header_that_can_not_be_read_is_broken_and_not_our_end(
    files: Any, number: int, hostile: bytes
) -> None:
    lines = [each for each in await lines_of(files) if b"segment_opened" in each[2]]
    path, _, header = lines[number]
    whole = path.read_bytes()
    forged = header.replace(b'"format":1', b'"x":' + hostile + b',"format":1').replace(
        b'"session":"ops/api"', b'"session":"' + hostile + b'"'
    )
    path.write_bytes(forged + whole[len(header) :])
    async with files.store(segment_bytes=SEGMENT_BYTES) as store:
        found = await store.verify_session(OPS)
        assert (found.verdict, found.segment, found.byte) == ("broken", path.name, 0)
        journal = await store.open(OPS)
        assert journal.sealed is not None
        assert (journal.sealed.code, journal.sealed.at_seq) == ("broken", found.at_seq or 0)


@in_loop
async def test_a_seal_names_the_same_place_as_verify(files: Any) -> None:
    """
    An opening checks a closed segment by one digest; what it tells people is the record that is
    wrong all the same.
    """
    lines = await lines_of(files)
    path, start, line = lines[4]
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + line.replace(b'{"n":', b'{"m":') + whole[start + len(line) :])
    async with files.store(segment_bytes=SEGMENT_BYTES) as store:
        journal = await store.open(OPS)
        assert journal.sealed is not None
        assert (journal.sealed.code, journal.sealed.at_seq) == ("broken", 4)
        assert f"({path.name}, byte {start})" in journal.sealed.detail


@in_loop
async def test_bytes_behind_a_closed_segment_are_broken_there(files: Any) -> None:
    """With or without a newline: they do not count as missing history of the next segment."""
    await lines_of(files)
    first = files.segments[0]
    whole = first.read_bytes()
    async with files.store(segment_bytes=SEGMENT_BYTES) as store:
        for more in (b"x", b"x\n", bytes(20), bytes(20) + b"\n"):
            first.write_bytes(whole + more)
            found = await store.verify_session(OPS)
            assert (found.verdict, found.segment, found.byte) == ("broken", first.name, len(whole))
