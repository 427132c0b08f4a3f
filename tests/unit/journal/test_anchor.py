"""The anchor: two slots, the newer that verifies counts, and nothing else does."""

import pytest

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor import ANCHOR_BYTES, SLOT_BYTES, Anchor, acknowledged_seq, decode_anchor, encode_slot, slot_offset
from holdfast.journal.chain import KeyMissing, Keyring

KEYS = Keyring({1: bytes(range(32))}, SessionId("ops/api"), InstanceId("i1"))
OTHERS = Keyring({1: bytes(range(32))}, SessionId("ops/db"), InstanceId("i1"))


def anchor(counter: int) -> Anchor:
    return Anchor(generation=1, counter=counter, segment=3, length=4096, seq=counter * 2, at=1, epoch=5, mac=b"\7" * 32)


def cell(*anchors: Anchor) -> bytes:
    data = bytearray(ANCHOR_BYTES)
    for each in anchors:
        start = slot_offset(each.counter)
        data[start : start + SLOT_BYTES] = encode_slot(each, KEYS)
    return bytes(data)


def test_the_newer_slot_counts() -> None:
    assert decode_anchor(cell(anchor(8), anchor(9)), KEYS) == anchor(9)
    assert decode_anchor(cell(anchor(9), anchor(10)), KEYS) == anchor(10)


def test_a_torn_slot_costs_one_step() -> None:
    """Every way to cut the write of the newer slot leaves one that verifies: the newer or the older."""
    before, after = cell(anchor(8), anchor(9)), cell(anchor(10), anchor(9))
    for cut in range(SLOT_BYTES + 1):
        torn = after[:cut] + before[cut:]
        assert decode_anchor(torn, KEYS) in {anchor(8), anchor(9), anchor(10)}


def test_every_flipped_byte_is_seen() -> None:
    whole = cell(anchor(9))
    start = slot_offset(9)
    for at in range(start, start + SLOT_BYTES):
        changed = bytearray(whole)
        changed[at] ^= 1
        try:
            assert decode_anchor(bytes(changed), KEYS) is None
        except KeyMissing:
            assert 4 <= at - start < 8, "only a changed generation asks for another key"


def test_nothing_and_another_sessions_are_no_anchor() -> None:
    assert decode_anchor(b"", KEYS) is None
    assert decode_anchor(bytes(ANCHOR_BYTES), KEYS) is None
    assert decode_anchor(cell(anchor(9)), OTHERS) is None


def test_the_quick_look_finds_what_the_whole_one_finds() -> None:
    """Whole, one slot only, torn anywhere, flipped anywhere, another session's, under a key that we lack, none."""
    before, after = cell(anchor(8), anchor(9)), cell(anchor(10), anchor(9))
    cells = [before, after, cell(anchor(9)), cell(anchor(8)), bytes(ANCHOR_BYTES), b"", after[:300]]
    cells += [after[:cut] + before[cut:] for cut in range(SLOT_BYTES + 1)]
    cells += [after[:at] + bytes([after[at] ^ 1]) + after[at + 1 :] for at in range(ANCHOR_BYTES)]
    for data in cells:
        for keys, session in ((KEYS, SessionId("ops/api")), (OTHERS, SessionId("ops/db"))):
            try:
                whole = decode_anchor(data, keys)
            except KeyMissing:
                whole = None
            assert acknowledged_seq(data, {1: bytes(range(32))}, session, InstanceId("i1")) == (None if whole is None else whole.seq)


def test_a_slot_under_a_key_that_we_lack_is_told_apart_from_damage_unless_the_other_verifies() -> None:
    """5.2: a lost key makes a session read-only; it is not called cut short for it."""
    both = Keyring({1: bytes(range(32)), 2: bytes(range(1, 33))}, SessionId("ops/api"), InstanceId("i1"))
    older, newer = (encode_slot(each, both) for each in (anchor(8), anchor(9)._replace(generation=2)))
    assert decode_anchor(older + newer, both) == anchor(9)._replace(generation=2)
    assert decode_anchor(older + newer, KEYS) == anchor(8)
    assert decode_anchor(newer + older, KEYS) == anchor(8)
    for lost in (newer + newer, newer + bytes(SLOT_BYTES), bytes(SLOT_BYTES) + newer):
        with pytest.raises(KeyMissing) as caught:
            decode_anchor(lost, KEYS)
        assert caught.value.generation == 2


def test_slots_are_written_in_turn() -> None:
    assert [slot_offset(counter) for counter in range(4)] == [0, SLOT_BYTES, 0, SLOT_BYTES]
    assert len(encode_slot(anchor(1), KEYS)) == SLOT_BYTES


def test_the_quick_look_takes_whole_numbers() -> None:
    """Every byte of a generation, a counter and a number counts, though most of them are zero for years."""
    far = {2**24 + 1: bytes(range(32)), 1: bytes(range(1, 33))}
    ring = Keyring(far, SessionId("ops/api"), InstanceId("i1"))
    older, newer = (anchor(0)._replace(generation=2**24 + 1, counter=2**56 - each, seq=2**56 + each) for each in (1, 0))
    data = encode_slot(newer, ring) + encode_slot(older, ring)
    assert decode_anchor(data, ring) == newer
    assert acknowledged_seq(data, far, SessionId("ops/api"), InstanceId("i1")) == newer.seq
