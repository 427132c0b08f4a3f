"""
HOME/quarantine/<channel>/<thread>/<n>-<kind>.json: data that could not go into a journal, kept
durably beside it.

Cut tails and failed batches are kept with the position they were cut from. They are for people: a
file in here proves nothing about a journal.
"""

import base64
import os
import re
import secrets

import msgspec

from holdfast.adapters.files.paths import (
    create_exclusively,
    make_folder,
    open_folder,
    read_file,
    walk,
)
from holdfast.errors import Refused
from holdfast.ids import SessionId

QUARANTINE = "quarantine"
TORN_TAIL = "torn_tail"
FAILED_BATCH = "failed_batch"
_NAME = re.compile(r"([0-9]{6})-([a-z0-9_]{1,40})\.json\Z")
_KIND = re.compile(r"[a-z0-9_]{1,40}\Z")
_ITEM_BYTES_MAX = 64 * 1024 * 1024


class CutBytes(msgspec.Struct, frozen=True):
    """Bytes that were cut off a segment, and their position."""

    segment: str
    offset: int
    bytes: int
    base64: str


class Quarantine:
    """The quarantine of one session, shared by its instances."""

    def __init__(self, home: int, session: SessionId) -> None:
        self._home = home
        self._parts = (QUARANTINE, *session.split("/"))

    def keep(self, kind: str, payload: bytes) -> str:
        """Keep the payload durably. Return its path relative to the home."""
        if not _KIND.match(kind):
            raise Refused(
                f"{kind!r} is not a kind of quarantine", code="malformed", hint="use a-z, 0-9 and _"
            )
        fd = os.dup(self._home)
        try:
            for part in self._parts:
                make_folder(fd, part)
                deeper = open_folder(fd, part)
                os.close(fd)
                fd = deeper
            number = len(self._names(fd)) + 1
            while True:
                name = f"{number:06d}-{kind}.json"
                taken = any(other.startswith(f"{number:06d}-") for other in self._names(fd))
                if not taken and create_exclusively(
                    fd, name, payload, temporary=f".{name}.{secrets.token_hex(8)}.tmp"
                ):
                    return "/".join((*self._parts, name))
                number += 1
        finally:
            os.close(fd)

    def keep_cut(self, kind: str, segment: str, offset: int, cut: bytes) -> str:
        item = CutBytes(segment, offset, len(cut), base64.b64encode(cut).decode())
        return self.keep(kind, msgspec.json.encode(item))

    def places(self) -> list[str]:
        try:
            with walk(self._home, *self._parts) as fd:
                return ["/".join((*self._parts, name)) for name in self._names(fd)]
        except FileNotFoundError:
            return []

    def read(self, where: str) -> tuple[str, bytes]:
        """Return (kind, bytes) of a path that `places` lists, relative to the home or absolute."""
        name = where.rsplit("/", 1)[-1]
        match = _NAME.match(name)
        try:
            with walk(self._home, *self._parts) as fd:
                if match is not None and name in self._names(fd):
                    return match.group(2), read_file(fd, name, bytes_max=_ITEM_BYTES_MAX)
        except FileNotFoundError:
            pass
        raise Refused(
            f"there is nothing in quarantine at {where}",
            code="unknown",
            hint="`holdfast sessions show` lists them",
        )

    @staticmethod
    def _names(fd: int) -> list[str]:
        return sorted(name for name in os.listdir(fd) if _NAME.match(name))
