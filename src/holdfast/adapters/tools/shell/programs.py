"""
Finds the file that a word would run, and its fingerprint: the path and a digest of all its bytes.
Times prove nothing and are not used.

A missing program is bound too, as missing: if it appeared before the command runs, another file
would run.
"""

import os
import stat

import msgspec
from blake3 import blake3

from holdfast import limits
from holdfast.ports.tools import CannotBind

_PROGRAM_BYTES_MAX = 512 * limits.MIB  # hashed in well under a second; a larger one cannot be bound
_CHUNK_BYTES = 4 * limits.MIB


class Program(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # canonical
    found: str  # the path as it was found, with its links
    device: int
    inode: int
    digest: str
    is_script: bool  # starts with "#!"

    def __str__(self) -> str:
        """
        Return the bound text: the bytes at this path. Device and inode change with a reboot or a
        restore, so they are compared only at exec.
        """
        return f"{self.path} {self.digest}"


def find_program(word: str, *, cwd: str, search_path: str) -> str | None:
    """
    Return the path that a shell would run for this word: the word itself if it has a slash,
    otherwise the first executable along the search path.
    """
    if "/" in word:
        found = os.path.join(cwd, word)  # noqa: PTH118  relative to the command's folder, not to this process's
        return found if _is_executable(found) else None
    for folder in search_path.split(":"):
        found = f"{folder}/{word}"
        if _is_executable(found):
            return found
    return None


def fingerprint(path: str) -> Program:
    """Read the file once. Raise CannotBind if it is not a regular file or cannot be read."""
    real = os.path.realpath(path)
    try:
        fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except PermissionError:
        # It may be run but not read, so only its inode is known.
        facts = os.stat(real)  # noqa: PTH116
        return Program(
            path=real,
            found=path,
            device=facts.st_dev,
            inode=facts.st_ino,
            digest=f"unreadable {facts.st_dev}:{facts.st_ino}",
            is_script=False,
        )
    except OSError as exc:
        raise CannotBind(f"{real}, which would run, can't be read: {exc.strerror}") from exc
    with os.fdopen(fd, "rb", buffering=0) as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _PROGRAM_BYTES_MAX:
            raise CannotBind(
                f"{real}, which would run, is not a regular file or is larger than"
                f" {_PROGRAM_BYTES_MAX} bytes"
            )
        hasher = blake3()
        head = chunk = file.read(_CHUNK_BYTES)
        while chunk:
            hasher.update(chunk)
            chunk = file.read(_CHUNK_BYTES)
    return Program(
        path=real,
        found=path,
        device=facts.st_dev,
        inode=facts.st_ino,
        digest=hasher.hexdigest(),
        is_script=head.startswith(b"#!"),
    )


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113  text, many times
