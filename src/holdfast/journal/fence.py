"""
The fence: how far we have read or written a journal, and a running keyed digest of the active
segment up to there.

It moves only over bytes that verified or that we wrote, so it can never be made to bless anything
else: whoever comes back compares the digest with the file's prefix, then feeds what follows. Cost
is bounded by one segment, whatever the session's length. Pure.
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


class End(NamedTuple):
    """The end of a whole batch: where it lies, and its last record."""

    generation: int
    number: int
    offset: int
    record: Record


class Fed(NamedTuple):
    """What came of feeding bytes: the records that verified, and how many bytes they were."""

    records: list[Record]
    taken: int
    bad_line: bool
    """
    A whole line stands at `taken` that does not verify. If False, what is left has no newline.
    """
    ends: tuple[End, ...]
    """Of the last two batches that ended in these bytes, oldest first."""


class Fence:
    """
    One reader's position. Owned by one handle; moved only with the session's write lock held, or
    while opening.
    """

    def __init__(
        self, keys: Keyring, session: SessionId, instance: InstanceId, *, number: int = 1
    ) -> None:
        self.keys, self.session, self.instance = keys, session, instance
        self.number = number
        self.offset = 0
        self.seq = 0
        self.mac = BIRTH_MAC
        self.at = 0
        self.epoch = 0
        # The last record says that its batch goes on: what stands here is not whole yet.
        self.goes_on = False
        self.where: Where = "start"
        # Known for a segment that we come to from the one before; a reader that starts here takes
        # the header's word, which is MACed.
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
        if (
            self._subkeys is None or self.where == "start"
        ):  # before its header a segment has no bytes, and no digest yet
            return len(data) == 0
        return blake3(data, key=self._subkeys.segment).digest() == self._hasher.digest()

    def feed(self, data: bytes) -> Fed:
        """Verify whole lines from `data`, which stands at `offset`, and move over them."""
        records: list[Record] = []
        before_last: End | None = None
        last: End | None = None
        start = 0
        while True:
            end = data.find(b"\n", start) + 1
            record = self._believe(data[start:end]) if end else None
            if record is None:
                ends = tuple(each for each in (before_last, last) if each is not None)
                return self._fed(data, records, start, ends, bad_line=end != 0)
            records.append(record)
            start = end
            if not record.more:
                before_last, last = (
                    last,
                    End(self.generation, self.number, self.offset + end, record),
                )

    def _fed(
        self,
        data: bytes,
        records: list[Record],
        taken: int,
        ends: tuple[End, ...],
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
        Leave the active segment as it is: its next is expected to name exactly this position.

        `ignored` stands past it now, and is about to be truncated: the next header says so.
        """
        self.previous = self.closing(ignored)
        self.number += 1
        self.offset = 0
        self.where = "start"
        self.came_from_before = True

    def closing(self, ignored: bytes = b"") -> Previous | None:
        """What the next segment's header says of this one."""
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
        Does the next segment's header, which the chain has yet to confirm, name these bytes past
        our position?
        """
        return self._subkeys is not None and previous.allows(excess, self._subkeys.segment)

    def copy(self) -> "Fence":
        """Another reader at the same place, which moves on its own."""
        twin = Fence.__new__(Fence)
        twin.__dict__.update(self.__dict__)
        twin.__dict__["_hasher"] = self._hasher.copy()
        return twin

    def adopt(self, other: "Fence") -> None:
        """Stand where the other stands, which is not used any more."""
        self.__dict__.update(other.__dict__)

    # --- writing: a fence is moved over lines that it framed itself
    # --------------------------------------------------

    def write(
        self, draft: Draft, *, at: int, epoch: int, writer: str, more: bool = False
    ) -> tuple[bytes, Record]:
        """
        Frame one record at this position and move over it. For a copy: the true fence moves when
        the bytes are durable.

        `more`: its batch goes on with the next record that is written here.
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
        The lines of these records, one batch, at this position, which is not moved: `move_over`
        does, once they are durable.
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
        """Lines that were framed here are durable now; `last` is theirs."""
        self._hasher.update(data)
        self.offset += len(data)
        self._move(last)

    def close_segment(self, *, at: int, writer: str) -> bytes:
        """
        The closing line of a full segment. Its batch goes on in the next one: alone it is not
        whole, or a lost segment would not be missed.
        """
        line, _ = self.write(
            closed_draft(self.number), at=at, epoch=self.epoch, writer=writer, more=True
        )
        self.where = "closed"
        return line

    def open_segment(self, *, generation: int, at: int, writer: str, more: bool = True) -> bytes:
        """
        The header of this segment, at whose start we stand. `more`: records follow in the same
        batch.
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
