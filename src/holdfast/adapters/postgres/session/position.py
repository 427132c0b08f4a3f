"""
How far this process has verified or written one journal in the database.

A position is a fence and a SHA-256 of the active segment's lines. The server can compute the second
one, so a whole segment is compared in the statement that appends to it. Both are fed only with
lines that verified here, or that were framed here. Pure.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.adapters.files.home.keys import no_key
from holdfast.errors import InvariantBroken, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import KeyMissing, Keyring
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft, Head, Record
from holdfast.journal.segment import Previous

# A fenced append makes the server hash the active segment: 64 KiB cost 1.7 plain appends, and
# 256 KiB cost 2.4.
STORED_SEGMENT_BYTES = 64 * 1024


class Framed(NamedTuple):
    """Lines that follow a position, and the segment that they open, if any."""

    lines: list[bytes]
    records: list[Record]  # of the caller
    segment: tuple[int, int] | None  # its number and its first record


class Position:
    """Owned by the journal's tail. It moves only over bytes that are durable and verified."""

    def __init__(
        self, keys: Keyring, session: SessionId, instance: InstanceId, *, number: int = 1
    ) -> None:
        self.fence = Fence(keys, session, instance, number=number)
        self.segment_seq = 1
        self._sha = hashlib.sha256()

    @property
    def head(self) -> Head:
        return self.fence.head

    @property
    def prefix(self) -> bytes:
        """The SHA-256 of the active segment's lines."""
        return self._sha.digest()

    def copy(self) -> "Position":
        copied = Position.__new__(Position)
        copied.fence = self.fence.copy()
        copied.segment_seq = self.segment_seq
        copied._sha = self._sha.copy()  # noqa: SLF001  a copy of the same class
        return copied

    def feed(self, line: bytes) -> Record | None:
        """Verify one stored line and move over it. Return None if it does not verify."""
        if self.fence.where == "closed":
            self._enter_next()
        try:
            fed = self.fence.feed(line)
        except KeyMissing as exc:
            raise missing_key(exc.generation) from exc
        if not fed.records or fed.taken != len(line):
            return None
        self._sha.update(line)
        return fed.records[0]

    def closes_as(self, previous: Previous | None) -> bool:
        """Whether the segment that was fed is the one that this names, and whole."""
        return previous is not None and previous.is_same_segment(self.fence.closing())

    def _enter_next(self) -> None:
        sha256 = self._sha.hexdigest()
        self.fence.enter_next()
        if self.fence.previous is not None:
            self.fence.previous = msgspec.structs.replace(self.fence.previous, sha256=sha256)
        self._sha = hashlib.sha256()
        self.segment_seq = self.fence.seq + 1

    def frame(
        self, drafts: Sequence[Draft], *, at: int, epoch: int, writer: str, generation: int
    ) -> Framed:
        """Frame one batch and move over it. Call it on a copy."""
        lines: list[bytes] = []
        segment: tuple[int, int] | None = None
        if self.fence.offset >= STORED_SEGMENT_BYTES or generation > self.fence.generation:
            if self.fence.where != "middle":
                raise InvariantBroken("a segment was to be closed outside of one")
            lines.append(self._took(self.fence.close_segment(at=at, writer=writer)))
            self._enter_next()
            segment = (self.fence.number, self.segment_seq)
            lines.append(
                self._took(self.fence.open_segment(generation=generation, at=at, writer=writer))
            )
        records: list[Record] = []
        for left, draft in enumerate(drafts, start=1 - len(drafts)):
            line, record = self.fence.write(draft, at=at, epoch=epoch, writer=writer, more=left < 0)
            lines.append(self._took(line))
            records.append(record)
        return Framed(lines, records, segment)

    def begin(
        self, drafts: Sequence[Draft], times: Sequence[int], *, writer: str, generation: int
    ) -> list[bytes]:
        """Frame the first segment of a new journal: its header, then its first records."""
        lines = [
            self._took(
                self.fence.open_segment(
                    generation=generation,
                    at=times[0] if times else 0,
                    writer=writer,
                    more=bool(drafts),
                )
            )
        ]
        for left, draft, at in zip(range(1 - len(drafts), 1), drafts, times, strict=True):
            line, _ = self.fence.write(draft, at=at, epoch=0, writer=writer, more=left < 0)
            lines.append(self._took(line))
        return lines

    def _took(self, line: bytes) -> bytes:
        self._sha.update(line)
        return line


def missing_key(generation: int) -> Refused:
    return no_key(
        f"key {generation} is missing in this node's folder; copy keys/{generation}.key from a "
        "backup of it"
    )
