"""
Anchor states after a crash and after an attack. A crash at any byte of our writes is never reported
as tampering. An attacker without a key never hides an acknowledged record.

The journal is one segment of a few batches in memory. The pure functions of `verify` judge it.
"""

from functools import cache
from typing import NamedTuple

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor import (
    ANCHOR_BYTES,
    SLOT_BYTES,
    Anchor,
    encode_created,
    encode_slot,
    read_cell,
    slot_offset,
)
from holdfast.journal.chain import Keyring
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft
from holdfast.journal.verify import SegmentBytes, Walked, walk

_SESSION, _INSTANCE = SessionId("ops/api"), InstanceId("i1")
_KEYS = Keyring({1: bytes(range(32))}, _SESSION, _INSTANCE)
_RECORDS = (1, 3, 1, 2, 1, 1, 4, 1)  # of each batch after the session's creation


class _Step(NamedTuple):
    """The journal and the cell after one acknowledged batch."""

    segment: bytes
    cell: bytes
    seq: int


@cache
def _steps() -> tuple[_Step, ...]:
    fence = Fence(_KEYS, _SESSION, _INSTANCE)
    segment = fence.open_segment(generation=1, at=1, writer="w", more=False)
    cell = bytearray(encode_created(_anchor(fence, 0), _KEYS))
    steps = [_Step(segment, bytes(cell), fence.seq)]
    for counter, count in enumerate(_RECORDS, start=2):
        data, records = fence.frame(
            [Draft("note", 1, b'{"n":%d}' % each) for each in range(count)],
            at=1,
            epoch=0,
            writer="w",
        )
        fence.move_over(data, records[-1])
        segment += data
        start = slot_offset(counter)
        cell[start : start + SLOT_BYTES] = encode_slot(_anchor(fence, counter), _KEYS)
        steps.append(_Step(segment, bytes(cell), fence.seq))
    return tuple(steps)


def _anchor(fence: Fence, counter: int) -> Anchor:
    return Anchor(1, counter, fence.number, fence.offset, fence.seq, fence.at, 0, fence.mac)


def _judged(segment: bytes, cell: bytes) -> Walked:
    return walk(
        Fence(_KEYS, _SESSION, _INSTANCE),
        [SegmentBytes(1, "i1.00000001.jsonl", lambda offset: segment[offset:])],
        lambda: read_cell(cell, _KEYS),
        first_mac=None,
        closing=lambda _: None,
        is_lost=lambda _: False,
    )


def crashed(durable: int, lag: int, torn_bytes: int, tail_bytes: int) -> tuple[Walked, int]:
    """
    Return the state after a crash, and the last acknowledged record.

    `durable` batches are synced; the cell on disk is `lag` steps behind; `torn_bytes` of the next
    slot were written; `tail_bytes` of the next batch.
    """
    steps = _steps()
    durable %= len(steps)
    on_disk = durable - lag % (durable + 1)
    cell = steps[on_disk].cell
    if on_disk < durable:
        after, size = steps[on_disk + 1].cell, torn_bytes % (SLOT_BYTES + 1)
        start = slot_offset(on_disk + 2)
        cell = cell[:start] + after[start : start + size] + cell[start + size :]
    segment = steps[durable].segment
    if durable + 1 < len(steps):
        batch = steps[durable + 1].segment[len(segment) :]
        segment += batch[: tail_bytes % len(batch)]
    return _judged(segment, cell), steps[durable].seq


def attacked(data: bytes) -> tuple[Walked, int]:
    """
    Return the state after an attacker without a key made the moves in `data`, three bytes each, and
    the last acknowledged record.
    """
    last = _steps()[-1]
    segment, cell = last.segment, bytearray(last.cell)
    for move, where, value in zip(data[::3], data[1::3], data[2::3], strict=False):
        start = SLOT_BYTES * (where % 2)
        match move % 6:
            case 0:
                cell[start : start + SLOT_BYTES] = bytes([value]) * SLOT_BYTES
            case 1:
                cell[start : start + SLOT_BYTES] = cell[SLOT_BYTES - start : 2 * SLOT_BYTES - start]
            case 2:
                cell[(where * 2 + value % 2) % ANCHOR_BYTES] = value
            case 3:
                segment = segment[: len(segment) - (where * 256 + value) % len(segment)]
            case 4:
                lines = segment.splitlines(keepends=True)
                segment = b"".join(lines[: len(lines) - where % len(lines)])
            case _:
                segment += bytes([value]) * (where % 4)
    return _judged(segment, bytes(cell)), last.seq
