"""
The stored format, byte by byte: two segments and an anchor's cell under a fixed key, as they are in
`journal_v1.jsonl` and `anchor_v1.hex`.

The files change only with the format, on purpose; then docs/reference/journal-format.md and CHANGELOG.md say
so.
"""

from pathlib import Path

import msgspec

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor import Anchor, encode_claim, encode_created, encode_slot, read_cell
from holdfast.journal.anchor_cases import Slots
from holdfast.journal.chain import Keyring
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft
from holdfast.journal.verify import SegmentBytes, walk

HERE = Path(__file__).parent
OPS, INSTANCE = SessionId("ops/api"), InstanceId("i1")
KEYS = Keyring({1: bytes(range(32)), 2: bytes(range(32, 64))}, OPS, INSTANCE)
TORN = b'{"seq":6,"at":17'


def note(number: int) -> Draft:
    return Draft("note", 1, b'{"n":%d}' % number)


def written() -> tuple[list[bytes], Fence]:
    """
    A new cell, a batch of two, a torn tail that the second segment ignores, a closing record, a
    third segment under the next key.
    """
    fence = Fence(KEYS, OPS, INSTANCE)
    first = [fence.open_segment(generation=1, at=1700000000000, writer="w1", more=False)]
    first += [
        fence.write(note(each), at=1700000000001, epoch=1, writer="w1", more=each == 0)[0]
        for each in range(2)
    ]
    fence.enter_next(ignored=TORN)
    second = [fence.open_segment(generation=1, at=1700000000002, writer="w2")]
    second.append(
        fence.write(
            Draft("tail_repaired", 1, b'{"bytes":16,"quarantine":"q"}'),
            at=1700000000002,
            epoch=1,
            writer="w2",
        )[0]
    )
    second.append(fence.close_segment(at=1700000000003, writer="w2"))
    fence.enter_next()
    assert fence.previous is not None
    fence.previous = msgspec.structs.replace(fence.previous, sha256="ab" * 32)
    third = [fence.open_segment(generation=2, at=1700000000003, writer="w2")]
    third.append(fence.write(note(2), at=1700000000003, epoch=2, writer="w2")[0])
    return [b"".join(each) for each in (first, second, third)], fence


def cell_of(fence: Fence) -> bytes:
    new_cell = encode_created(Anchor(1, 0, 1, 436, 1, 1700000000000, 0, bytes(32)), KEYS)
    slot = encode_slot(
        Anchor(2, 2, fence.number, fence.offset, fence.seq, fence.at, 2, fence.mac), KEYS
    )
    return slot + new_cell[192:448] + encode_claim(1, 2, KEYS)


def test_segments_are_written_byte_for_byte() -> None:
    segments, _ = written()
    assert b"".join(segments) == (HERE / "journal_v1.jsonl").read_bytes()


def test_a_cell_is_written_byte_for_byte() -> None:
    assert cell_of(written()[1]).hex(" ", 32) == (
        HERE / "anchor_v1.hex"
    ).read_text().strip().replace("\n", " ")


def test_the_golden_bytes_hold() -> None:
    """With the torn tail still there, and gone; a `sha256` of another store is accepted."""
    segments, fence = written()
    for tail in (b"", TORN):
        stored = [segments[0] + tail, *segments[1:]]

        def closing(number: int, stored: list[bytes] = stored) -> object:
            header = Fence(KEYS, OPS, INSTANCE, number=number + 1)
            header.feed(stored[number].split(b"\n")[0] + b"\n")
            return header.previous

        found = walk(
            Fence(KEYS, OPS, INSTANCE),
            [
                SegmentBytes(number, str(number), lambda offset, data=data: data[offset:])
                for number, data in enumerate(stored, 1)
            ],
            lambda: read_cell(cell_of(fence), KEYS),
            first_mac=None,
            closing=closing,  # type: ignore[arg-type]
            is_lost=lambda _: False,
        )
        assert (found.verdict, found.at_seq) == ("holds", fence.seq), found
    assert read_cell(cell_of(fence), KEYS).slots is Slots.SETTLED
