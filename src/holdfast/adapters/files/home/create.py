"""
A home's birth: folder, key, anchor, and last its own journal's first records. Two processes at once
make one home.

Half born is what has no journal yet, and whose anchor, if any, is a birth's: it is born to the end
by the next one. An older anchor without its journal is history cut short, and never born over.
"""

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from holdfast.adapters.files.home.keys import load_keys, make_first_key, no_key
from holdfast.adapters.files.home.layout import (
    HOME_INSTANCE,
    HOME_PARTS,
    HOME_SESSION,
    SESSIONS,
    HomeFiles,
)
from holdfast.adapters.files.paths import FOLDER_MODE, READ_ONLY, open_folder, refused
from holdfast.adapters.files.session import create as birth
from holdfast.adapters.files.session.anchors import AnchorTables
from holdfast.errors import Refused, Unusable
from holdfast.journal.chain import Keyring
from holdfast.journal.record import Draft
from holdfast.journal.segment import segment_name
from holdfast.session.home.events import HomeCreated, encode_home_event

_ELSEWHERE = (
    "name a home where you may write: --home, $HOLDFAST_HOME, or the path given to `holdfast.open`"
)


def open_home_folder(path: Path, *, create: bool) -> int | None:
    """
    The home folder's descriptor; a symlink in its place is followed once, here and nowhere below.
    """
    real = path.resolve()
    if create:
        try:
            real.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except FileExistsError as exc:
            raise Unusable(f"{path} is no folder", hint="name another home") from exc
        except OSError as exc:
            if exc.errno not in READ_ONLY:
                raise
            raise Refused(
                f"{path} can't be made: {exc.strerror}", code="not_permitted", hint=_ELSEWHERE
            ) from exc
    try:
        fd = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except NotADirectoryError as exc:
        raise Unusable(f"{path} is no folder", hint="name another home") from exc
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        os.close(fd)
        raise refused(
            str(path),
            f"belongs to uid {status.st_uid} or others may write in it (mode {status.st_mode & 0o777:o})",
        )
    return fd


def is_born(home: int) -> bool:
    """Has its journal a first segment, or an anchor that remembers one?"""
    with contextlib.suppress(FileNotFoundError):
        os.stat(
            "/".join((*HOME_PARTS, segment_name(HOME_INSTANCE, 1))),
            dir_fd=home,
            follow_symlinks=False,
        )
        return True
    return _was_born(home)


def _was_born(home: int) -> bool:
    """An anchor that moved on since a birth, or sessions: a journal was here."""
    with contextlib.suppress(FileNotFoundError):
        folder = open_folder(home, SESSIONS)
        try:
            if os.listdir(folder):  # noqa: PTH208  by descriptor
                return True
        finally:
            os.close(folder)
    tables = AnchorTables(home)
    try:
        anchor = (
            tables.home_cell()
            .look(Keyring(load_keys(home).by_generation, HOME_SESSION, HOME_INSTANCE))
            .anchor
        )
    except FileNotFoundError:
        return False
    finally:
        tables.close()
    return anchor is not None and anchor.counter > 1


def create_home(home: int, path: Path, now: int) -> None:
    """Idempotent; waits for whoever is at it."""
    lock = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=home)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_born(home):
            return
        _bear(home, path, now)
    finally:
        os.close(lock)


def _bear(home: int, path: Path, now: int) -> None:
    found = load_keys(home)
    if found.by_generation and found.trouble:
        raise no_key(found.trouble)
    key = found.by_generation.get(1) or make_first_key(home)
    files = HomeFiles(home, path, {1: key}, generation=lambda: 1)
    try:
        created = Draft(*encode_home_event(HomeCreated(home="h-" + secrets.token_hex(8))))
        birth.bear(files.own(), [created], at=now, writer=f"w{os.getpid()}-birth")
        os.fsync(home)
        parent = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(PermissionError):
                os.fsync(parent)
        finally:
            os.close(parent)
    finally:
        files.close()
