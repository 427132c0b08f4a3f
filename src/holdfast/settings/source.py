"""
Load settings from HOME/holdfast.toml, and read its bytes again for every decision.

A file's time and size do not prove that it is unchanged. A file that others may write is not a
person's decision, so it is refused. If the file disappears or becomes invalid, every decision stops
until it is repaired: a slip must not allow an action that the file forbade.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from holdfast.errors import Busy, Unusable
from holdfast.settings.parser import BYTES_MAX, settings_from_toml
from holdfast.settings.settings import Settings

FILE_NAME = "holdfast.toml"
_T = TypeVar("_T")


def load_settings(home: Path) -> Settings:
    """Return the home's settings, or the defaults if there is no file or no home."""
    return SettingsSource(home).now()


def read_settings_file(home: Path) -> bytes | None:
    """
    The bytes of the settings file, or None where there is none. Raises `Unusable` for a file that
    somebody else owns or may write, as every command does.
    """
    return _read(str(home / FILE_NAME), str(home))


class SettingsSource:
    """The current settings, for a long-running process."""

    def __init__(self, home: Path) -> None:
        # A string: the file is read several times for every message, and a path object would be
        # converted each time.
        self._path, self._folder = str(home / FILE_NAME), str(home)
        # The bytes read last, and their result. None means that there has never been a file.
        self._data: bytes | None = None
        self._outcome: Settings | Unusable = Settings()
        self._lock = Lock()  # tools look in threads of their own

    def now(self) -> Settings:
        """Raise `Unusable` as long as the file can't be used."""
        with self._lock:
            data = _read(self._path, self._folder)
            if data is None and self._data is not None:
                raise Unusable(
                    f"{self._path} was there and is gone",
                    code="settings",
                    hint="put it back, or start again without it",
                )
            if data is not None and data != self._data:
                self._outcome = self._understood(data)
                self._data = data
            outcome = self._outcome
        if isinstance(outcome, Unusable):
            raise Unusable(outcome.message, code=outcome.code, hint=outcome.hint, line=outcome.line)
        return outcome

    def _understood(self, data: bytes) -> Settings | Unusable:
        try:
            return settings_from_toml(data, name=self._path)
        except Unusable as exc:
            return exc


class Derived(Generic[_T]):
    """A value that follows the settings: derived once from each version of the file."""

    def __init__(self, source: SettingsSource, derive: Callable[[Settings], _T]) -> None:
        self._source, self._derive = source, derive
        self._seen: tuple[Settings, _T] | None = None

    def __call__(self) -> _T:
        settings = self._source.now()
        if self._seen is None or self._seen[0] is not settings:
            self._seen = settings, self._derive(settings)
        return self._seen[1]


def _read(path: str, folder: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        if exc.errno in {errno.EMFILE, errno.ENFILE}:
            raise Busy(
                f"{path} can't be read now: {exc.strerror}",
                hint="close sessions, or raise the limit of open files",
            ) from exc
        why = "is a symlink" if exc.errno == errno.ELOOP else f"can't be read: {exc.strerror}"
        raise Unusable(
            f"{path} {why}",
            code="settings",
            hint="it must be a plain file of yours that you can read",
        ) from exc
    try:
        found = os.fstat(fd)
        _check(path, folder, found)
        return _bytes(fd, found.st_size)
    except OSError as exc:
        raise Unusable(
            f"{path} can't be read: {exc.strerror}", code="settings", hint="look at the disk"
        ) from exc
    finally:
        os.close(fd)


def _bytes(fd: int, size: int) -> bytes:
    """
    Read to the end of the file, which had `size` bytes a moment ago. A read of one byte more than
    that is short, and a short read of a plain file ends at its end.
    """
    wanted = min(size, BYTES_MAX) + 1
    data = os.read(fd, wanted)
    while len(data) == wanted <= BYTES_MAX:  # it has grown
        wanted = BYTES_MAX + 1
        data += os.read(fd, wanted - len(data))
    return data


def _check(path: str, folder: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Unusable(
            f"{path} is not a plain file",
            code="settings",
            hint="put a plain file there, or nothing",
        )
    if found.st_uid not in {os.geteuid(), 0}:
        raise Unusable(
            f"{path} belongs to uid {found.st_uid}, not to you",
            code="settings",
            hint="look who put it there",
        )
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    # The users who may write the file and can reach it through the folder.
    way_in = os.stat(folder).st_mode if found.st_nlink == 1 else stat.S_IXGRP | stat.S_IXOTH  # noqa: PTH116  as text, see above
    reach = (stat.S_IWGRP if way_in & stat.S_IXGRP else 0) | (
        stat.S_IWOTH if way_in & stat.S_IXOTH else 0
    )
    if found.st_mode & reach:
        raise Unusable(
            f"others may write {path} (mode {stat.S_IMODE(found.st_mode):o})",
            code="settings",
            hint=f"chmod go-w {path}",
        )
