"""
One server per home: `flock` on a file in HOME/run.

The lock ends with its process, or with the last of its workers, which inherit it. No other process
does. The file's text names the server, for people.
"""

import contextlib
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import Busy, Unusable

_LOCK = "serve.lock"
_TEXT_BYTES_MAX = 400


class ServeLock:
    """The lock of a home that this process serves."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def say(self, where: str) -> None:
        """Write who serves, and where, into the lock file."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, f"pid {os.getpid()}, {where}\n".encode(), 0)


@contextmanager
def hold_home(home: Path) -> Generator[ServeLock, None, None]:
    """Hold the home so that no other process serves it. Raise `Busy` with the holder's name."""
    folder = home / "run"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise Unusable(
            f"{folder / _LOCK} can't be opened: {exc.strerror}",
            code="io",
            hint="it should be a plain file of yours",
        ) from exc
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = (
                os.pread(fd, _TEXT_BYTES_MAX, 0).decode(errors="replace").strip()
                or "another process"
            )
            raise Busy(
                f"this home is served already, by {holder}",
                holder=holder,
                hint="use that one, or stop it first",
            ) from None
        lock = ServeLock(fd)
        lock.say("about to listen")
        yield lock
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


def served_at(home: Path) -> str | None:
    """Return the address of the server that holds this home now, or None if there is not one."""
    try:
        fd = os.open(home / "run" / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        address = (
            os.pread(fd, _TEXT_BYTES_MAX, 0).decode(errors="replace").strip().rpartition(", ")[2]
        )
        return address if address.startswith("http://") else None
    else:
        return None
    finally:
        os.close(fd)
