"""
Back up a home in PostgreSQL as a home of files: the stored lines are the same bytes.

The copy is consistent by its order, without stopping any writer: the home's journal before the
sessions, each of them up to one head, an anchor for exactly what was copied, and the keys last. It
appears whole or not at all. Blocks.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.adapters.files.home.anchor_tables import ANCHORS
from holdfast.adapters.files.home.backup import (
    SETTINGS,
    Manifest,
    SessionGone,
    copied_whole,
    copy_tree,
    refuse_taken,
)
from holdfast.adapters.files.home.keys import KEYS
from holdfast.adapters.files.home.layout import (
    HOME_INSTANCE,
    HOME_PARTS,
    HOME_SESSION,
    MANIFEST,
    session_parts,
)
from holdfast.adapters.files.paths import FILE_MODE, FOLDER_MODE, sync_folder, write_and_close
from holdfast.adapters.files.session.outputs import OUTPUTS
from holdfast.adapters.files.session.quarantine import Quarantine
from holdfast.adapters.postgres.home.node_folder import NodeAnchors
from holdfast.adapters.postgres.lists.memory import PostgresMemory
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.adapters.postgres.session.reader import open_session
from holdfast.adapters.postgres.session.tail import Tail
from holdfast.adapters.sqlite.memory import NAME as MEMORY
from holdfast.adapters.sqlite.memory import SqliteMemory
from holdfast.errors import BrokenChain, Busy, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring
from holdfast.journal.segment import segment_name
from holdfast.ports.memory import CannotRecall
from holdfast.session.home.events import SessionCreated

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

_PAGE_ROWS = 256
_OF_DATABASE = re.compile(r"\s*(url|schema|listen_url|allow_plaintext)\s*=")


def copy_to_files(store: "PostgresStore", target: Path) -> tuple[SessionId, ...]:
    """Copy the home to `target`, which must be absent or empty. Return its sessions."""
    refuse_taken(target)
    with contextlib.closing(store.connect()) as wire:
        try:
            return copied_whole(target, lambda temporary: _copy(store, wire, temporary))
        except (Lost, CannotRecall) as exc:
            raise Busy(f"the copy was not finished: {exc}", hint="run it again") from exc


def _copy(store: "PostgresStore", wire: Wire, temporary: Path) -> tuple[SessionId, ...]:
    (temporary / ANCHORS).mkdir(mode=FOLDER_MODE, parents=True)
    temporary.chmod(FOLDER_MODE)
    fd = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    anchors = NodeAnchors(fd, None)
    try:
        living = list(store.refresh(wire).sessions.values())
        home = store.registry.tail
        keys = Keyring(store.keys, HOME_SESSION, HOME_INSTANCE)
        tail = Tail(home.journal, HOME_SESSION, HOME_INSTANCE, keys, -1)
        tail.adopt(home.position.copy(), ())
        folder = temporary.joinpath(*HOME_PARTS)
        _copy_journal(wire, folder, tail.journal, HOME_INSTANCE, upto=tail.head.seq)
        anchors.move([tail])
        for created in living:
            _copy_session(store, wire, temporary, fd, created, anchors)
    finally:
        anchors.close()
        os.close(fd)
    sync_folder(temporary / ANCHORS)
    _copy_memory(store, temporary)
    _copy_settings(store.path / SETTINGS, temporary / SETTINGS)
    copy_tree(store.path / KEYS, temporary / KEYS)
    names = tuple(created.session for created in living)
    manifest = Manifest(made_at=store.now_ms(), sessions=names)
    _write(temporary / MANIFEST, msgspec.json.encode(manifest))
    sync_folder(temporary)
    return names


def _copy_session(
    store: "PostgresStore",
    wire: Wire,
    temporary: Path,
    fd: int,
    created: SessionCreated,
    anchors: NodeAnchors,
) -> None:
    session = created.session
    try:
        handle = open_session(store, wire, session)
    except Refused as exc:
        raise SessionGone from exc
    if handle.instance != created.instance:
        raise SessionGone
    # A sealed session is copied with all its rows: the mark is in the home's journal.
    upto = handle.tail.head.seq if handle.sealed is None else None
    tail = Tail(handle.tail.journal, session, created.instance, handle.tail.keys, created.slot)
    tail.adopt(handle.tail.position.copy(), ())
    if upto is not None:
        upto = tail.head.seq
    folder = temporary.joinpath(*session_parts(session))
    journals = wire.rows(
        "select journal, instance from hf.head where session = %s order by journal", (session,)
    )
    for journal, instance in journals:
        is_living = instance == created.instance
        _copy_journal(wire, folder, journal, InstanceId(instance), upto=upto if is_living else None)
        _copy_outputs(wire, folder / OUTPUTS, journal)
    if not journals:
        raise SessionGone
    kept = Quarantine(fd, session)
    for where in store.beside.quarantined(wire, session):
        with contextlib.suppress(BrokenChain):  # never kept by us: nothing in it is believed
            kept.keep(*store.beside.read_quarantined(wire, session, where))
    anchors.move([tail])


def _copy_journal(
    wire: Wire, folder: Path, journal: int, instance: InstanceId, *, upto: int | None
) -> None:
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    starts = {
        first: number
        for number, first in wire.rows(
            "select number, first_seq from hf.segment where journal = %s", (journal,)
        )
    }
    number, lines = 1, b""
    for seq, line in _rows(wire, journal, upto):
        if seq in starts and lines:
            _write(folder / segment_name(instance, number), lines)
            lines = b""
        number = starts.get(seq, number)
        lines += line
    if lines:
        _write(folder / segment_name(instance, number), lines)
    sync_folder(folder)


def _rows(wire: Wire, journal: int, upto: int | None) -> Iterator[tuple[int, bytes]]:
    last = 0
    while rows := wire.rows(
        "select seq, line from hf.record where journal = %s and seq > %s "
        "and seq <= coalesce(%s, seq) order by seq limit %s",
        (journal, last, upto, _PAGE_ROWS),
    ):
        yield from ((seq, line) for seq, line in rows)
        last = rows[-1][0]


def _copy_outputs(wire: Wire, folder: Path, journal: int) -> None:
    digests = wire.rows("select digest from hf.output where journal = %s", (journal,))
    for (digest,) in digests:
        (row,) = wire.rows(
            "select data from hf.output where journal = %s and digest = %s", (journal, digest)
        )
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        if re.fullmatch(r"[0-9a-f]{64}", digest) and not (folder / digest).exists():
            _write(folder / digest, row[0])
    if digests:
        sync_folder(folder)


def _copy_memory(store: "PostgresStore", temporary: Path) -> None:
    items = [row.item for row in PostgresMemory(store).rows() if row.item is not None]
    if not items:
        return
    copied = SqliteMemory(temporary / MEMORY, store.memory_key)
    try:
        for item in items:
            copied.add(item)
    finally:
        copied.close()


def _copy_settings(source: Path, target: Path) -> None:
    """Copy the settings without the way to the database: the copy is a home of files."""
    with contextlib.suppress(FileNotFoundError):
        lines, section = [], ""
        for line in source.read_text(encoding="utf-8").splitlines():
            section = line.strip() if line.lstrip().startswith("[") else section
            of_database = section.startswith("[storage]") and _OF_DATABASE.match(line)
            lines.append(f"# {line}" if of_database else line)
        _write(target, "\n".join([*lines, ""]).encode())


def _write(path: Path, data: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    write_and_close(os.open(path, flags, FILE_MODE), data)
