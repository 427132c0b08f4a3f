"""
The data that outlives a process, in memory: the key, every instance's records with their macs, seal
marks, quarantine, outputs.

Several `InMemoryStore`s on one disk are several processes on one home. A record is three byte
strings, as in a file, so tampering changes bytes and is found in the same way: by the keyed chain,
never by comparing with a second copy. `flip`, `cut`, `forge` and `put_back` simulate programs
without the key; nothing else bypasses the chain.
"""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor_cases import Slots
from holdfast.ports.journal_store import Draft, Head, Record, SealMark

if TYPE_CHECKING:
    from holdfast.adapters.inmemory.commit import Pending
    from holdfast.adapters.inmemory.journal import InMemoryClaim
    from holdfast.adapters.listener import Listener

HOME = SessionId("home")
MAC_BYTES = 32
NOTHING = Head(0, b"")


class Crashed(BaseException):
    """
    The simulated process is gone. It is not an Exception, because nothing may handle it and
    continue, just as no process survives kill -9.
    """


class Fault(Enum):
    """The fault of the next commit."""

    BUSY = "busy"
    NOT_SAVED = "not_saved"
    IN_DOUBT_WRITTEN = "in_doubt_written"
    IN_DOUBT_NOT_WRITTEN = "in_doubt_not_written"
    IN_DOUBT_PARTLY = (
        "in_doubt_partly"  # the first half of the records, whole, as a cut tail leaves them
    )
    CRASH_WRITTEN = "crash_written"
    CRASH_NOT_WRITTEN = "crash_not_written"
    CRASH_PARTLY = "crash_partly"


AT_LOCK = frozenset({Fault.BUSY})
AT_WRITE = frozenset(Fault) - AT_LOCK


@dataclass
class Entry:
    """A record as stored. Mutable, because disks are."""

    header: bytes
    body: bytes
    mac: bytes


class _Header(msgspec.Struct, frozen=True, array_like=True):
    seq: int
    at: int
    epoch: int
    writer: str
    type: str
    version: int
    more: bool = False


class Slot(NamedTuple):
    """Half of an anchor: see `journal/anchor.py`."""

    counter: int
    head: Head


@dataclass
class StoredInstance:
    """
    One instance of a session. Everything here is durable except `lock`, `driver` and `waiting`,
    which end with processes.
    """

    session: SessionId
    instance: InstanceId
    key: bytes
    entries: list[Entry] = field(default_factory=list)
    # The head as of the last acknowledged commit, twice: the newer slot is one batch ahead. It may
    # lag behind `entries` and never leads.
    slots: list[Slot | None] = field(default_factory=lambda: [None, None])
    # The highest epoch ever handed out. Rises with every claim.
    epoch: int = 0
    seal: SealMark | None = None
    deleted: bool = False
    # A later instance of the session replaced this one.
    followed: bool = False
    quarantine: list[tuple[str, bytes]] = field(default_factory=list)
    outputs: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    # The claim of the current driver.
    driver: "InMemoryClaim | None" = None
    # Appends that wait together. The one that gets the lock commits all of them.
    waiting: "deque[Pending]" = field(default_factory=deque)
    # Verified records, by the mac before them and their exact bytes, so that no mac is computed
    # twice.
    _verified: dict[tuple[bytes, bytes, bytes, bytes], Record] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def is_over(self) -> bool:
        return self.deleted or self.followed

    @cached_property
    def genesis(self) -> Head:
        return Head(0, blake3(b"genesis", key=self.key).digest())

    @property
    def last_at(self) -> int:
        """The time of the last record, for writers; nobody believes it unverified."""
        if not self.entries:
            return 0
        return msgspec.json.decode(self.entries[-1].header, type=_Header).at

    # --- The anchor: the rules of `journal/anchor_cases.py`, without bytes

    @property
    def anchor(self) -> Head:
        """The newest slot that can be read in its own place."""
        newest = self._newest()
        return newest.head if newest is not None else NOTHING

    def create_anchor(self, head: Head) -> None:
        self.slots = [Slot(0, head), Slot(1, head)]

    def move_anchor(self, *ends: Head) -> None:
        """
        Move over durable batches that end there. The last two are enough for the slots to be one
        batch apart.
        """
        for head in ends[-2:]:
            newest = self._newest()
            counter = newest.counter + 1 if newest is not None else 0
            self.slots[counter % 2] = Slot(counter, head)

    def wipe_slot(self, counter: int) -> None:
        self.slots[counter % 2] = None

    def read_slots(self) -> Slots:
        found = [slot.counter for slot in self._readable()]
        if len(found) == len(self.slots):
            return Slots.SETTLED if abs(found[0] - found[1]) == 1 else Slots.APART
        return Slots.ONE if found else Slots.NONE

    def _readable(self) -> list[Slot]:
        return [
            slot
            for place, slot in enumerate(self.slots)
            if slot is not None and slot.counter % 2 == place
        ]

    def _newest(self) -> Slot | None:
        return max(self._readable(), key=lambda slot: slot.counter, default=None)

    def seal_entry(
        self, before: Head, draft: Draft, *, at: int, epoch: int, writer: str, more: bool = False
    ) -> tuple[Entry, Record]:
        """
        Return the entry and the record of a draft after `before`. With `more`, its batch continues.
        """
        header = _Header(before.seq + 1, at, epoch, writer, draft.type, draft.version, more)
        entry = Entry(msgspec.json.encode(header), draft.body, b"")
        entry.mac = self.mac_after(before.mac, entry)
        return entry, _record(header, entry)

    def mac_after(self, before: bytes, entry: Entry) -> bytes:
        hasher = blake3(before, key=self.key)
        hasher.update(blake3(entry.header).digest())
        hasher.update(blake3(entry.body).digest())
        return hasher.digest()

    def stored_lines(self) -> Iterator[bytes]:
        """Yield the lines of a file: one JSON object per line."""
        for entry in self.entries:
            header = msgspec.json.decode(entry.header, type=_Header)
            line = {name: getattr(header, name) for name in header.__struct_fields__}
            if not header.more:
                del line["more"]
            line |= {"body": msgspec.Raw(entry.body), "mac": entry.mac.hex()}
            yield msgspec.json.encode(line) + b"\n"

    def genuine(self) -> Iterator[Record]:
        """
        Yield entries that verify after the mac of the one before, even if that one does not verify.
        """
        for before, entry in pairwise(self.entries):
            if self.mac_after(before.mac, entry) == entry.mac:
                yield _record(msgspec.json.decode(entry.header, type=_Header), entry)

    def read(self, before: Head) -> Record | None:
        """Return the record after `before`, or None if it does not verify."""
        entry = self.entries[before.seq]
        asked = (before.mac, entry.header, entry.body, entry.mac)
        known = self._verified.get(asked)
        if known is None:
            if self.mac_after(before.mac, entry) != entry.mac:
                return None
            known = self._verified[asked] = _record(
                msgspec.json.decode(entry.header, type=_Header), entry
            )
        return known


def _record(header: _Header, entry: Entry) -> Record:
    return Record(
        seq=header.seq,
        at=header.at,
        epoch=header.epoch,
        writer=header.writer,
        type=header.type,
        version=header.version,
        body=entry.body,
        mac=entry.mac,
        more=header.more,
    )


Copy = tuple[tuple[bytes, bytes, bytes], ...]


class InMemoryDisk:
    """A home's bytes, and the faults of its next commits."""

    def __init__(self, *, seed: bytes = b"") -> None:
        self._key = blake3(b"in-memory home" + seed).digest()
        self.home = self.create(HOME, InstanceId("home"))
        self.instances: dict[tuple[SessionId, InstanceId], StoredInstance] = {}
        self._faults: dict[SessionId | None, deque[Fault]] = {}
        self.notices_to_lose = 0
        self.listeners: list[Listener] = []
        self.memory: dict[str, tuple[bytes, bytes]] = {}
        """The memories, oldest first: body and mac by id."""
        self.commits = 0
        """Writes made durable so far, each of any number of records: what group commit saves."""

    def create(self, session: SessionId, instance: InstanceId) -> StoredInstance:
        """
        Create an instance with a key of its own, so that rows of another instance never verify in
        it.
        """
        material = b"\0".join((b"stored", session.encode(), instance.encode()))
        stored = StoredInstance(
            session=session, instance=instance, key=blake3(material, key=self._key).digest()
        )
        stored.create_anchor(stored.genesis)
        return stored

    # Faults happen in the order given. A fault without a session hits the next commit of any
    # session, but not the home's.

    def fail_next(self, *faults: Fault, session: SessionId | None = None) -> None:
        self._faults.setdefault(session, deque()).extend(faults)

    def forgive(self) -> None:
        """Drop all faults that have not happened yet."""
        self._faults.clear()
        self.notices_to_lose = 0

    def take_fault(self, session: SessionId, among: frozenset[Fault]) -> Fault | None:
        """Return the next fault for this commit, if it can happen at this point of it."""
        for whose in (session,) if session == HOME else (session, None):
            queue = self._faults.get(whose)
            if queue and queue[0] in among:
                return queue.popleft()
        return None

    # Changes by other programs, without the lock and the key.

    def living(self, session: SessionId) -> StoredInstance:
        """Return the latest instance of that name that was not deleted."""
        if session == HOME:
            return self.home
        instances = [
            stored
            for (name, _), stored in self.instances.items()
            if name == session and not stored.deleted
        ]
        return instances[-1]

    def rob(self, session: SessionId) -> None:
        """
        Take the claim from the driver without notice, as if somebody removed the locked folder or a
        lease expired.
        """
        self.living(session).driver = None

    def flip(self, session: SessionId, seq: int) -> None:
        """Change one byte of a stored body; its length stays."""
        entry = self.living(session).entries[seq - 1]
        entry.body = entry.body[:-1] + bytes([entry.body[-1] ^ 1])

    def cut(self, session: SessionId, *, after: int) -> None:
        del self.living(session).entries[after:]

    def wipe_newer_slot(self, session: SessionId) -> None:
        """Zero the newer half of the session's anchor."""
        stored = self.living(session)
        stored.wipe_slot(max(slot.counter for slot in stored.slots if slot is not None))

    def copy_older_slot(self, session: SessionId) -> None:
        """Copy the older half of the session's anchor over the newer."""
        stored = self.living(session)
        older = min(
            (slot for slot in stored.slots if slot is not None), key=lambda slot: slot.counter
        )
        stored.slots = [older, older]

    def forge(self, session: SessionId, draft: Draft) -> None:
        """Append a row of perfect shape, with a mac made without the key."""
        stored = self.living(session)
        header = _Header(len(stored.entries) + 1, 0, 0, "outside", draft.type, draft.version)
        stored.entries.append(Entry(msgspec.json.encode(header), draft.body, bytes(MAC_BYTES)))

    def copy(self, session: SessionId) -> Copy:
        return tuple(
            (entry.header, entry.body, entry.mac) for entry in self.living(session).entries
        )

    def put_back(self, session: SessionId, copy: Copy) -> None:
        self.living(session).entries[:] = [Entry(*parts) for parts in copy]
