"""
HOME/home/home.sealed: the seal of the home itself, which can't be kept in a journal that is not
believed.

Durable, and lifted only by a person who removes the file. One that can't be read seals all the
same.
"""

import os
import secrets

import msgspec

from holdfast.adapters.files.home.layout import HOME_PARTS
from holdfast.adapters.files.paths import create_whole, make_folder, read_file, walk
from holdfast.ports.journal_store import SealMark

_NAME = "home.sealed"
_PATH = "/".join((*HOME_PARTS, _NAME))
_BYTES_MAX = 4096


def write(home: int, mark: SealMark) -> None:
    make_folder(home, *HOME_PARTS)
    with walk(home, *HOME_PARTS) as folder:
        create_whole(
            folder,
            _NAME,
            msgspec.json.encode(mark),
            temporary=f".{_NAME}.{secrets.token_hex(8)}.tmp",
        )


def is_there(home: int) -> bool:
    """One look, for every append: whatever bears its name seals."""
    return os.access(_PATH, os.F_OK, dir_fd=home, follow_symlinks=False)


def read(home: int) -> SealMark | None:
    try:
        with walk(home, *HOME_PARTS) as folder:
            raw = read_file(folder, _NAME, bytes_max=_BYTES_MAX)
        return msgspec.json.decode(raw, type=SealMark)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return SealMark("broken", "the home is sealed; the mark itself can't be read")
