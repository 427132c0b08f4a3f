"""
The trusted keys in HOME/keys: the first one, and every later one that the home's own journal names
by its id.

A rotation is a record, sealed with a key that was trusted before it. A key file that no such record
names comes from a rotation that died, or from somebody who wants us to trust data sealed with it.
Nothing verifies under such a key, even if a segment, an anchor or a snapshot names its generation.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping

from holdfast.adapters.files.home.layout import HOME_INSTANCE, HOME_PARTS, HOME_SESSION
from holdfast.adapters.files.paths import read_file, walk
from holdfast.errors import BrokenChain, NewerVersion
from holdfast.journal.chain import Keyring, key_id
from holdfast.journal.record import Record, believe, read_unverified
from holdfast.journal.segment import parse_segment_name
from holdfast.limits import BATCH_BYTES_MAX, SEGMENT_BYTES
from holdfast.session.home.events import KeyRotated, decode_home_event

_TYPE = "key_rotated"
_SPELLED = f'"type":"{_TYPE}"'.encode()
_READ_MAX = SEGMENT_BYTES + 2 * BATCH_BYTES_MAX


def trusted_keys(home: int, found: Mapping[int, bytes]) -> dict[int, bytes]:
    """
    Return the trusted ones among the found keys, by generation. The home's journal is read only if
    there is more than one key.
    """
    counted = {generation: found[generation] for generation in (1,) if generation in found}
    if not counted or len(found) == 1:
        return counted
    for previous, line in _rotations(home):
        event = _genuine(counted, previous, line)
        if (
            event is not None
            and event.generation in found
            and key_id(found[event.generation]) == event.key_id
        ):
            counted[event.generation] = found[event.generation]
    return counted


def _genuine(counted: Mapping[int, bytes], previous: bytes, line: bytes) -> KeyRotated | None:
    """
    Return the rotation if its record verifies after the mac of the line before it. Other damage in
    the journal does not matter here: only a holder of the key can make such a record.
    """
    keys = Keyring(counted, HOME_SESSION, HOME_INSTANCE).all()
    record: Record | None = next(
        (found for key in keys if (found := believe(key.record, previous, line)) is not None), None
    )
    if record is None or record.type != _TYPE:
        return None
    with contextlib.suppress(NewerVersion, BrokenChain):
        event = decode_home_event(record.type, record.version, record.body)
        return event if isinstance(event, KeyRotated) else None
    return None


def _rotations(home: int) -> Iterator[tuple[bytes, bytes]]:
    """
    Yield every line that may be a rotation, oldest first, with the mac of the line before it. A
    segment's first line is its header and never a rotation.
    """
    with contextlib.suppress(FileNotFoundError), walk(home, *HOME_PARTS) as folder:
        for name in sorted(os.listdir(folder)):  # noqa: PTH208  by descriptor
            parsed = parse_segment_name(name)
            if parsed is not None and parsed[0] == HOME_INSTANCE:
                data = read_file(folder, name, bytes_max=_READ_MAX)
                if _SPELLED in data:
                    yield from _pairs(data)


def _pairs(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    before: Record | None = None
    for text in data.split(b"\n"):
        line = text + b"\n"
        if before is not None and _SPELLED in line:
            yield before.mac, line
        before = read_unverified(line)
