"""
The fence: how far this process has read or written a journal, and a running keyed digest of the
active segment up to that point.

The fence moves only over bytes that verified or that this process wrote, so other bytes never
become trusted. After reacquiring the lock, a driver compares the digest with the file's prefix,
then feeds the bytes that follow. The cost is bounded by one segment, however long the session is.
Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from blake3 import blake3

from holdfast.errors import InvariantBroken
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring, Subkeys
from holdfast.journal.record import ZERO_MAC, Draft, Head, Record, believe, frame, read_unverified
from holdfast.journal.segment import (
    CLOSED,
    FORMAT,
    OPENED,
    Ignored,
    Previous,
    SegmentKey,
    SegmentOpened,
    Where,
    check_format,
    closed_draft,
    opened_draft,
    read_opened,
)


class BatchEnd(NamedTuple):
    """The end of a whole batch: its position and its last record."""

    generation: int
    number: int
    offset: int
    record: Record


class Fed(NamedTuple):
    """The result of feeding bytes: the records that verified, and how many bytes they were."""

    records: list[Record]
    taken: int
    bad_line: bool
    """True if a whole line at `taken` does not verify. If False, the rest has no newline."""
    ends: tuple[BatchEnd, ...]
    """The ends of the last two batches that ended in these bytes, oldest first."""


class SegmentPlace(NamedTuple):
    """
    A position that a fence has reached, in the middle of a segment and at the end of a batch. The
    digest is keyed and covers the segment's bytes up to there.
    """

    number: int
    offset: int
    seq: int
    mac: str
    at: int
    epoch: int
    digest: str

    @property
    def head(self) -> Head:
        return Head(self.seq, bytes.fromhex(self.mac))


class Fence:
    """
    One reader's position. One handle owns it. It moves only while the session's write lock is held,
    or while the session is being opened.
    """

    def __init__(
        self, keys: Keyring, session: SessionId, instance: InstanceId, *, number: int = 1
    ) -> None:
        self.keys, self.session, self.instance = keys, session, instance
        self.number = number
        self.offset = 0
        self.seq = 0
        self.mac = ZERO_MAC
        self.at = 0
        self.epoch = 0
        # True if the last record says that its batch goes on: the batch here is not whole yet.
        self.goes_on = False
        self.where: Where = "start"
        # Known for a segment that this reader enters from the one before. A reader that starts here
        # trusts the header instead, which is MACed.
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
        """Check that the first `offset` bytes of the segment, as read now, are the known ones."""
        if (
            self._subkeys is None or self.where == "start"
        ):  # a segment without a header has no bytes and no digest yet
            return len(data) == 0
        return blake3(data, key=self._subkeys.segment).digest() == self._hasher.digest()

    def feed(self, data: bytes) -> Fed:
        """Verify whole lines from `data`, which stands at `offset`, and move over them."""
        records: list[Record] = []
        # The last two batches' ends, each with the position behind its last record.
        before_last: tuple[int, Record] | None = None
        last: tuple[int, Record] | None = None
        start = 0
        while True:
            end = data.find(b"\n", start) + 1
            record = self._believe(data[start:end]) if end else None
            if record is None:
                ends = tuple(
                    [
                        BatchEnd(self.generation, self.number, self.offset + upto, ending)
                        for upto, ending in filter(None, (before_last, last))
                    ]
                )
                return self._fed(data, records, start, ends, bad_line=end != 0)
            records.append(record)
            start = end
            if not record.more:
                before_last, last = last, (end, record)

    def _fed(
        self,
        data: bytes,
        records: list[Record],
        taken: int,
        ends: tuple[BatchEnd, ...],
        *,
        bad_line: bool,
    ) -> Fed:
        if taken:
            self._hasher.update(data if taken == len(data) else data[:taken])
            self.offset += taken
        return Fed(records, taken, bad_line, ends)

    def _believe(self, line: bytes) -> Record | None:
        if self.where == "middle" and self._subkeys is not None:
            record = believe(self._subkeys.record, self.mac, line)
            if (
                record is None
                or record.seq != self.seq + 1
                or record.at < self.at
                or record.epoch < self.epoch
            ):
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
            before = bytes.fromhex(opened.previous.mac) if opened.previous else ZERO_MAC
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
        if (opened.session, opened.instance, opened.number) != mine or (
            opened.previous is None
        ) != (self.number == 1):
            return False
        if not self.came_from_before or opened.previous is None:
            return True
        return opened.previous.is_same_segment(self.previous)

    def _move(self, record: Record) -> None:
        self.seq, self.mac, self.at, self.epoch, self.goes_on = (
            record.seq,
            record.mac,
            record.at,
            record.epoch,
            record.more,
        )

    def enter_next(self, ignored: bytes = b"") -> None:
        """
        Leave the active segment as it is. The next segment must name exactly this position.

        `ignored` are the bytes that stand past this position and are about to be truncated. The
        next header records them.
        """
        self.previous = self.closing(ignored)
        self.number += 1
        self.offset = 0
        self.where = "start"
        self.came_from_before = True

    def closing(self, ignored: bytes = b"") -> Previous | None:
        """Describe this segment as the next segment's header must."""
        if self._subkeys is None:
            return None
        named = (
            Ignored(len(ignored), blake3(ignored, key=self._subkeys.segment).hexdigest())
            if ignored
            else None
        )
        return Previous(
            number=self.number,
            length=self.offset,
            mac=self.mac.hex(),
            digest=self._hasher.hexdigest(),
            ignored=named,
        )

    def may_be_followed_by(self, excess: bytes, previous: Previous) -> bool:
        """
        Check whether the next segment's header names these bytes past our position. The chain has
        yet to confirm that header.
        """
        return self._subkeys is not None and previous.allows(excess, self._subkeys.segment)

    def place(self) -> SegmentPlace | None:
        """Return this position, if it is one that another reader may start from."""
        if self.where != "middle" or self.goes_on:
            return None
        return SegmentPlace(
            self.number,
            self.offset,
            self.seq,
            self.mac.hex(),
            self.at,
            self.epoch,
            self._hasher.hexdigest(),
        )

    def skip_to(self, place: SegmentPlace, data: bytes | memoryview) -> bool:
        """
        Move from the segment's header to a place that one of us has reached, if the bytes from the
        segment's start are those that were verified or written then. Otherwise stay.
        """
        if self._subkeys is None or self.where != "middle":
            return False
        if place.number != self.number or not self.offset <= place.offset <= len(data):
            return False
        hasher = blake3(data[: place.offset], key=self._subkeys.segment)
        if hasher.hexdigest() != place.digest:
            return False
        self._hasher, self.offset, self.goes_on = hasher, place.offset, False
        self.seq, self.mac = place.head
        self.at, self.epoch = place.at, place.epoch
        return True

    def copy(self) -> "Fence":
        """Return another reader at the same position, which moves on its own."""
        copied = Fence.__new__(Fence)
        copied.__dict__.update(self.__dict__)
        copied.__dict__["_hasher"] = self._hasher.copy()
        return copied

    def adopt(self, other: "Fence") -> None:
        """Take over the position of `other`, which must not be used any more."""
        self.__dict__.update(other.__dict__)

    # --- writing: a fence moves over lines that it framed itself

    def write(
        self, draft: Draft, *, at: int, epoch: int, writer: str, more: bool = False
    ) -> tuple[bytes, Record]:
        """
        Frame one record at this position and move over it. Call it on a copy: the true fence moves
        when the bytes are durable.

        `more`: the batch goes on with the next record that is written here.
        """
        if self._subkeys is None or self.where != "middle":
            raise InvariantBroken("a record was to be framed outside a segment")
        line, record = frame(
            self._subkeys.record,
            self.mac,
            draft,
            seq=self.seq + 1,
            at=at,
            epoch=epoch,
            writer=writer,
            more=more,
        )
        self._hasher.update(line)
        self.offset += len(line)
        self._move(record)
        return line, record

    def frame(
        self, drafts: Sequence[Draft], *, at: int, epoch: int, writer: str
    ) -> tuple[bytes, list[Record]]:
        """
        Frame these records as one batch at this position. The position does not move; call
        `move_over` once the lines are durable.
        """
        if self._subkeys is None or self.where != "middle":
            raise InvariantBroken("a record was to be framed outside a segment")
        key, mac, seq = self._subkeys.record, self.mac, self.seq
        lines: list[bytes] = []
        records: list[Record] = []
        last = self.seq + len(drafts)
        for draft in drafts:
            seq += 1
            line, record = frame(
                key, mac, draft, seq=seq, at=at, epoch=epoch, writer=writer, more=seq != last
            )
            mac = record.mac
            lines.append(line)
            records.append(record)
        return (lines[0] if len(lines) == 1 else b"".join(lines)), records

    def move_over(self, data: bytes, last: Record) -> None:
        """
        Move over lines that were framed here and are now durable; `last` is their last record.
        """
        self._hasher.update(data)
        self.offset += len(data)
        self._move(last)

    def close_segment(self, *, at: int, writer: str) -> bytes:
        """
        Return the closing line of a full segment. Its batch goes on in the next segment: a closing
        line that was whole alone would hide the loss of the next segment.
        """
        line, _ = self.write(
            closed_draft(self.number), at=at, epoch=self.epoch, writer=writer, more=True
        )
        self.where = "closed"
        return line

    def open_segment(self, *, generation: int, at: int, writer: str, more: bool = True) -> bytes:
        """
        Return the header of this segment, at whose start the fence stands. `more`: records follow
        in the same batch.
        """
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
        line, _ = self.write(
            opened_draft(opened), at=at, epoch=self.epoch, writer=writer, more=more
        )
        return line
