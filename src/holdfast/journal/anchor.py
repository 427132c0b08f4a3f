"""
The anchor: a copy of a journal's head, kept elsewhere. It reveals a journal that was cut short.

An anchor is a cell of 512 bytes, which is one sector of a disk. It holds two slots of 192 bytes,
then two claims of 64 bytes. A slot moves only with records. Each batch writes one slot, in turn, so
the newer slot is exactly one batch ahead of the other. A slot counts only in its own place (counter
mod 2). A claim holds the newest driver's epoch; the two claims alternate by epoch. All numbers are
big endian:

    slot   0 "HFA1"   4 generation u32   8 counter u64   16 segment u64   24 length u64
           32 seq u64   40 at u64   48 head's mac (32)   80 zeros
           160 keyed BLAKE3 of bytes 0-159 (32)
    claim  0 "HFE1"   4 generation u32   8 epoch u64   16 zeros   32 keyed BLAKE3 of bytes 0-31 (32)

anchor_cases.py judges the slots together with the journal's end.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from blake3 import blake3

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor_cases import Slots
from holdfast.journal.chain import KeyMissing, Keyring, subkey

SLOT_BYTES = 192
CLAIM_BYTES = 64
CLAIMS_OFFSET = 2 * SLOT_BYTES
ANCHOR_BYTES = 2 * SLOT_BYTES + 2 * CLAIM_BYTES
MAGIC = b"HFA1"
CLAIM_MAGIC = b"HFE1"

_SLOT = struct.Struct(">4sIQQQQQ32s80x")
_CLAIM = struct.Struct(">4sIQ16x")
_GENERATION, _COUNTER, _SEQ = (
    slice(4, 8),
    slice(8, 16),
    slice(32, 40),
)  # fields that a list of many sessions reads without unpacking the rest


class Anchor(NamedTuple):
    generation: int
    counter: int  # grows by one with every batch; its parity is the slot's place
    segment: int
    length: int  # durable bytes of that segment
    seq: int
    at: int
    # The newest driver's epoch, even before it has written a record. A claim holds it, not a slot.
    epoch: int
    mac: bytes


class CellReading(NamedTuple):
    """The result of reading a cell's bytes."""

    slots: Slots
    anchor: Anchor | None  # the newest slot that verifies in its own place
    missing: KeyMissing | None = None  # a slot names a key that this home does not have

    @property
    def settled(self) -> Anchor | None:
        """
        The head if both slots agree, else None: the caller must read again under the write lock.
        """
        return self.anchor if self.slots is Slots.SETTLED else None


NOTHING_SEEN = CellReading(Slots.NONE, None)


def encode_slot(anchor: Anchor, keys: Keyring) -> bytes:
    generation, counter, segment, length, seq, at, _, mac = anchor
    fields = _SLOT.pack(MAGIC, generation, counter, segment, length, seq, at, mac)
    return fields + blake3(fields, key=keys.get(generation).anchor).digest()


def encode_claim(epoch: int, generation: int, keys: Keyring) -> bytes:
    fields = _CLAIM.pack(CLAIM_MAGIC, generation, epoch)
    return fields + blake3(fields, key=keys.get(generation).anchor).digest()


def encode_created(anchor: Anchor, keys: Keyring) -> bytes:
    """
    Encode a whole cell, as creation writes it: both slots name the same head, and the claim says
    that no driver has claimed the session yet.
    """
    slots = [encode_slot(anchor._replace(counter=counter), keys) for counter in (0, 1)]
    return b"".join((*slots, encode_claim(0, anchor.generation, keys), bytes(CLAIM_BYTES)))


def slot_offset(counter: int) -> int:
    return SLOT_BYTES * (counter % 2)


def claim_offset(epoch: int) -> int:
    return CLAIMS_OFFSET + CLAIM_BYTES * (epoch % 2)


def read_cell(data: bytes, keys: Keyring) -> CellReading:
    """
    Read both slots and both claims. A mismatch is not reported as damage here: a reader without the
    lock may have met a writer in mid write.
    """
    missing: KeyMissing | None = None
    found: list[Anchor] = []
    epochs = [epoch for place in (0, 1) if (epoch := _epoch(data, place, keys)) is not None]
    for place in (0, 1):
        try:
            slot = _slot(data, place, keys)
        except KeyMissing as exc:
            missing = exc
        else:
            found += [slot] if slot else []
    if not found or not epochs:
        return CellReading(Slots.NONE, None, missing)
    newest = max(found, key=lambda slot: slot.counter)._replace(epoch=max(epochs))
    if len(found) == 1:
        return CellReading(Slots.ONE, newest, missing)
    is_pair = abs(found[0].counter - found[1].counter) == 1
    return CellReading(Slots.SETTLED if is_pair else Slots.APART, newest)


def acknowledged_seq(
    data: bytes, keys: Mapping[int, bytes], session: SessionId, instance: InstanceId
) -> int | None:
    """
    Return the number of the last acknowledged record, for lists of many sessions. Return None
    unless both slots verify and their counters are one apart.

    Each key is derived once, because the two slots of a cell nearly always name the same key.
    """
    counters: list[int] = []
    derived: dict[bytes, bytes] = {}
    for place in (0, 1):
        slot = data[place * SLOT_BYTES : (place + 1) * SLOT_BYTES]
        counter = int.from_bytes(slot[_COUNTER], "big")
        if len(slot) != SLOT_BYTES or not slot.startswith(MAGIC) or counter % 2 != place:
            return None
        named = slot[_GENERATION]
        if named not in derived:
            key = keys.get(int.from_bytes(named, "big"))
            if key is None:
                return None
            derived[named] = subkey(key, "anchor", session, instance)
        if blake3(slot[: _SLOT.size], key=derived[named]).digest() != slot[_SLOT.size :]:
            return None
        counters.append(counter)
    if abs(counters[0] - counters[1]) != 1:
        return None
    newest = SLOT_BYTES * (counters[1] > counters[0])
    return int.from_bytes(data[newest : newest + SLOT_BYTES][_SEQ], "big")


def _slot(data: bytes, place: int, keys: Keyring) -> Anchor | None:
    """
    Read one slot. Return None unless it verifies in its own place: a slot that was copied over its
    neighbour has the wrong parity.
    """
    slot = data[place * SLOT_BYTES : (place + 1) * SLOT_BYTES]
    if len(slot) != SLOT_BYTES:
        return None
    magic, generation, counter, segment, length, seq, at, mac = _SLOT.unpack_from(slot)
    if magic != MAGIC or counter % 2 != place:
        return None
    if blake3(slot[: _SLOT.size], key=keys.get(generation).anchor).digest() != slot[_SLOT.size :]:
        return None
    return Anchor(generation, counter, segment, length, seq, at, 0, mac)


def _epoch(data: bytes, place: int, keys: Keyring) -> int | None:
    start = CLAIMS_OFFSET + place * CLAIM_BYTES
    claim = data[start : start + CLAIM_BYTES]
    if len(claim) != CLAIM_BYTES:
        return None
    magic, generation, epoch = _CLAIM.unpack_from(claim)
    if magic != CLAIM_MAGIC or epoch % 2 != place:
        return None
    try:
        key = keys.get(generation).anchor
    except KeyMissing:
        return None
    return (
        int(epoch)
        if blake3(claim[: _CLAIM.size], key=key).digest() == claim[_CLAIM.size :]
        else None
    )
