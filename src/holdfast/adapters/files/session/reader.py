"""
Read a whole journal: open it (closed segments by one digest each, the last one record by record)
and stream its records.

No lock is needed up to the anchor, because those bytes never change again. The bytes past the
anchor are being written by a living peer or were left by a dead one. For them the lock is taken,
and records that verify are made durable before they are handed on (session/catch_up.py).
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from blake3 import blake3

from holdfast.adapters.files.paths import READ_ONLY, walk
from holdfast.adapters.files.session.catch_up import (
    Damaged,
    ReadSegment,
    catch_up,
    read_anchor,
    read_to_anchor,
)
from holdfast.adapters.files.session.files import HEADER_BYTES_MAX, SessionFiles
from holdfast.errors import Busy
from holdfast.journal.anchor_cases import Slots
from holdfast.journal.chain import KeyMissing
from holdfast.journal.fence import Fence, SegmentPlace
from holdfast.journal.record import Record, read_unverified
from holdfast.journal.segment import Previous, is_own
from holdfast.journal.verify import Damage
from holdfast.ports.journal_store import Check


class Sealing(NamedTuple):
    """A closed segment as the verified header of the next segment describes it."""

    previous: Previous
    generation: int
    first_seq: int


class LastRecords(NamedTuple):
    """The last records of a journal that was opened, verified one by one."""

    after: int  # the number of the record before the first of them
    records: Sequence[Record]


class Opened(NamedTuple):
    """A journal that was verified whole: a fence at its head, and its last records."""

    fence: Fence
    last: LastRecords
    place: SegmentPlace | None  # the given one, if the last records were verified from there


def open_at_head(
    files: SessionFiles,
    *,
    first_mac: str | None,
    writer: str,
    now: int,
    place: SegmentPlace | None = None,
) -> Opened:
    """
    Verify the whole journal. Raise `Damaged`. `place` is one that this home has recorded under its
    key: the bytes of its segment up to there are checked by one digest.
    """
    with walk(files.home, *files.parts) as folder:
        fence, after, records, began = _walk_to_anchor(files, folder, place)
        for number, closed in closed_segments(files, folder, fence):
            _checked(files, folder, number, closed)
        _check_first(files.read_segment(folder, 1, HEADER_BYTES_MAX), first_mac)
        records += advance(files, folder, fence, writer=writer, now=now)
    return Opened(fence, LastRecords(after, records), began)


def _walk_to_anchor(files: SessionFiles, folder: int, place: SegmentPlace | None) -> ReadSegment:
    """Verify the anchor's segment up to the anchor."""
    anchor = read_anchor(files, files.fence())
    numbers = set(files.numbers(folder))
    missing = next(
        (n for n in range(1, max(anchor.segment, *numbers, 1) + 1) if n not in numbers), None
    )
    if missing is not None:
        raise Damaged(Damage("cut_short", f"{files.name(missing)} is missing", 0, missing, 0))
    return read_to_anchor(files, folder, anchor, place)


def advance(
    files: SessionFiles, folder: int, fence: Fence, *, writer: str, now: int
) -> list[Record]:
    """
    Move from the anchor to the head, if there is more. Records are left out if a busy or read-only
    journal does not let us make them durable.
    """
    is_settled = files.anchor.read_slots_twice(files.keys).slots is Slots.SETTLED
    if is_settled and not _is_more(files, folder, fence):
        return []
    try:
        with files.locked() as held:
            return catch_up(files, held, fence, Check.SHORT, writer=writer, now=now).records
    except Busy:
        if not is_settled:
            raise  # only under the lock is the last acknowledged record known
    except OSError as exc:
        if exc.errno not in READ_ONLY:
            raise
    return []


def _is_more(files: SessionFiles, folder: int, fence: Fence) -> bool:
    try:
        size = os.stat(files.name(fence.number), dir_fd=folder, follow_symlinks=False).st_size
    except FileNotFoundError:
        return True  # catch_up reports the cause
    return size != fence.offset or files.has_segment(folder, fence.number + 1)


def closed_segments(files: SessionFiles, folder: int, fence: Fence) -> list[tuple[int, Sealing]]:
    """
    Return every segment before the fence's, oldest first, as a verified header describes it.

    Each header is verified by its own mac and names the segment before it. The fence verified the
    last one, so the last one vouches for all.
    """
    found: list[tuple[int, Sealing]] = []
    previous, number = fence.previous, fence.number
    while previous is not None:
        number -= 1
        header = files.fence(number)
        first = files.read_segment(folder, number, HEADER_BYTES_MAX)
        fed = header.feed(first[: first.find(b"\n") + 1])
        if not fed.records or previous.number != number:
            raise Damaged(
                Damage(
                    "broken", f"the header of {files.name(number)} does not verify", 0, number, 0
                )
            )
        found.append((number, Sealing(previous, header.generation, fed.records[0].seq)))
        previous = header.previous
    return found[::-1]


def _checked(files: SessionFiles, folder: int, number: int, sealing: Sealing) -> memoryview:
    """
    Return a closed segment's bytes if they match the digest in the next header. They stand until
    this thread's next call.
    """
    length = sealing.previous.length
    data = files.read_to_hash(folder, number)
    excess = bytes(data[length:])
    if len(data) < length:
        raise Damaged(
            Damage(
                "cut_short",
                f"{files.name(number)} has {len(data)} of {length} bytes",
                sealing.first_seq - 1,
                number,
                len(data),
            )
        )
    key = files.keys.get(sealing.generation).segment
    if excess:
        if not sealing.previous.allows(excess, key):
            raise Damaged(
                Damage(
                    "broken",
                    f"{len(excess)} bytes follow the end of {files.name(number)}",
                    sealing.first_seq - 1,
                    number,
                    length,
                )
            )
        data = data[:length]
    if blake3(data, key=key).hexdigest() != sealing.previous.digest:
        raise Damaged(
            Damage("broken", f"{files.name(number)} was changed", sealing.first_seq - 1, number, 0)
        )
    return data


def _check_first(data: bytes, first_mac: str | None) -> None:
    line = data[: data.find(b"\n") + 1]
    record = read_unverified(line)
    if first_mac is not None and (record is None or record.mac.hex() != first_mac):
        raise Damaged(
            Damage("broken", "its first record is not the one the home's journal names", 0, 1, 0)
        )


def stream(
    files: SessionFiles, fence: Fence, fold: Callable[[Record], None], *, after: int
) -> None:
    """Pass the callers' records up to the fence to `fold`. One segment is in memory at a time."""
    with walk(files.home, *files.parts) as folder:
        closed = closed_segments(files, folder, fence)
        for position, (number, sealing) in enumerate(closed, start=1):
            is_behind = position < len(closed) and closed[position][1].first_seq <= after + 1
            if not is_behind:
                _hand_on(bytes(_checked(files, folder, number, sealing)), fold, after)
        data = files.read_segment(folder, fence.number, fence.offset)
        if not fence.prefix_holds(data):
            raise Damaged(
                Damage(
                    "broken", f"{files.name(fence.number)} was changed", fence.seq, fence.number, 0
                )
            )
        _hand_on(data, fold, after)


def _hand_on(data: bytes, fold: Callable[[Record], None], after: int) -> None:
    """Pass on the records of bytes whose digest was just checked."""
    for line in data.splitlines(keepends=True) if b"\r" not in data else lines_of(data):
        record = read_unverified(line)
        if record is not None and record.seq > after and not is_own(record):
            fold(record)


def lines_of(data: bytes) -> Iterator[bytes]:
    """Yield whole lines as they are in the bytes: only a newline ends a line."""
    start = 0
    while end := data.find(b"\n", start) + 1:
        yield data[start:end]
        start = end


def stream_what_verifies(files: SessionFiles, fold: Callable[[Record], None], *, after: int) -> int:
    """
    Stream a damaged journal record by record from the first, up to the damage and never past the
    anchor. Return the last seq reached.
    """
    fence = files.fence()
    for records in _verified(files, fence):
        for record in records:
            if record.seq > after and not is_own(record):
                fold(record)
    return fence.seq


def _verified(files: SessionFiles, fence: Fence) -> Iterator[list[Record]]:
    try:
        with walk(files.home, *files.parts) as folder:
            while True:
                length = files.claimed_length(folder, fence.number)
                data = files.read_segment(folder, fence.number, length)
                fed = fence.feed(data)
                yield fed.records
                if length is None or fence.offset != length:
                    return
                fence.enter_next()
    except (FileNotFoundError, Damaged, KeyMissing):
        return


def stream_unverified(files: SessionFiles, fold: Callable[[Record], None], *, after: int) -> int:
    """
    Stream without a key, for export: nothing can be verified, but everything can be read. Return
    the last seq reached.
    """
    reached = 0
    with contextlib.suppress(FileNotFoundError), walk(files.home, *files.parts) as folder:
        for number in files.numbers(folder):
            length = files.claimed_length(folder, number)
            for line in lines_of(files.read_segment(folder, number, length)):
                record = read_unverified(line)
                if record is None:
                    return reached
                reached = record.seq
                if record.seq > after and not is_own(record):
                    fold(record)
    return reached
