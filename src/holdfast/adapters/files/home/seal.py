"""
HOME/home/home.sealed: the seal of the home itself. It is a file because the home's journal can't be
trusted when it is sealed.

The seal is durable. Only a person lifts it, by removing the file. An unreadable file seals too.
"""

import secrets

import msgspec

from holdfast.adapters.files.home.layout import HOME_PARTS
from holdfast.adapters.files.paths import create_whole, make_folder, read_file, walk
from holdfast.ports.journal_store import SealMark

_NAME = "home.sealed"
PATH = "/".join((*HOME_PARTS, _NAME))
"""Any entry of this name seals. Every append checks it with one system call."""
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


def read(home: int) -> SealMark | None:
    try:
        with walk(home, *HOME_PARTS) as folder:
            raw = read_file(folder, _NAME, bytes_max=_BYTES_MAX)
        return msgspec.json.decode(raw, type=SealMark)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return SealMark("broken", "the home is sealed; the mark itself can't be read")
