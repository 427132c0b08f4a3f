"""
HOME/home/home.sealed: the seal of the home itself. It is a file because the home's journal can't be
trusted when it is sealed.

The seal is durable. Only a person lifts it, by removing the file. An unreadable file seals too.
The errors of sealed sessions and of a sealed home are made here as well.
"""

import secrets

import msgspec

from holdfast.adapters.files.home.layout import HOME_PARTS, HOME_SESSION
from holdfast.adapters.files.paths import create_whole, make_folder, read_file, walk
from holdfast.errors import BrokenChain, CutShort, Takeover, Untrusted
from holdfast.ids import SessionId
from holdfast.ports.journal_store import SealMark

_NAME = "home.sealed"
PATH = "/".join((*HOME_PARTS, _NAME))
"""Any entry of this name seals. Every append checks it with one system call."""
_BYTES_MAX = 4096
KINDS: dict[str, type[Untrusted]] = {
    "takeover": Takeover,
    "broken": BrokenChain,
    "cut_short": CutShort,
}


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


def sealed_error(session: SessionId, mark: SealMark) -> Untrusted:
    return KINDS.get(mark.code, Untrusted)(
        f"{session} is sealed: {mark.detail}",
        at_seq=mark.at_seq,
        code=mark.code,
        hint=way_on(session),
    )


def way_on(session: SessionId) -> str:
    if session == HOME_SESSION:
        return (
            "look at it with `holdfast verify`, then restore a backup; or, knowing what happened,"
            " remove home/home.sealed in the home"
        )
    return (
        f"look at it with `holdfast verify {session}`, then decide with `holdfast sessions unseal"
        f" {session}`"
    )
