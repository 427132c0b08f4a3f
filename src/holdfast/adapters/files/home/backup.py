"""
Copy a whole home while others write to it.

The copy is consistent by its order, without stopping any writer: the home's anchor before its
journal, its journal before the sessions' anchors, those before the sessions' segments, and all of
them before the keys. So no anchor in the copy is ahead of its journal, and no journal names a key
that is missing in the copy. Closed segments never change; the last one is copied with the session's
write lock held. A backup appears whole or not at all. Caches, locks and the reserve are not copied.
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from holdfast.adapters.files.home.anchor_tables import ANCHORS, HOME_TABLE
from holdfast.adapters.files.home.create import check_above
from holdfast.adapters.files.home.keys import KEYS
from holdfast.adapters.files.home.layout import HOME_PARTS, MANIFEST, SESSIONS
from holdfast.adapters.files.paths import (
    FILE_MODE,
    FOLDER_MODE,
    read_at,
    refused,
    sync_folder,
    write_and_close,
)
from holdfast.adapters.files.session.outputs import OUTPUTS
from holdfast.adapters.files.session.quarantine import QUARANTINE
from holdfast.adapters.files.store import FileStore
from holdfast.adapters.sqlite.memory import NAME as MEMORY
from holdfast.adapters.sqlite.memory import copy_memory
from holdfast.errors import Busy, Refused, Unusable
from holdfast.ids import SessionId
from holdfast.journal.anchor import ANCHOR_BYTES
from holdfast.journal.segment import parse_segment_name
from holdfast.limits import MIB
from holdfast.session.home.events import SessionCreated

T = TypeVar("T")

SETTINGS = "holdfast.toml"
_FORMAT = 1
_FILE_BYTES_MAX = (
    1024 * MIB
    # Outputs, segments and quarantine files are far smaller. The bound keeps a sparse file from
    # filling the disk.
)
_TRIES = 3  # a session that is deleted while it is copied makes the copy start again


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """For people, and to tell a backup from any other folder. Nothing in it is trusted."""

    format: int = _FORMAT
    made_at: int = 0
    sessions: tuple[str, ...] = ()


class SessionGone(Exception):
    """A session was deleted during its copy."""


def copy_home(store: FileStore, target: Path, *, now_ms: int) -> Manifest:
    """Copy the home to `target`, which must be absent or empty. Blocks."""
    refuse_taken(target)
    check_above(target.resolve())
    return copied_whole(target, lambda temporary: _copy(store, temporary, now_ms))


def copied_whole(target: Path, copy: Callable[[Path], T]) -> T:
    """
    Copy a home into a temporary folder, and move that to `target`. Start again if the copy raises
    SessionGone.
    """
    for _ in range(_TRIES):
        temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
        try:
            copied = copy(temporary)
            place(temporary, target)
        except SessionGone:
            continue
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return copied
    raise Busy("sessions are being deleted faster than they can be copied", hint="try again")


def refuse_taken(target: Path) -> None:
    try:
        taken = any(target.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError:
        taken = True
    if taken:
        raise Refused(
            f"{target} is there already; nothing is written over",
            code="exists",
            hint="name a folder that is not there, or is empty",
        )


def read_manifest(source: Path) -> Manifest:
    try:
        with _opened(source / MANIFEST) as file:
            manifest = msgspec.json.decode(file.read(), type=Manifest)
    except (OSError, ValueError, RecursionError) as exc:
        why = f"{MANIFEST}: {exc.strerror}" if isinstance(exc, OSError) else str(exc)
        raise Unusable(
            f"{source} is not a backup ({why})",
            code="no_backup",
            hint="name a folder that `holdfast backup` made",
        ) from exc
    if manifest.format > _FORMAT:
        raise Unusable(
            f"{source} was made by a newer Holdfast", code="newer_version", hint="upgrade Holdfast"
        )
    return manifest


def copy_backup(source: Path, target: Path, *, settings: bytes | None) -> None:
    """
    Make a home's files of a backup's, and of nothing else in its folder. Their MACs protect the
    other files. Nothing protects settings but their owner and mode, so the caller hands in bytes
    that passed that check.
    """
    target.mkdir(mode=FOLDER_MODE)
    for name in (ANCHORS, HOME_PARTS[0], SESSIONS, KEYS, QUARANTINE):
        _refuse_link(source / name)
        if (source / name).exists():
            copy_tree(source / name, target / name)
    with contextlib.suppress(FileNotFoundError):
        _copy_file(source / MEMORY, target / MEMORY)
    if settings is not None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        write_and_close(os.open(target / SETTINGS, flags, FILE_MODE), settings)
    sync_folder(target)


def copy_tree(source: Path, target: Path) -> None:
    """
    Copy a backup's files as a home's: folders 0700, files 0600, even if the backup's modes have
    changed since.
    """
    for folder, names, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(mode=FOLDER_MODE)
        for name in [*names, *files]:
            _refuse_link(Path(folder) / name)
        for name in files:
            _copy_file(Path(folder) / name, here / name)
        sync_folder(here)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise Refused(
            f"{path} is a symlink; a backup has none",
            code="unsafe_path",
            hint="look who put it there",
        )


def place(temporary: Path, target: Path) -> None:
    """Move a finished home to its place: it appears whole."""
    refuse_taken(target)
    os.rename(temporary, target)  # noqa: PTH104  # replaces an empty folder, refuses any other
    sync_folder(target.parent)


def _copy(store: FileStore, temporary: Path, now_ms: int) -> Manifest:
    home = store.path
    temporary.mkdir(mode=FOLDER_MODE, parents=True)
    with contextlib.suppress(FileNotFoundError):
        _copy_file(home / SETTINGS, temporary / SETTINGS)
    (temporary / ANCHORS).mkdir(mode=FOLDER_MODE)
    _copy_table(home / ANCHORS / HOME_TABLE, temporary / ANCHORS / HOME_TABLE)
    living = store.copy_home_journal(
        lambda: _copy_folder(home.joinpath(*HOME_PARTS), temporary.joinpath(*HOME_PARTS))
    )
    for table in sorted((home / ANCHORS).iterdir()):
        if table.name != HOME_TABLE and not table.name.startswith("."):
            _copy_table(table, temporary / ANCHORS / table.name)
    sync_folder(temporary / ANCHORS)
    for created in living:
        _copy_session(store, created, home, temporary)
    copy_memory(home / MEMORY, temporary / MEMORY)
    if (home / QUARANTINE).exists():
        copy_tree(home / QUARANTINE, temporary / QUARANTINE)
    # After all data sealed with them: a key is never removed, and the copy needs the key of a
    # rotation that happened meanwhile.
    _copy_folder(home / KEYS, temporary / KEYS)
    manifest = Manifest(made_at=now_ms, sessions=tuple(created.session for created in living))
    (temporary / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    sync_folder(temporary)
    return manifest


def _copy_session(store: FileStore, created: SessionCreated, home: Path, temporary: Path) -> None:
    parts = (SESSIONS, *created.session.split("/"))
    source, target = home.joinpath(*parts), temporary.joinpath(*parts)
    if source.exists():
        _copy_instances(store, created.session, source, target)
    # Checked after the copy, because a deletion is recorded before its files go. A folder that is
    # missing without a deletion is missing in the copy too; the rest is worth keeping.
    if not store.keeps(created):
        raise SessionGone


def _copy_instances(store: FileStore, session: SessionId, source: Path, target: Path) -> None:
    target.mkdir(mode=FOLDER_MODE, parents=True)
    try:
        for name in _segments(source)[:-1]:
            _copy_file(source / name, target / name)
        with store.write_lock(session):
            for name in _segments(source):
                if (
                    not (target / name).exists()
                    or (target / name).stat().st_size != (source / name).stat().st_size
                ):
                    (target / name).unlink(missing_ok=True)
                    _copy_file(source / name, target / name)
        if (source / OUTPUTS).exists():
            _copy_folder(source / OUTPUTS, target / OUTPUTS)
    except FileNotFoundError:
        raise SessionGone from None
    except Refused as exc:
        if exc.code != "unknown":
            raise
        raise SessionGone from None
    sync_folder(target)


def _segments(folder: Path) -> list[str]:
    """Return the segments of every instance, oldest first within each."""
    return sorted(
        path.name for path in folder.iterdir() if parse_segment_name(path.name) is not None
    )


def _copy_folder(source: Path, target: Path) -> None:
    target.mkdir(mode=FOLDER_MODE)
    for path in _plain_files(source):
        _copy_file(path, target / path.name)
    sync_folder(target)


def _plain_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and stat.S_ISREG(path.lstat().st_mode):
            yield path


def _copy_table(source: Path, target: Path) -> None:
    """
    Copy each cell as it was at one moment. Halves of two moments would not belong together, and the
    copy would count as cut short.
    """
    with _opened(source) as table:
        fd = table.fileno()
        size = os.fstat(fd).st_size
        once, twice = read_at(fd, 0, size), read_at(fd, 0, size)
        starts = range(0, min(len(once), len(twice)), ANCHOR_BYTES)
        cells = b"".join(
            twice[at : at + ANCHOR_BYTES]
            if once[at : at + ANCHOR_BYTES] == twice[at : at + ANCHOR_BYTES]
            else _cell_at_rest(fd, at)
            for at in starts
        )
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    write_and_close(fd, cells)


def _cell_at_rest(fd: int, at: int) -> bytes:
    """
    Read until two reads are equal: the writer needs microseconds for a slot, and milliseconds from
    one slot to the next.
    """
    cell, before = os.pread(fd, ANCHOR_BYTES, at), b""
    while cell != before:
        cell, before = os.pread(fd, ANCHOR_BYTES, at), cell
    return cell


def _copy_file(source: Path, target: Path) -> None:
    with _opened(source) as data:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(fd, "wb") as out:
            shutil.copyfileobj(data, out)
            out.flush()
            os.fsync(out.fileno())


def _opened(source: Path) -> BinaryIO:
    """
    Open a plain file for reading. Anything else in its place is refused, so that nobody waits for a
    FIFO or reads a file without end.
    """
    try:
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        raise refused(str(source), "is a symlink") from exc
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_BYTES_MAX:
        os.close(fd)
        raise refused(
            str(source),
            "is not a regular file"
            if not stat.S_ISREG(status.st_mode)
            else f"is larger than any file of ours ({status.st_size} bytes)",
        )
    return os.fdopen(fd, "rb")
