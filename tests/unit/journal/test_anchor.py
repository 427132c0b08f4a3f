"""
The anchor: two slots that count only together, each in its own place, and a claim beside them.
"""

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor import (
    ANCHOR_BYTES,
    CLAIM_BYTES,
    CLAIMS_OFFSET,
    SLOT_BYTES,
    Anchor,
    CellReading,
    acknowledged_seq,
    claim_offset,
    encode_claim,
    encode_created,
    encode_slot,
    read_cell,
    slot_offset,
)
from holdfast.journal.anchor_cases import Slots
from holdfast.journal.chain import Keyring

KEYS = Keyring({1: bytes(range(32))}, SessionId("ops/api"), InstanceId("i1"))
OTHERS = Keyring({1: bytes(range(32))}, SessionId("ops/db"), InstanceId("i1"))


def anchor(counter: int) -> Anchor:
    return Anchor(
        generation=1,
        counter=counter,
        segment=3,
        length=4096,
        seq=counter * 2,
        at=1,
        epoch=5,
        mac=b"\7" * 32,
    )


def cell(*anchors: Anchor, epochs: tuple[int, ...] = (4, 5)) -> bytes:
    data = bytearray(ANCHOR_BYTES)
    for each in anchors:
        start = slot_offset(each.counter)
        data[start : start + SLOT_BYTES] = encode_slot(each, KEYS)
    for epoch in epochs:
        start = claim_offset(epoch)
        data[start : start + CLAIM_BYTES] = encode_claim(epoch, 1, KEYS)
    return bytes(data)


def test_the_newer_of_two_slots_that_are_one_apart_counts() -> None:
    assert read_cell(cell(anchor(8), anchor(9)), KEYS) == CellReading(Slots.SETTLED, anchor(9))
    assert read_cell(cell(anchor(9), anchor(10)), KEYS) == CellReading(Slots.SETTLED, anchor(10))
    assert read_cell(cell(anchor(8), anchor(11)), KEYS) == CellReading(Slots.APART, anchor(11))
    assert read_cell(cell(anchor(8)), KEYS) == CellReading(Slots.ONE, anchor(8))


def test_a_cell_is_one_sector() -> None:
    assert ANCHOR_BYTES == 512
    assert [slot_offset(counter) for counter in range(4)] == [0, SLOT_BYTES, 0, SLOT_BYTES]
    assert [claim_offset(epoch) for epoch in range(3)] == [
        CLAIMS_OFFSET,
        CLAIMS_OFFSET + CLAIM_BYTES,
        CLAIMS_OFFSET,
    ]


def test_a_slot_counts_only_in_its_own_place() -> None:
    """A slot that was copied over its neighbour says nothing, the older as little as the newer."""
    even, odd = encode_slot(anchor(8), KEYS), encode_slot(anchor(9), KEYS)
    claims = cell()[CLAIMS_OFFSET:]
    assert read_cell(even + even + claims, KEYS) == CellReading(Slots.ONE, anchor(8))
    assert read_cell(odd + odd + claims, KEYS) == CellReading(Slots.ONE, anchor(9))
    assert read_cell(odd + even + claims, KEYS) == CellReading(Slots.NONE, None)


def test_a_new_cell_is_settled_and_nobody_has_driven_it() -> None:
    assert read_cell(encode_created(anchor(0), KEYS), KEYS) == CellReading(
        Slots.SETTLED, anchor(1)._replace(seq=0, epoch=0)
    )


def test_a_torn_slot_leaves_the_other_readable() -> None:
    """Every way to cut the write of the newer slot leaves the older one, or both."""
    before, after = cell(anchor(8), anchor(9)), cell(anchor(10), anchor(9))
    for cut in range(SLOT_BYTES + 1):
        reading = read_cell(after[:cut] + before[cut:], KEYS)
        assert reading in {
            CellReading(Slots.SETTLED, anchor(9)),
            CellReading(Slots.ONE, anchor(9)),
            CellReading(Slots.SETTLED, anchor(10)),
        }


def test_a_torn_claim_leaves_the_one_before() -> None:
    before, after = cell(anchor(8), anchor(9)), cell(anchor(8), anchor(9), epochs=(5, 6))
    for cut in range(CLAIMS_OFFSET, ANCHOR_BYTES + 1):
        reading = read_cell(after[:cut] + before[cut:], KEYS)
        assert reading.slots is Slots.SETTLED
        assert reading.anchor is not None
        assert reading.anchor.epoch in {5, 6}
    assert read_cell(cell(anchor(8), anchor(9), epochs=()), KEYS).slots is Slots.NONE


def test_every_flipped_byte_is_seen() -> None:
    whole = cell(anchor(8), anchor(9))
    for at in range(CLAIMS_OFFSET):
        changed = bytearray(whole)
        changed[at] ^= 1
        reading = read_cell(bytes(changed), KEYS)
        assert reading.slots is Slots.ONE
        assert reading.anchor == (anchor(9) if at < SLOT_BYTES else anchor(8))
        assert (reading.missing is not None) == (4 <= at % SLOT_BYTES < 8), (
            "only a changed generation asks for another key"
        )


def test_an_empty_cell_and_a_foreign_cell_hold_no_anchor() -> None:
    for data, keys in (
        (b"", KEYS),
        (bytes(ANCHOR_BYTES), KEYS),
        (cell(anchor(8), anchor(9)), OTHERS),
    ):
        assert read_cell(data, keys) == CellReading(Slots.NONE, None)


def test_the_quick_look_believes_what_the_whole_one_calls_settled() -> None:
    """
    Whole, one slot only, torn anywhere, flipped anywhere, copied, exchanged, another session's,
    under a key that we lack, none.
    """
    before, after = cell(anchor(8), anchor(9)), cell(anchor(10), anchor(9))
    cells = [
        before,
        after,
        cell(anchor(9)),
        cell(anchor(8)),
        cell(anchor(8), anchor(11)),
        bytes(ANCHOR_BYTES),
        b"",
        after[:300],
    ]
    cells += [after[:cut] + before[cut:] for cut in range(SLOT_BYTES + 1)]
    cells += [after[:at] + bytes([after[at] ^ 1]) + after[at + 1 :] for at in range(CLAIMS_OFFSET)]
    cells += [
        after[:SLOT_BYTES] * 2 + after[CLAIMS_OFFSET:],
        after[SLOT_BYTES:CLAIMS_OFFSET] * 2 + after[CLAIMS_OFFSET:],
        after[SLOT_BYTES:CLAIMS_OFFSET] + after[:SLOT_BYTES] + after[CLAIMS_OFFSET:],
    ]
    for data in cells:
        for keys, session in ((KEYS, SessionId("ops/api")), (OTHERS, SessionId("ops/db"))):
            whole = read_cell(data, keys).settled
            assert acknowledged_seq(data, {1: bytes(range(32))}, session, InstanceId("i1")) == (
                None if whole is None else whole.seq
            )


def test_a_slot_under_a_missing_key_is_distinguished_from_damage() -> None:
    """5.2: a lost key makes a session read-only; it is not called cut short for it."""
    both = Keyring(
        {1: bytes(range(32)), 2: bytes(range(1, 33))}, SessionId("ops/api"), InstanceId("i1")
    )
    older, newer = (
        encode_slot(each, both) for each in (anchor(8), anchor(9)._replace(generation=2))
    )
    claims = cell()[CLAIMS_OFFSET:]
    assert read_cell(older + newer + claims, both) == CellReading(
        Slots.SETTLED, anchor(9)._replace(generation=2)
    )
    for data, slots in (
        (older + newer + claims, Slots.ONE),
        (bytes(SLOT_BYTES) + newer + claims, Slots.NONE),
    ):
        reading = read_cell(data, KEYS)
        assert reading.slots is slots
        assert reading.missing is not None
        assert reading.missing.generation == 2


def test_the_quick_look_takes_whole_numbers() -> None:
    """
    Every byte of a generation, a counter and a number counts, though most of them are zero for
    years.
    """
    far = {2**24 + 1: bytes(range(32)), 1: bytes(range(1, 33))}
    ring = Keyring(far, SessionId("ops/api"), InstanceId("i1"))
    older, newer = (
        anchor(0)._replace(generation=2**24 + 1, counter=2**56 - each, seq=2**56 + each)
        for each in (1, 0)
    )
    data = (
        encode_slot(newer, ring)
        + encode_slot(older, ring)
        + encode_claim(4, 1, ring)
        + encode_claim(5, 1, ring)
    )
    assert read_cell(data, ring) == CellReading(Slots.SETTLED, newer)
    assert acknowledged_seq(data, far, SessionId("ops/api"), InstanceId("i1")) == newer.seq
