"""
Create an instance of a session, whole or not at all. home/create.py creates a home.

Every file is written under a temporary name, synced, then moved into place. The order is: anchor,
folder with the first segment, SessionCreated record. A session exists from that record on. The next
creation removes the leftovers of one that died, and logs them.
"""

import contextlib
import logging
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.adapters.files.paths import (
    FILE_MODE,
    FOLDER_MODE,
    SyncedFolders,
    create_whole,
    open_folder,
    walk,
    write_and_close,
)
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.quarantine import QUARANTINE
from holdfast.ids import InstanceId
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft, Record, check_draft, times_of_creation
from holdfast.journal.segment import parse_segment_name

_log = logging.getLogger("holdfast.files")


class CreatedInstance(NamedTuple):
    """A new instance, durable and not yet named by the home's journal."""

    fence: Fence  # at the head
    first_mac: str
    records: Sequence[Record]  # all of them if one segment holds them, else none


def create_instance(
    files: SessionFiles, folders: SyncedFolders, first: Sequence[Draft], *, at: int, writer: str
) -> CreatedInstance:
    """
    Create the anchor, then the folder and the segments, all durably. An instance that carries over
    a long history has many segments.
    """
    for draft in first:
        check_draft(draft)
    fence = files.fence()
    generation = files.generation()
    times = times_of_creation(first, at)
    lines = [
        fence.open_segment(
            generation=generation, at=times[0] if times else at, writer=writer, more=bool(first)
        )
    ]
    first_mac = fence.mac.hex()
    segments: list[bytes] = []
    for left, draft, happened in zip(range(1 - len(first), 1), first, times, strict=True):
        if fence.offset >= files.segment_bytes:
            lines.append(fence.close_segment(at=happened, writer=writer))
            segments.append(b"".join(lines))
            fence.enter_next()
            lines = [fence.open_segment(generation=generation, at=happened, writer=writer)]
        lines.append(fence.write(draft, at=happened, epoch=0, writer=writer, more=left < 0)[0])
    segments.append(b"".join(lines))
    files.anchor.create(files.anchor_at(fence, 0, 0), files.keys)
    _place_segments(files, folders, segments)
    records = files.fence().feed(segments[0]).records if len(segments) == 1 else []
    return CreatedInstance(fence, first_mac, records)


def _place_segments(files: SessionFiles, folders: SyncedFolders, segments: Sequence[bytes]) -> None:
    *above, name = files.parts
    fd = os.dup(files.home)
    try:
        for depth in range(1, len(above) + 1):
            deeper = folders.enter(fd, *above[:depth])
            os.close(fd)
            fd = deeper
        try:
            folder = open_folder(fd, name)
        except FileNotFoundError:
            _place_folder(files, fd, name, segments)
        else:
            try:
                for number, data in enumerate(segments, 1):
                    create_whole(
                        folder, files.name(number), data, temporary=files.temporary(number)
                    )
            finally:
                os.close(folder)
    finally:
        os.close(fd)


def _place_folder(files: SessionFiles, parent: int, name: str, segments: Sequence[bytes]) -> None:
    """Make the folder appear at once with all its segments."""
    temporary = _being_created(name)
    with contextlib.suppress(FileNotFoundError):  # left by a creation of a home that died
        shutil.rmtree(files.home_path.joinpath(*files.parts[:-1], temporary))
    os.mkdir(temporary, FOLDER_MODE, dir_fd=parent)
    folder = open_folder(parent, temporary)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for number, data in enumerate(segments, 1):
            fd = os.open(files.name(number), flags, FILE_MODE, dir_fd=folder)
            write_and_close(fd, data)
        os.fsync(folder)
    finally:
        os.close(folder)
    os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    os.fsync(parent)


def remove_leftovers(
    home: int, home_path: Path, parts: tuple[str, ...], instances: Collection[InstanceId]
) -> list[str]:
    """
    Remove files that no kept instance owns: of creations that died and of deleted instances. The
    caller holds the home's write lock.
    """
    *above, name = parts
    removed: list[str] = []
    if not instances and remove_quarantine(home, home_path, parts):
        removed.append("/".join((QUARANTINE, *parts[1:])))
    with contextlib.suppress(FileNotFoundError), walk(home, *above) as parent:
        for entry in (_being_created(name), _going(name)):
            if os.access(entry, os.F_OK, dir_fd=parent, follow_symlinks=False):
                shutil.rmtree(home_path.joinpath(*above, entry))
                removed.append("/".join((*above, entry)))
    with contextlib.suppress(FileNotFoundError), walk(home, *parts) as folder:
        for entry in os.listdir(folder):  # noqa: PTH208  by descriptor
            parsed = parse_segment_name(entry)
            is_temporary = entry.startswith(".") and entry.endswith(".tmp")
            if is_temporary or (parsed is not None and parsed[0] not in instances):
                os.unlink(entry, dir_fd=folder)
                removed.append("/".join((*parts, entry)))
        os.fsync(folder)
    for path in removed:
        _log.warning(
            "removed %s, left by a creation that did not finish or by a deleted instance", path
        )
    return removed


def remove_session(home: int, home_path: Path, parts: tuple[str, ...]) -> bool:
    """Remove a deleted session's folder with all its instances; returns whether there was one."""
    *above, name = parts
    removed = False
    with contextlib.suppress(FileNotFoundError), walk(home, *above) as parent:
        gone = _going(name)
        if os.access(
            gone, os.F_OK, dir_fd=parent, follow_symlinks=False
        ):  # an earlier deletion died halfway
            shutil.rmtree(home_path.joinpath(*above, gone))
            removed = True
        os.rename(name, gone, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
        shutil.rmtree(home_path.joinpath(*above, gone))
        os.fsync(parent)
        removed = True
    return removed


def remove_quarantine(home: int, home_path: Path, parts: tuple[str, ...]) -> bool:
    """
    Remove a deleted session's quarantine, of all its instances. Return True if there was any. A
    link in its place is not followed.
    """
    *above, name = (QUARANTINE, *parts[1:])
    with contextlib.suppress(FileNotFoundError), walk(home, *above) as parent:
        if os.access(name, os.F_OK, dir_fd=parent, follow_symlinks=False):
            shutil.rmtree(home_path.joinpath(*above, name))
            os.fsync(parent)
            return True
    return False


def _being_created(name: str) -> str:
    """
    Each session has one temporary name: a creation holds the home's write lock, and a leftover is
    found without listing a folder of a hundred thousand sessions.
    """
    return f".{name}.new.tmp"


def _going(name: str) -> str:
    return f".{name}.gone.tmp"
