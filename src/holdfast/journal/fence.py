"""
The fence: how far we have read or written a journal, and a running keyed digest of the active segment up to there.

It moves only over bytes that verified or that we wrote, so it can never be made to bless anything else: whoever comes back compares
the digest with the file's prefix, then feeds what follows. Cost is bounded by one segment, whatever the session's length. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from blake3 import blake3

from holdfast.errors import InvariantBroken
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring, Subkeys
from holdfast.journal.record import BIRTH_MAC, Draft, Head, Record, believe, frame, read_unverified
from holdfast.journal.segment import (
    CLOSED,
    FORMAT,
    OPENED,
    Previous,
    SegmentKey,
    SegmentOpened,
    Where,
    check_format,
    closed_draft,
    opened_draft,
    read_opened,
)


class Fed(NamedTuple):
    """What came of feeding bytes: the records that verified, and how many bytes they were."""

    records: list[Record]
    taken: int
    bad_line: bool
    """A whole line stands at `taken` that does not verify. If False, what is left has no newline."""


class Fence:
    """One reader's position. Owned by one handle; moved only with the session's write lock held, or while opening."""

    def __init__(self, keys: Keyring, session: SessionId, instance: InstanceId, *, number: int = 1) -> None:
        self.keys, self.session, self.instance = keys, session, instance
        self.number = number
        self.offset = 0
        self.seq = 0
        self.mac = BIRTH_MAC
        self.at = 0
        self.epoch = 0
        self.where: Where = "start"
        # Known for a segment that we come to from the one before; a reader that starts here takes the header's word, which is MACed.
        self.previous: Previous | None = None
        self.came_from_before = number == 1
        self._subkeys: Subkeys | None = None
        self._hasher = blake3()

    @property
    def head(self) -> Head:
        return Head(self.seq, self.mac)

    @property
    def generation(self) -> int:
        return self._subkeys.generation if self._subkeys else 0

    def prefix_holds(self, data: bytes | memoryview) -> bool:
        """Are these, the first `offset` bytes of the segment as they are now, the ones we know?"""
        if self._subkeys is None or self.where == "start":  # before its header a segment has no bytes, and no digest yet
            return len(data) == 0
        return blake3(data, key=self._subkeys.segment).digest() == self._hasher.digest()

    def feed(self, data: bytes) -> Fed:
        """Verify whole lines from `data`, which stands at `offset`, and move over them."""
        records: list[Record] = []
        start = 0
        while True:
            end = data.find(b"\n", start) + 1
            if end == 0:
                return self._fed(data, records, start, bad_line=False)
            record = self._believe(data[start:end])
            if record is None:
                return self._fed(data, records, start, bad_line=True)
            records.append(record)
            start = end

    def _fed(self, data: bytes, records: list[Record], taken: int, *, bad_line: bool) -> Fed:
        if taken:
            self._hasher.update(data if taken == len(data) else data[:taken])
            self.offset += taken
        return Fed(records, taken, bad_line)

    def _believe(self, line: bytes) -> Record | None:
        if self.where == "middle" and self._subkeys is not None:
            record = believe(self._subkeys.record, self.mac, line)
            if record is None or record.seq != self.seq + 1 or record.at < self.at or record.epoch < self.epoch:
                return None
            if record.type == CLOSED:
                self.where = "closed"
            elif record.type == OPENED:
                return None
            self._move(record)
            return record
        return self._believe_header(line) if self.where == "start" else None

    def _believe_header(self, line: bytes) -> Record | None:
        claimed = read_unverified(line)
        if claimed is None or claimed.type != OPENED:
            return None
        opened = read_opened(claimed.body)
        if opened is None or not self._is_next(opened):
            return None
        subkeys = self.keys.get(opened.key.generation)
        if subkeys.key_id != opened.key.id:
            return None
        try:
            before = bytes.fromhex(opened.previous.mac) if opened.previous else BIRTH_MAC
        except ValueError:
            return None
        record = believe(subkeys.record, before, line)
        if record is None or (self.came_from_before and record.seq != self.seq + 1):
            return None
        check_format(opened)
        if record.at < self.at or record.epoch < self.epoch or subkeys.generation < self.generation:
            return None
        self._subkeys, self._hasher, self.where = subkeys, blake3(key=subkeys.segment), "middle"
        self.previous = opened.previous
        self._move(record)
        return record

    def _is_next(self, opened: SegmentOpened) -> bool:
        mine = (self.session, self.instance, self.number)
        if (opened.session, opened.instance, opened.number) != mine or (opened.previous is None) != (self.number == 1):
            return False
        return not self.came_from_before or opened.previous == self.previous

    def _move(self, record: Record) -> None:
        self.seq, self.mac, self.at, self.epoch = record.seq, record.mac, record.at, record.epoch

    def enter_next(self) -> None:
        """Leave the active segment as it is: its next is expected to name exactly this position."""
        self.previous = self.closing()
        self.number += 1
        self.offset = 0
        self.where = "start"
        self.came_from_before = True

    def closing(self) -> Previous | None:
        """What the next segment's header says of this one."""
        if self._subkeys is None:
            return None
        return Previous(number=self.number, length=self.offset, mac=self.mac.hex(), digest=self._hasher.hexdigest())

    def copy(self) -> "Fence":
        """Another reader at the same place, which moves on its own."""
        twin = Fence.__new__(Fence)
        twin.__dict__.update(self.__dict__)
        twin.__dict__["_hasher"] = self._hasher.copy()
        return twin

    def adopt(self, other: "Fence") -> None:
        """Stand where the other stands, which is not used any more."""
        self.__dict__.update(other.__dict__)

    # --- writing: a fence is moved over lines that it framed itself --------------------------------------------------

    def write(self, draft: Draft, *, at: int, epoch: int, writer: str) -> tuple[bytes, Record]:
        """Frame one record at this position and move over it. For a copy: the true fence moves when the bytes are durable."""
        if self._subkeys is None or self.where != "middle":
            raise InvariantBroken("a record was to be framed outside a segment")
        line, record = frame(self._subkeys.record, self.mac, draft, seq=self.seq + 1, at=at, epoch=epoch, writer=writer)
        self._hasher.update(line)
        self.offset += len(line)
        self._move(record)
        return line, record

    def frame(self, drafts: Sequence[Draft], *, at: int, epoch: int, writer: str) -> tuple[bytes, list[Record]]:
        """The lines of these records at this position, which is not moved: `move_over` does, once they are durable."""
        if self._subkeys is None or self.where != "middle":
            raise InvariantBroken("a record was to be framed outside a segment")
        key, mac, seq = self._subkeys.record, self.mac, self.seq
        lines: list[bytes] = []
        records: list[Record] = []
        for draft in drafts:
            seq += 1
            line, record = frame(key, mac, draft, seq=seq, at=at, epoch=epoch, writer=writer)
            mac = record.mac
            lines.append(line)
            records.append(record)
        return (lines[0] if len(lines) == 1 else b"".join(lines)), records

    def move_over(self, data: bytes, last: Record) -> None:
        """Lines that were framed here are durable now; `last` is theirs."""
        self._hasher.update(data)
        self.offset += len(data)
        self._move(last)

    def close_segment(self, *, at: int, writer: str) -> bytes:
        """The closing line of a full segment."""
        line, _ = self.write(closed_draft(self.number), at=at, epoch=self.epoch, writer=writer)
        self.where = "closed"
        return line

    def open_segment(self, *, generation: int, at: int, writer: str) -> bytes:
        """The header of this segment, at whose start we stand."""
        if self.where != "start":
            raise InvariantBroken("a segment was to be opened inside another")
        subkeys = self.keys.get(max(generation, self.generation))
        opened = SegmentOpened(
            format=FORMAT,
            session=self.session,
            instance=self.instance,
            key=SegmentKey(subkeys.generation, subkeys.key_id),
            number=self.number,
            previous=self.previous,
        )
        self._subkeys, self._hasher, self.where = subkeys, blake3(key=subkeys.segment), "middle"
        line, _ = self.write(opened_draft(opened), at=at, epoch=self.epoch, writer=writer)
        return line
