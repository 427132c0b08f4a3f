"""
Changes that other programs make to a journal's files. Each is a plain edit through the file system,
as an editor, a backup tool or an attacker would make it. Nothing here imports code that could sign
a record.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def edit(path: Path, old: bytes, new: bytes) -> None:
    """Change bytes in place, with the same length; the inode and all other bytes stay."""
    if len(old) != len(new):
        raise ValueError(f"{old!r} and {new!r} differ in length")
    content = path.read_bytes()
    at = content.index(old)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)


def flip(path: Path, at: int) -> None:
    """Flip one bit of one byte."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def edit_mapped(path: Path, old: bytes, new: bytes) -> None:
    """Like `edit`, through a memory map, which no write call shows."""
    with path.open("r+b") as file, mmap(file.fileno(), 0) as mapped:
        at = mapped.find(old)
        mapped[at : at + len(new)] = new
        mapped.flush()


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def replace(path: Path, content: bytes) -> None:
    """Rename a new file over the old one, as backup tools and editors do, so the inode changes."""
    mode = path.stat().st_mode
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    beside.chmod(mode)
    beside.replace(path)


@contextmanager
def same_times(path: Path) -> Generator[None, None, None]:
    """Restore the file's times at the end of the block."""
    before = path.stat()
    yield
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def touch(path: Path) -> None:
    path.touch()


# An anchor's cell: two slots of 192 bytes. Their counters are readable without a key
# (docs/reference/journal-format.md).
_SLOT = 192


def _newer(cell: bytes) -> int:
    even, odd = (int.from_bytes(cell[start + 8 : start + 16], "big") for start in (0, _SLOT))
    return _SLOT if odd > even else 0


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def wipe_newer_slot(table: Path, at: int) -> None:
    cell = table.read_bytes()[at : at + 2 * _SLOT]
    _write(table, at + _newer(cell), bytes(_SLOT))


def copy_older_slot(table: Path, at: int) -> None:
    """Copy the older slot over the newer."""
    cell = table.read_bytes()[at : at + 2 * _SLOT]
    newer = _newer(cell)
    older = _SLOT - newer
    _write(table, at + newer, cell[older : older + _SLOT])
