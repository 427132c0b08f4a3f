"""
The home's keys on disk: HOME/keys/<generation>.key, 32 random bytes each, 0600 in a 0700 folder.

A key is linked into place whole and never replaced. A lost key is never created again: without it
journals are readable but not verifiable, and nothing is written. A key that others may read is
still used for checking, but no longer for writing.
"""

import os
import re
import secrets
import stat
from typing import NamedTuple

from holdfast.adapters.files.home.trusted_keys import trusted_keys
from holdfast.adapters.files.paths import (
    create_exclusively,
    create_whole,
    make_folder,
    open_file,
    open_folder,
    read_at,
)
from holdfast.errors import Refused
from holdfast.journal.chain import KEY_BYTES

KEYS = "keys"
_KEY_NAME = re.compile(r"([1-9][0-9]{0,8})\.key\Z")
_NOT_OWNER = 0o077


class KnownKeys(dict[int, bytes]):
    """
    The trusted keys of a home, by generation. An unknown key may come from a peer's rotation, so
    the folder is read again when somebody asks for it.
    """

    def __init__(self, home: int, found: dict[int, bytes]) -> None:
        super().__init__(trusted_keys(home, found))
        self._home = home

    def reload(self) -> None:
        self.update(trusted_keys(self._home, load_keys(self._home).by_generation))

    def __missing__(self, generation: int) -> bytes:
        self.reload()
        found = dict.get(self, generation)
        if found is None:
            raise KeyError(generation)
        return found


class Keys(NamedTuple):
    """
    The keys found on disk: usable ones by generation, trusted or not, and the reason why writing is
    refused, if it is.
    """

    by_generation: dict[int, bytes]
    trouble: str | None


def load_keys(home: int) -> Keys:
    found: dict[int, bytes] = {}
    trouble: list[str] = []
    try:
        folder = open_folder(home, KEYS)
    except FileNotFoundError:
        return Keys({}, "its keys folder is missing")
    try:
        if os.fstat(folder).st_mode & _NOT_OWNER:
            trouble.append("others may read the keys folder")
        for name in sorted(os.listdir(folder)):  # noqa: PTH208  by descriptor
            match = _KEY_NAME.match(name)
            if match:
                key, wrong = _load_key(folder, name)
                if key is not None:
                    found[int(match.group(1))] = key
                if wrong:
                    trouble.append(wrong)
    finally:
        os.close(folder)
    if 1 not in found:
        trouble.append("key 1 is missing")
    return Keys(found, "; ".join(trouble) or None)


def _load_key(folder: int, name: str) -> tuple[bytes | None, str | None]:
    try:
        fd = open_file(folder, name, os.O_RDONLY)
    except (PermissionError, Refused) as exc:
        return None, f"{name} is not usable ({exc})"
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        key = read_at(fd, 0, KEY_BYTES + 1)
    finally:
        os.close(fd)
    if len(key) != KEY_BYTES:
        return None, f"{name} has {len(key)} bytes instead of {KEY_BYTES}"
    return key, f"others may read {name} (mode {mode:o})" if mode & _NOT_OWNER else None


def make_next_key(home: int, generation: int) -> bytes:
    """
    Create the key of a generation that no record names yet. The caller holds the home's write lock.

    An existing file of that name comes from a rotation that died, or from somebody who wants us to
    use it. Nothing was sealed with it, so it is replaced.
    """
    folder = open_folder(home, KEYS)
    try:
        name = f"{generation}.key"
        key = secrets.token_bytes(KEY_BYTES)
        create_whole(folder, name, key, temporary=f".{name}.{secrets.token_hex(8)}.tmp")
        return key
    finally:
        os.close(folder)


def make_first_key(home: int) -> bytes:
    """Return the first key of a new home: ours, or that of a faster process."""
    make_folder(home, KEYS)
    folder = open_folder(home, KEYS)
    try:
        name = "1.key"
        key = secrets.token_bytes(KEY_BYTES)
        if create_exclusively(folder, name, key, temporary=f".{name}.{secrets.token_hex(8)}.tmp"):
            return key
        found, wrong = _load_key(folder, name)
    finally:
        os.close(folder)
    if found is None or wrong:
        raise no_key(wrong or f"{name} is unreadable")
    return found


def no_key(trouble: str) -> Refused:
    return Refused(
        f"this home can't be written: {trouble}",
        code="no_key",
        hint="put the key back from a backup, 0600 in a 0700 folder; reading and export work "
        "without it; no new key is ever made in its place",
    )
