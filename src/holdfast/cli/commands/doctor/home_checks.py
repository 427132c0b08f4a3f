"""Checks of the home's folder: owner, settings, disk, keys, sockets."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.commands.doctor.finding import Finding
from holdfast.cli.output.result import error_from_os
from holdfast.errors import HoldfastError, Unusable
from holdfast.limits import MIB

if TYPE_CHECKING:
    from holdfast.settings import Settings


_DISK_FREE_MIN = 64 * MIB  # below it the next long turn may not fit


_DISK_FREE_GOOD = 1024 * MIB


_NOT_OWNER_WRITES = 0o022


_NOT_OWNER = 0o077


def check_inside(home: Path) -> list[Finding]:
    try:
        return [*_disk(home), *_keys(home), *_sockets(home)] if home.is_dir() else []
    except OSError as exc:
        return [
            Finding(
                "home",
                "problem",
                f"{home} can't be looked into: {exc.strerror}",
                f"it should be yours: chmod 700 {home}, as its owner",
            )
        ]


def check_home(home: Path) -> Iterator[Finding]:
    try:
        status = home.stat()
    except FileNotFoundError:
        yield _not_there_yet(home)
        return
    except OSError as exc:
        yield Finding(
            "home",
            "problem",
            f"{home}: {exc.strerror}",
            "name another one with --home, or mend who may enter it",
        )
        return
    if not home.is_dir():
        yield Finding(
            "home",
            "problem",
            f"{home} is not a folder",
            "move it away, or name another home with --home",
        )
    elif status.st_uid != os.geteuid():
        yield Finding(
            "home",
            "problem",
            f"{home} belongs to uid {status.st_uid}, you are {os.geteuid()}",
            "run as its owner, or name another home",
        )
    elif status.st_mode & _NOT_OWNER_WRITES:
        yield Finding(
            "home",
            "problem",
            f"others may write in {home} (mode {status.st_mode & 0o777:o})",
            f"chmod 700 {home}",
        )
    elif status.st_mode & _NOT_OWNER:
        yield Finding(
            "home",
            "warning",
            f"others may look into {home} (mode {status.st_mode & 0o777:o})",
            f"chmod 700 {home}",
        )
    else:
        yield Finding("home", "ok", str(home))
    if home.is_dir() and not os.access(home, os.W_OK):
        yield Finding(
            "home", "problem", f"{home} can't be written", "is the disk mounted read-only?"
        )


def _not_there_yet(home: Path) -> Finding:
    above = next(each for each in home.parents if each.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        return Finding(
            "home",
            "problem",
            f"{home} is not there, and {above} can't be written",
            "name another home with --home or $HOLDFAST_HOME",
        )
    return Finding("home", "ok", f"{home} is not there yet; the first `holdfast send` makes it")


def check_settings(home: Path, *, app: str | None = None) -> "tuple[Settings, list[Finding]]":
    """Check the names in the settings against this install and the user's program `app`."""
    from holdfast.cli.commands.config import problems_of
    from holdfast.settings import FILE_NAME, Settings, SettingsSource

    try:
        settings = SettingsSource(home).now()
        wrong = problems_of(settings, home, app=app)
    except Unusable as exc:
        return Settings(), [Finding("settings", "problem", exc.message, exc.hint)]
    if wrong:
        return settings, [
            Finding("settings", "problem", each, "`holdfast config show` shows what holds")
            for each in wrong
        ]
    return settings, [
        Finding("settings", "ok", "understood" if (home / FILE_NAME).exists() else "the defaults")
    ]


def _disk(home: Path) -> Iterator[Finding]:
    from holdfast.adapters.filesystems import UNSAFE, filesystem_magic

    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = UNSAFE.get(filesystem_magic(folder) or 0)
        room = os.fstatvfs(folder)
    finally:
        os.close(folder)
    if name is not None:
        yield Finding(
            "filesystem",
            "problem",
            f"{home} lies on a {name} filesystem, where locks and syncs don't hold",
            "use a local disk",
        )
    else:
        yield Finding("filesystem", "ok", "local")
    free = room.f_bavail * room.f_frsize
    said = f"{free // MIB} MiB free"
    if free < _DISK_FREE_MIN or (room.f_files and not room.f_favail):
        yield Finding("disk", "problem", said, "make room: a full disk stops every turn")
    else:
        yield Finding("disk", "ok" if free >= _DISK_FREE_GOOD else "warning", said)


def _keys(home: Path) -> Iterator[Finding]:
    from holdfast.adapters.files.home.keys import load_keys
    from holdfast.adapters.files.home.trusted_keys import trusted_keys

    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not (home / "keys").exists() and not (home / "home").exists():
            return  # not created yet
        found = load_keys(folder)
        counted = trusted_keys(folder, found.by_generation)
    except HoldfastError as exc:
        yield Finding("keys", "problem", exc.message, exc.hint)
        return
    except OSError as exc:
        yield Finding(
            "keys",
            "problem",
            error_from_os(exc).message,
            "put the keys back from a backup, 0600 in a 0700 folder",
        )
        return
    finally:
        os.close(folder)
    if found.trouble:
        yield Finding(
            "keys",
            "problem",
            found.trouble,
            "0600 in a 0700 folder; a lost key comes back from a backup only",
        )
    elif ignored := sorted(found.by_generation.keys() - counted.keys()):
        said = f"the home's journal does not name {ignored[0]}.key; Holdfast does not use this key"
        yield Finding(
            "keys",
            "warning",
            said,
            "a rotation that died left it, or somebody else; it may be removed",
        )
    else:
        yield Finding("keys", "ok", f"generation {max(counted)}")


def _sockets(home: Path) -> Iterator[Finding]:
    """Find sockets of listeners that died. The next notice removes them."""
    run_folder = home / "run"
    stale = []
    with suppress(OSError):
        stale = [
            each.name
            for each in run_folder.iterdir()
            if each.suffix == ".sock" and not _is_served(each.name)
        ]
    if stale:
        yield Finding(
            "sockets",
            "warning",
            f"{len(stale)} of processes that are gone",
            "harmless: the next message removes them",
        )


def _is_served(name: str) -> bool:
    pid = name.partition("-")[0]
    return not pid.isdecimal() or Path(f"/proc/{pid}").exists() or not Path("/proc/self").exists()
