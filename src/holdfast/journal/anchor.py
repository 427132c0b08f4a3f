"""
The anchor: a journal's head, kept elsewhere, so that a journal that was cut short is noticed.

Two slots of 256 bytes, written in turn: a torn write costs the newer one at most. The anchor may lag behind the journal after a
power cut, it never leads. All numbers are big endian:

    0 "HFA1"   4 generation u32   8 counter u64   16 segment u64   24 length u64   32 seq u64   40 at u64   48 epoch u64
    56 head's mac (32)   88 zeros   224 keyed BLAKE3 of bytes 0-223 (32)
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from blake3 import blake3

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import KeyMissing, Keyring, subkey

SLOT_BYTES = 256
ANCHOR_BYTES = 2 * SLOT_BYTES
MAGIC = b"HFA1"

_FIELDS = struct.Struct(">4sIQQQQQQ32s136x")
_MACED = _FIELDS.size


class Anchor(NamedTuple):
    generation: int
    counter: int  # grows with every write of the anchor; its parity is the slot
    segment: int
    length: int  # durable bytes of that segment
    seq: int
    at: int
    epoch: int  # the newest driver's, even before it has written anything
    mac: bytes


def encode_slot(anchor: Anchor, keys: Keyring) -> bytes:
    fields = _FIELDS.pack(MAGIC, *anchor)
    return fields + blake3(fields, key=keys.get(anchor.generation).anchor).digest()


def slot_offset(counter: int) -> int:
    return SLOT_BYTES * (counter % 2)


def decode_anchor(data: bytes, keys: Keyring) -> Anchor | None:
    """The newer of the slots that verify; None when neither does."""
    found = [slot for slot in (_decode_slot(data[:SLOT_BYTES], keys), _decode_slot(data[SLOT_BYTES:], keys)) if slot]
    return max(found, key=lambda slot: slot.counter, default=None)


def acknowledged_seq(data: bytes, keys: Mapping[int, bytes], session: SessionId, instance: InstanceId) -> int | None:
    """
    The seq of what `decode_anchor` would find, for whoever looks at thousands: one subkey is derived, and one slot checked if that one verifies.
    """
    if len(data) != ANCHOR_BYTES:
        return None
    slots = [(data[at : at + SLOT_BYTES], _FIELDS.unpack_from(data, at)) for at in (0, SLOT_BYTES)]
    for slot, (magic, generation, *fields) in sorted(slots, key=lambda each: each[1][2], reverse=True):
        key = keys.get(generation) if magic == MAGIC else None
        if key is not None and blake3(slot[:_MACED], key=subkey(key, "anchor", session, instance)).digest() == slot[_MACED:]:
            return int(fields[3])
    return None


def _decode_slot(data: bytes, keys: Keyring) -> Anchor | None:
    if len(data) != SLOT_BYTES:
        return None
    magic, *fields = _FIELDS.unpack_from(data)
    if magic != MAGIC:
        return None
    try:
        key = keys.get(fields[0]).anchor
    except KeyMissing:
        return None
    if blake3(data[:_MACED], key=key).digest() != data[_MACED:]:
        return None
    return Anchor(*fields)
