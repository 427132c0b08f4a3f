"""
Create a home: folder, key, anchor, and last the first records of its own journal. Two processes at
once create one home.

A half-created home has no journal yet, and its anchor, if any, is that of a creation. The next
process completes it. An anchor that has moved on, without its journal, means that history is cut
short; such a home is never created again.
"""

import contextlib
import fcntl
import os
import secrets
import stat
from pathlib import Path

from holdfast.adapters.files.home.anchor_tables import AnchorTables
from holdfast.adapters.files.home.keys import load_keys, make_first_key, no_key
from holdfast.adapters.files.home.layout import (
    HOME_INSTANCE,
    HOME_PARTS,
    HOME_SESSION,
    SESSIONS,
    HomeFiles,
)
from holdfast.adapters.files.paths import (
    FOLDER_MODE,
    READ_ONLY,
    SyncedFolders,
    open_folder,
    refused,
)
from holdfast.adapters.files.session.create import create_instance
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
    Return the home folder's descriptor. A symlink in its place is followed once, here and nowhere
    below.
    """
    real = path.resolve()
    check_above(real)
    if create:
        try:
            real.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except FileExistsError as exc:
            raise Unusable(f"{path} is not a folder", hint="name another home") from exc
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
        raise Unusable(f"{path} is not a folder", hint="name another home") from exc
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        os.close(fd)
        raise refused(
            str(path),
            f"belongs to uid {status.st_uid} or others may write in it (mode "
            f"{status.st_mode & 0o777:o})",
        )
    return fd


def check_above(home: Path) -> None:
    """
    Refuse a place where everybody may rename folders: another user could move the home away, and
    put an earlier one back later. In a folder with the sticky bit only owners rename.
    """
    for folder in home.parents:
        with contextlib.suppress(FileNotFoundError):
            mode = folder.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise Refused(
                    f"{folder}: everybody may rename its content (mode {stat.S_IMODE(mode):o})",
                    code="unsafe_path",
                    hint=f"chmod o-w '{folder}', or name a home elsewhere with --home",
                )


def is_created(home: int) -> bool:
    """Return True if the home's journal has a first segment, or an anchor that remembers one."""
    with contextlib.suppress(FileNotFoundError):
        os.stat(
            "/".join((*HOME_PARTS, segment_name(HOME_INSTANCE, 1))),
            dir_fd=home,
            follow_symlinks=False,
        )
        return True
    return _was_created(home)


def _was_created(home: int) -> bool:
    """
    Return True if the anchor moved on since its creation, or if there are sessions: a journal was
    here.
    """
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
            .read_slots(Keyring(load_keys(home).by_generation, HOME_SESSION, HOME_INSTANCE))
            .anchor
        )
    except FileNotFoundError:
        return False
    finally:
        tables.close()
    return anchor is not None and anchor.counter > 1


def create_home(home: int, path: Path, now: int) -> None:
    """Create the home; idempotent. Waits for another process that is creating it."""
    lock = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=home)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_created(home):
            return
        _create_all(home, path, now)
    finally:
        os.close(lock)


def _create_all(home: int, path: Path, now: int) -> None:
    found = load_keys(home)
    if found.by_generation and found.trouble:
        raise no_key(found.trouble)
    key = found.by_generation.get(1) or make_first_key(home)
    files = HomeFiles(home, path, {1: key}, generation=lambda: 1)
    try:
        created = Draft(*encode_home_event(HomeCreated(home="h-" + secrets.token_hex(8))))
        create_instance(
            files.own(), SyncedFolders(), [created], at=now, writer=f"w{os.getpid()}-create"
        )
        os.fsync(home)
        parent = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(PermissionError):
                os.fsync(parent)
        finally:
            os.close(parent)
    finally:
        files.close()
