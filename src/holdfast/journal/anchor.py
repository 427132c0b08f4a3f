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
_GENERATION, _COUNTER, _SEQ = slice(4, 8), slice(8, 16), slice(32, 40)  # where a list of many looks, without taking the rest apart


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
    """The newer of the slots that verify; None when neither does. `KeyMissing` when that is for want of a key."""
    found: list[Anchor] = []
    missing: KeyMissing | None = None
    for slot in (data[:SLOT_BYTES], data[SLOT_BYTES:]):
        try:
            anchor = _decode_slot(slot, keys)
        except KeyMissing as exc:
            missing = exc
        else:
            found += [anchor] if anchor else []
    if missing is not None and not found:
        raise missing
    return max(found, key=lambda slot: slot.counter, default=None)


def acknowledged_seq(data: bytes, keys: Mapping[int, bytes], session: SessionId, instance: InstanceId) -> int | None:
    """
    The number of the last acknowledged record, and nothing else: for lists of many sessions. None when no slot verifies.

    The slot that claims to be newer is looked at first, and only its key is derived; the other only if that one does not verify.
    """
    newer, older = data[:SLOT_BYTES], data[SLOT_BYTES:]
    if older[_COUNTER] > newer[_COUNTER] and older.startswith(MAGIC):
        newer, older = older, newer
    for slot in (newer, older):
        if len(slot) == SLOT_BYTES and slot.startswith(MAGIC):
            key = keys.get(int.from_bytes(slot[_GENERATION], "big"))
            if key is not None and blake3(slot[:_MACED], key=subkey(key, "anchor", session, instance)).digest() == slot[_MACED:]:
                return int.from_bytes(slot[_SEQ], "big")
    return None


def _decode_slot(data: bytes, keys: Keyring) -> Anchor | None:
    if len(data) != SLOT_BYTES:
        return None
    magic, *fields = _FIELDS.unpack_from(data)
    if magic != MAGIC:
        return None
    key = keys.get(fields[0]).anchor
    if blake3(data[:_MACED], key=key).digest() != data[_MACED:]:
        return None
    return Anchor(*fields)
