"""
One server per home: `flock` on a file in HOME/run.

The lock ends with its process and is never inherited. The file's text names the server, for people.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import Busy, Unusable

_LOCK = "serve.lock"
_TEXT_BYTES_MAX = 400


@contextmanager
def hold_home(home: Path) -> Generator[Callable[[str], None], None, None]:
    """
    Hold the home so that no other process serves it. Raise `Busy` with the holder's name.

    Yield a function that writes the server's address into the lock file.
    """
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
        _say_who(fd, "about to listen")
        yield lambda address: _say_who(fd, address)
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


def _say_who(fd: int, where: str) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"pid {os.getpid()}, {where}\n".encode(), 0)
