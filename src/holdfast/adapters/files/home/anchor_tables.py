"""
Anchors on disk: packed tables with 512 bytes per session, so that a parked session needs no file of
its own for its anchor.

HOME/anchors/NNNN.anchors holds `SESSIONS_PER_TABLE` sessions; `SessionCreated.slot` gives the
position. The home's own anchor is HOME/anchors/_home. The holder of a session's write lock owns its
cell; neighbours never touch each other's bytes.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.adapters.files.paths import make_folder, open_file, open_folder, read_at, write_all
from holdfast.journal.anchor import (
    ANCHOR_BYTES,
    NOTHING_SEEN,
    Anchor,
    CellReading,
    acknowledged_seq,
    claim_offset,
    encode_claim,
    encode_created,
    encode_slot,
    read_cell,
    slot_offset,
)
from holdfast.journal.anchor_cases import Slots
from holdfast.journal.chain import Keyring
from holdfast.limits import INTEGER_MAX
from holdfast.session.home.events import SessionCreated

ANCHORS = "anchors"
HOME_TABLE = "_home"
SESSIONS_PER_TABLE = 2048  # 1 MiB a table
# A page of sessions of any age may span as many tables, and only half a KiB of each is needed.
_CELL_BY_CELL = 256
# A slot is written with one call. A reader that meets a writer this often waits for the write lock.
_LOOKS = 3


class _Table(NamedTuple):
    """An open table and the identity of its file."""

    fd: int
    device: int
    inode: int


class AnchorTables:
    """
    The tables of one home, as the paths name them. All sessions of the home share them.

    After a table is replaced, even by the same bytes, other processes write to the new one, so
    every read checks the path first. The descriptor keeps its number, because threads that have it
    may be about to use it.
    """

    def __init__(self, home: int) -> None:
        self._home = home
        self._guard = threading.Lock()
        self._open: dict[str, _Table] = {}

    def cell(self, slot: int) -> "AnchorCell":
        return AnchorCell(
            self,
            f"{slot // SESSIONS_PER_TABLE:04d}.anchors",
            slot % SESSIONS_PER_TABLE * ANCHOR_BYTES,
        )

    def home_cell(self) -> "AnchorCell":
        return AnchorCell(self, HOME_TABLE, 0)

    def seqs(self, living: Sequence[SessionCreated], keys: Mapping[int, bytes]) -> list[int]:
        """
        Return the last acknowledged record of each session: for one page read its cells, for many
        sessions read every table once.

        An anchor whose slots do not verify together counts as higher than any row of a cache, so
        that its session is opened.
        """
        if len(living) <= _CELL_BY_CELL:
            cells: Iterable[bytes] = (self.cell(created.slot).read_raw() for created in living)
        else:
            cells = self._cells(living)
        seqs = (
            acknowledged_seq(cell, keys, created.session, created.instance)
            for created, cell in zip(living, cells, strict=True)
        )
        return [INTEGER_MAX if seq is None else seq for seq in seqs]

    def _cells(self, living: Sequence[SessionCreated]) -> Iterator[bytes]:
        tables: dict[int, bytes] = {}
        for created in living:
            number, place = divmod(created.slot, SESSIONS_PER_TABLE)
            if number not in tables:
                tables[number] = self.cell(created.slot).read_table()
            yield tables[number][place * ANCHOR_BYTES : (place + 1) * ANCHOR_BYTES]

    def table(self, name: str, *, create: bool = False) -> int:
        """
        Return a table's descriptor. Raise FileNotFoundError if it is absent and not to be created.
        """
        known = self._open.get(name)
        if known is not None:
            try:
                now = os.stat(f"{ANCHORS}/{name}", dir_fd=self._home, follow_symlinks=False)
                if now.st_ino == known.inode and now.st_dev == known.device:
                    return known.fd
            except FileNotFoundError:
                pass  # opened below, or reported as missing
        with self._guard:
            return self._table(name, create=create)

    def looked_at(self, name: str) -> int:
        """
        Return the descriptor of a table that was checked a moment ago, with the same lock held.
        """
        known = self._open.get(name)
        return known.fd if known is not None else self.table(name)

    def _table(self, name: str, *, create: bool) -> int:
        if create:
            make_folder(self._home, ANCHORS)
        folder = open_folder(self._home, ANCHORS)
        try:
            try:
                fd = open_file(folder, name, os.O_RDWR | (os.O_CREAT if create else 0))
            except OSError as exc:
                if create or isinstance(exc, FileNotFoundError):
                    raise
                fd = open_file(folder, name, os.O_RDONLY)  # a read-only mount
            if create:
                os.fsync(folder)
        finally:
            os.close(folder)
        status = os.fstat(fd)
        before = self._open.get(name)
        if before is not None:
            os.dup2(fd, before.fd, inheritable=False)
            os.close(fd)
            fd = before.fd
        self._open[name] = _Table(fd, status.st_dev, status.st_ino)
        return fd

    def close(self) -> None:
        with self._guard:
            for table in self._open.values():
                os.close(table.fd)
            self._open.clear()


class AnchorCell:
    """The place of one session's anchor."""

    def __init__(self, tables: AnchorTables, table: str, offset: int) -> None:
        self._tables, self.table, self._offset = tables, table, offset
        # The cell's bytes at the last read, and their meaning: equal bytes need no second
        # verification.
        self._seen: tuple[bytes, CellReading] = (b"", NOTHING_SEEN)
        # True while a slot that was written here is not synced. A claim needs no sync.
        self._is_dirty = False

    def read_slots(self, keys: Keyring) -> CellReading:
        """Read the cell now. Without the write lock, the read may meet a writer in the middle."""
        return self.reading_of(self.read_raw(), keys)

    def reading_of(self, raw: bytes, keys: Keyring) -> CellReading:
        """Return the meaning of bytes that were just read here."""
        seen, reading = self._seen
        if raw != seen or reading.slots is not Slots.SETTLED:
            reading = read_cell(raw, keys)
            self._seen = (raw, reading)
        return reading

    def read_slots_twice(self, keys: Keyring) -> CellReading:
        """
        Read without the lock, several times if needed, so that a slot that is being written is not
        taken for a torn one.
        """
        reading = self.read_slots(keys)
        for _ in range(_LOOKS):
            if reading.slots is Slots.SETTLED:
                break
            reading = self.read_slots(keys)
        return reading

    def was_settled(self, raw: bytes) -> bool:
        """Return True if these are the bytes of the last read and both slots verified together."""
        seen, reading = self._seen
        return raw == seen and reading.slots is Slots.SETTLED

    def read(self, keys: Keyring) -> Anchor | None:
        """
        Return the head if both slots verify together. Return None if the caller must read again
        under the write lock.
        """
        reading = self.reading_of(self.read_raw(), keys)
        return reading.anchor if reading.slots is Slots.SETTLED else None

    def read_raw(self) -> bytes:
        try:
            fd = self._tables.table(self.table)
        except FileNotFoundError:
            return b""
        return os.pread(fd, ANCHOR_BYTES, self._offset)

    def read_looked_at(self) -> bytes:
        """Read the bytes from a table that was checked a moment ago, with the same lock held."""
        try:
            fd = self._tables.looked_at(self.table)
        except FileNotFoundError:
            return b""
        return os.pread(fd, ANCHOR_BYTES, self._offset)

    def read_table(self) -> bytes:
        """Return the whole table of this cell."""
        try:
            return read_at(self._tables.table(self.table), 0, SESSIONS_PER_TABLE * ANCHOR_BYTES)
        except FileNotFoundError:
            return b""

    def write(self, anchor: Anchor, keys: Keyring) -> None:
        """
        Write one slot, after the records' sync and before the acknowledgement. The slot itself is
        synced later.
        """
        slot, start = encode_slot(anchor, keys), slot_offset(anchor.counter)
        self._is_dirty = True
        self._write(slot, start)
        seen, reading = self._seen
        before = reading.settled
        is_next = before is not None and before.counter + 1 == anchor.counter
        if len(seen) == ANCHOR_BYTES and is_next:
            self._seen = (
                seen[:start] + slot + seen[start + len(slot) :],
                CellReading(Slots.SETTLED, anchor),
            )

    def claim(self, epoch: int, generation: int, keys: Keyring) -> None:
        """
        Write the newest driver's epoch. No slot moves, and it is not synced: a claim does not
        outlive the machine.
        """
        self._write(encode_claim(epoch, generation, keys), claim_offset(epoch))

    def _write(self, data: bytes, start: int) -> None:
        write_all(self._tables.looked_at(self.table), data, self._offset + start)

    def create(self, anchor: Anchor, keys: Keyring) -> None:
        """Write the whole cell durably. Bytes that a failed creation left here are overwritten."""
        fd = self._tables.table(self.table, create=True)
        write_all(fd, encode_created(anchor, keys), self._offset)
        os.fsync(fd)

    def sync(self) -> None:
        # A slot that another thread writes during the sync may not be part of it.
        self._is_dirty = False
        try:
            os.fdatasync(self._tables.table(self.table))
        except BaseException:
            self._is_dirty = True
            raise

    def sync_if_dirty(self) -> None:
        """Sync the slots that were written here, if any were since the last sync."""
        if self._is_dirty:
            self.sync()
