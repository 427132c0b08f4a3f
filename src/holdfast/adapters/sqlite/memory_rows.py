"""
The stored form of a remembered item, in every store with SQL: a body, a mac over it, and the
generation of the key that made the mac. Pure: values in, values out.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from blake3 import blake3

from holdfast.errors import Refused
from holdfast.ids import short_digest
from holdfast.session.authority.context import Audience
from holdfast.session.features.memory.items import MemoryItem

MemoryKeys = Callable[[int | None], tuple[int, bytes] | None]
"""The key of a generation, or the newest with its generation; None when it is not there."""

# Rows that get a rank. The rarest words come first, and common words only while there is room.
ROWS_READ = 500
_decode = msgspec.json.Decoder(MemoryItem).decode


def newest_key(keys: MemoryKeys) -> tuple[int, bytes]:
    key = keys(None)
    if key is None:
        raise Refused(
            "the home's key is missing, so nothing can be remembered",
            code="no_key",
            hint="`holdfast doctor` names the fault",
        )
    return key


def too_many(boundary: str, kept: int) -> Refused:
    return Refused(
        f"{boundary} remembers {kept} things, which is its bound",
        code="too_many",
        hint="forget something first",
    )


def item_mac(key: bytes, name: str, body: bytes) -> bytes:
    written = name.encode("utf-8", "surrogatepass")
    return blake3(len(written).to_bytes(4, "big") + written + body, key=key).digest()


def believed_item(
    keys: MemoryKeys,
    row: tuple[Any, ...],
    *,
    opened: Callable[[bytes, bytes], bytes] = lambda _key, body: body,
) -> MemoryItem | None:
    """
    Return the item of (id, boundary, generation, body, mac) if its mac verifies and it is in the
    row that it was written into. `opened` turns a stored body into JSON.
    """
    name, boundary, generation, body, mac = row
    if not (
        isinstance(name, str)
        and isinstance(generation, int)
        and isinstance(body, bytes)
        and isinstance(mac, bytes)
    ):
        return None
    key = keys(generation)
    if key is None or item_mac(key[1], name, body) != mac:
        return None
    try:
        item = _decode(opened(key[1], body))
    except msgspec.MsgspecError:
        return None
    return item if (item.id, item.boundary) == (name, boundary) else None


def reader_set_key(audience: str, boundary: str, person: str) -> str:
    return short_digest(
        "circle", audience, boundary, person if audience != Audience.TEAM.value else ""
    )


def rarest(spread: Iterable[tuple[int, Any]]) -> list[Any]:
    """
    Return the digests of the rarest words, as many as can be ranked quickly. If all are common,
    return the least common one. `spread`: how many items hold each.
    """
    chosen: list[Any] = []
    room = ROWS_READ
    for items, digest in sorted(spread):
        if not chosen or items <= room:
            chosen.append(digest)
            room -= items
    return chosen
