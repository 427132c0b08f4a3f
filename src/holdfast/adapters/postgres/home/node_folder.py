"""
The node's folder beside a home in PostgreSQL: keys, anchors, and what the node knows of the server.

An anchor is a copy of a journal's head. It moves after each acknowledgement and at each open. The
server's record at the anchor must be the one that it names, or history went back. The cells are
those of a home of files (journal/anchor.py). Processes of one node share them, so a lock is held
while one is moved.
"""

import contextlib
import fcntl
import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from blake3 import blake3

from holdfast.adapters.files.home.anchor_tables import ANCHORS, AnchorCell, AnchorTables
from holdfast.adapters.files.home.keys import Keys, load_keys
from holdfast.adapters.files.paths import create_whole, read_file
from holdfast.adapters.postgres.home.anchored_slots import AnchoredSlots
from holdfast.adapters.postgres.home.nodes import Era
from holdfast.adapters.postgres.server_facts import ServerFacts
from holdfast.adapters.postgres.session.tail import Tail
from holdfast.errors import Unusable
from holdfast.journal.anchor import NOTHING_SEEN, Anchor, CellReading
from holdfast.journal.chain import key_id, subkey

_LOCK = "anchors.lock"
_KEY_LOCK = "keys.lock"
_CELLS_MAX = 4096  # half a KiB each
_KNOWN = "server.json"
_KNOWN_BYTES_MAX = 4096


class NodeKeys(dict[int, bytes]):
    """
    The trusted keys of the node's folder, by generation: the first, and those that the home's
    journal names by their id.
    """

    def __init__(self, home: int, found: Keys) -> None:
        super().__init__({1: found.by_generation[1]} if 1 in found.by_generation else {})
        self._home, self.trouble = home, found.trouble

    def trust(self, generation: int, named: str) -> None:
        key = load_keys(self._home).by_generation.get(generation)
        if key is not None and key_id(key) == named:
            self[generation] = key


class KnownServer(msgspec.Struct, frozen=True):
    """The server that this node wrote to last, under the node's key."""

    node: str
    system: str
    timeline: str
    lsn: int
    era: str
    era_number: int
    mac: str = ""

    def sealed(self, key: bytes) -> "KnownServer":
        return msgspec.structs.replace(self, mac=self._mac(key))

    def verifies(self, key: bytes) -> bool:
        return self.mac == self._mac(key)

    def _mac(self, key: bytes) -> str:
        facts = (self.node, self.system, self.timeline, self.lsn, self.era, self.era_number)
        said = msgspec.json.encode(facts)
        return blake3(said, key=subkey(key, "known server", "", "")).hexdigest()

    @property
    def history(self) -> str:
        return f"{self.system}/{self.timeline}"


@contextlib.contextmanager
def _flock(folder: int, name: str) -> Iterator[None]:
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def key_lock(folder: int) -> contextlib.AbstractContextManager[None]:
    """Held while a key is made: two of one generation would replace each other."""
    return _flock(folder, _KEY_LOCK)


class NodeAnchors:
    """The anchors of a node. A backup has cells alone, and no list of them."""

    def __init__(self, home: int, listed: AnchoredSlots | None) -> None:
        self._tables, self._listed = AnchorTables(home), listed
        self._home, self._lock = home, -1  # opened when an anchor is first looked at
        # Threads of this process: a flock of one descriptor does not keep them apart.
        self._guard = threading.Lock()
        # By slot, so that equal bytes are not verified again; bounded by forgetting all.
        self._cells: dict[int, AnchorCell] = {}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._guard:
            if self._lock < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._lock = os.open(_LOCK, flags, 0o600, dir_fd=self._home)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _cell(self, tail: Tail) -> AnchorCell:
        cell = self._cells.get(tail.slot)
        if cell is None:
            if len(self._cells) >= _CELLS_MAX:
                self._cells.clear()
            cell = self._tables.home_cell() if tail.slot < 0 else self._tables.cell(tail.slot)
            self._cells[tail.slot] = cell
        return cell

    def read_slots(self, tail: Tail) -> CellReading | None:
        """
        Read the journal's cell. None: this node never saw the journal. A cell that was wiped reads
        as one that does not verify.
        """
        with self._locked():
            cell = self._cell(tail)
            raw = cell.read_raw()
            if raw.strip(b"\0"):
                return cell.reading_of(raw, tail.keys)
            is_wiped = self._listed is not None and self._listed.has(tail.slot)
            return NOTHING_SEEN if is_wiped else None

    def move(self, tails: Sequence[Tail]) -> None:
        """Move the anchors to the tails' heads, which are durable. An anchor never moves back."""
        with self._locked():
            looked_at: set[str] = set()
            for tail in tails:
                cell = self._cell(tail)
                raw = cell.read_looked_at() if cell.table in looked_at else cell.read_raw()
                looked_at.add(cell.table)
                self._move(tail, cell, raw)
            if self._listed is not None:
                self._listed.add(tail.slot for tail in tails)

    def _move(self, tail: Tail, cell: AnchorCell, raw: bytes) -> None:
        fence = tail.position.fence
        reading = cell.reading_of(raw, tail.keys) if raw.strip(b"\0") else None
        if reading is not None and reading.settled is not None and reading.settled.seq >= fence.seq:
            return
        known = reading.anchor if reading is not None else None
        anchor = Anchor(
            fence.generation,
            known.counter + 1 if known is not None else 0,
            fence.number,
            fence.offset,
            fence.seq,
            fence.at,
            fence.epoch,
            fence.mac,
        )
        if known is None:
            cell.create(anchor, tail.keys)
        else:
            cell.write(anchor, tail.keys)

    def sync(self, tail: Tail) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._cell(tail).sync()

    def close(self) -> None:
        self._tables.close()
        if self._lock >= 0:
            os.close(self._lock)


def read_known(home: int, key: bytes) -> KnownServer | None:
    """Return what this node knows of its server. An unverified entry counts as unknown."""
    try:
        known = msgspec.json.decode(
            read_file(home, _KNOWN, bytes_max=_KNOWN_BYTES_MAX), type=KnownServer
        )
    except (FileNotFoundError, ValueError):
        return None
    return known if known.verifies(key) else None


def write_known(home: int, key: bytes, node: str, facts: ServerFacts, era: Era) -> KnownServer:
    known = KnownServer(node, facts.system, facts.timeline, facts.lsn, era.id, era.number).sealed(
        key
    )
    create_whole(
        home, _KNOWN, msgspec.json.encode(known), temporary=f".{_KNOWN}.{uuid.uuid4().hex}.tmp"
    )
    return known


def remember(home: int, key: bytes, node: str, facts: ServerFacts, era: Era) -> None:
    """Keep what this node saw. A position that another process of it saw later stays."""
    with _flock(home, _LOCK):
        known = read_known(home, key)
        if known is None or known.era != era.id or known.lsn < facts.lsn:
            write_known(home, key, node, facts, era)


def is_node(home: int, key: bytes, facts: ServerFacts, era: Era) -> bool:
    """
    Check that the folder is a node of the home. There are three cases:

    1. It is one: what it knows of the server and the list of its anchors are whole.
    2. It has never been one: neither is there, and no anchor. It becomes a new node.
    3. A part of them is missing or does not verify. Only a person may make it a new node.
    """
    with _flock(home, _LOCK):
        if read_known(home, key) is not None and AnchoredSlots(home, {1: key}).is_whole():
            return True
        if _exists(home, _KNOWN) or _exists(home, ANCHORS):
            return False
        make_node(home, key, facts, era)
        return True


def has_known(folder: Path) -> bool:
    """Whether the folder is a node, or was one."""
    return (folder / _KNOWN).exists()


def _exists(home: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=home, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def make_node(home: int, key: bytes, facts: ServerFacts, era: Era) -> None:
    """
    Make a folder with the home's keys a new node, which has seen no journal yet. It believes the
    database, as a node does whose whole folder was rolled back.
    """
    AnchoredSlots(home, {1: key}).create()
    write_known(home, key, str(uuid.uuid4()), facts, era)


def damaged_node(path: Path) -> Unusable:
    return Unusable(
        f"the anchors in {path}, the list of them or server.json were removed or changed",
        code="storage",
        hint="put server.json and anchors/ back, or run `holdfast verify` on another node; then"
        " `holdfast storage init` makes this folder a new node, which believes the database",
    )


def open_node_folder(path: Path) -> int:
    from holdfast.adapters.files.home.create import open_home_folder

    fd = open_home_folder(path, create=True)
    if fd is None:
        raise FileNotFoundError(path)
    return fd
