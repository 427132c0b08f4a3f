"""
SESSION/INSTANCE.snapshot: the folded state of the records up to one of them. See
`holdfast.ports.snapshots`.

    one line of JSON: format, key generation, session, instance, seq and mac of the last record
        covered, length of the data, and the place of that record's end
    the data
    32 bytes: BLAKE3 keyed with the `snapshot` subkey of this instance, over all before

It is not synced: it is a cache, and half of one does not verify.

The place has the keyed digest of its segment up to there. So an opening checks these bytes by one
digest, as it checks a closed segment, and record by record only those that follow.
"""

import contextlib
import logging
import os
import secrets
from typing import NamedTuple

import msgspec
from blake3 import blake3

from holdfast.adapters.files.paths import FILE_MODE, read_file, walk, write_all
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.errors import HoldfastError
from holdfast.journal.chain import KeyMissing, subkey
from holdfast.journal.fence import SegmentPlace
from holdfast.journal.record import Head
from holdfast.limits import MIB
from holdfast.ports.snapshots import Snapshot

_FORMAT = 1
_MAC_BYTES = 32
SNAPSHOT_BYTES_MAX = 64 * MIB  # a larger state is folded anew each time

_log = logging.getLogger("holdfast.files")


class _Header(msgspec.Struct, frozen=True):
    format: int
    generation: int
    session: str
    instance: str
    seq: int
    mac: str
    length: int
    place: SegmentPlace | None = None


class KeptSnapshot(NamedTuple):
    """A snapshot that verified, and the place of the last record that it covers, if there are."""

    snapshot: Snapshot | None = None
    place: SegmentPlace | None = None


def _name(files: SessionFiles) -> str:
    return f"{files.instance}.snapshot"


def keep(
    files: SessionFiles,
    key: bytes,
    generation: int,
    snapshot: Snapshot,
    place: SegmentPlace | None,
) -> None:
    if len(snapshot.data) > SNAPSHOT_BYTES_MAX:
        return
    header = _Header(
        _FORMAT,
        generation,
        files.session,
        files.instance,
        snapshot.head.seq,
        snapshot.head.mac.hex(),
        len(snapshot.data),
        place,
    )
    data = msgspec.json.encode(header) + b"\n" + snapshot.data
    data += blake3(data, key=subkey(key, "snapshot", files.session, files.instance)).digest()
    temporary = f".{_name(files)}.{secrets.token_hex(8)}.tmp"
    try:
        with walk(files.home, *files.parts) as folder:
            fd = os.open(
                temporary,
                os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                FILE_MODE,
                dir_fd=folder,
            )
            try:
                write_all(fd, data, 0)
            finally:
                os.close(fd)
            os.rename(temporary, _name(files), src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as exc:
        _log.info("no snapshot of %s was kept: %s", files.session, exc)
        with contextlib.suppress(OSError), walk(files.home, *files.parts) as folder:
            os.unlink(temporary, dir_fd=folder)


def read(files: SessionFiles, key_of: "dict[int, bytes]") -> KeptSnapshot:
    """Return the kept snapshot if it verifies. Log and ignore any other."""
    try:
        with walk(files.home, *files.parts) as folder:
            data = read_file(folder, _name(files), bytes_max=SNAPSHOT_BYTES_MAX + MIB)
    except FileNotFoundError:
        return KeptSnapshot()
    except (OSError, HoldfastError) as exc:
        _log.warning("the snapshot of %s can't be read: %s", files.session, exc)
        return KeptSnapshot()
    found = _verified(files, key_of, data)
    if found is None:
        _log.warning("the snapshot of %s is not ours, and is ignored", files.session)
    return found or KeptSnapshot()


def _verified(files: SessionFiles, key_of: "dict[int, bytes]", data: bytes) -> KeptSnapshot | None:
    start = data.find(b"\n") + 1
    end = len(data) - _MAC_BYTES
    try:
        header = msgspec.json.decode(data[:start], type=_Header)
        key = subkey(key_of[header.generation], "snapshot", files.session, files.instance)
        mac = bytes.fromhex(header.mac)
    except (KeyError, KeyMissing, ValueError, RecursionError):
        return None
    ours = (header.format, header.session, header.instance) == (
        _FORMAT,
        files.session,
        files.instance,
    )
    if (
        not ours
        or end - start != header.length
        or blake3(memoryview(data)[:end], key=key).digest() != data[end:]
    ):
        return None
    return KeptSnapshot(Snapshot(Head(header.seq, mac), data[start:end]), header.place)
