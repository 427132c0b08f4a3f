"""
Replies and outcomes in quarantine, signed with our key. When a session is unsealed they are shown
to people and to the model, so an unsigned file is not enough.

    {...payload..., "ours":{"instance":"i1","generation":1,"mac":"<64 hex>"}}

The mac is keyed BLAKE3 under the `quarantine` subkey of the instance that kept the payload. It
covers the kind (with its length in 4 bytes before it) and the payload. Cut tails and failed batches
carry no such mac: the records of a cut tail have macs of their own, and a failed batch is for
people only.
"""

import contextlib
import re
from collections.abc import Collection, Mapping

from blake3 import blake3

from holdfast.adapters.files.home.reserve import FULL
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.quarantine import FAILED_BATCH, TORN_TAIL
from holdfast.errors import BrokenChain, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import subkey

_OURS = re.compile(
    rb',?"ours":\{"instance":"([a-z0-9][a-z0-9._-]{0,63})","generation":([1-9][0-9]{0,8}),"mac":"([0-9a-f]{64})"\}\}\Z'
)


def keep_signed(
    files: SessionFiles, keys: Mapping[int, bytes], generation: int, kind: str, payload: bytes
) -> str:
    """
    Keep a payload in quarantine and return its path. On a full disk use the reserve, because the
    payload would be lost otherwise.
    """
    key = keys.get(generation)
    data = (
        payload
        if key is None
        else _vouched(payload, kind, files.session, files.instance, generation, key)
    )
    try:
        place = files.quarantine.keep(kind, data)
    except OSError as exc:
        if exc.errno not in FULL or not files.reserve.free():
            raise
        place = files.quarantine.keep(kind, data)
    with contextlib.suppress(ValueError):
        return str(files.home_path / place)
    return place


def read_signed(
    files: SessionFiles, keys: Mapping[int, bytes], instances: Collection[InstanceId], where: str
) -> tuple[str, bytes]:
    """
    Return (kind, payload). Raise Refused with code `unknown` if its instance was deleted. Raise
    BrokenChain if its mac does not verify.
    """
    kind, data = files.quarantine.read(where)
    if kind in {TORN_TAIL, FAILED_BATCH}:
        return kind, data
    said = _OURS.search(data[-256:])
    if said is None:
        raise _not_ours(where)
    instance, generation = InstanceId(said[1].decode()), int(said[2])
    if instance not in instances:
        raise Refused(
            f"{where} is of another instance of {files.session}, which was deleted", code="unknown"
        )
    payload = data[: len(data) - len(said[0])] + b"}"
    key = keys.get(generation)
    if key is None or _mac(payload, kind, files.session, instance, key) != said[3].decode():
        raise _not_ours(where)
    return kind, payload


def _vouched(
    payload: bytes, kind: str, session: SessionId, instance: InstanceId, generation: int, key: bytes
) -> bytes:
    if not (payload.startswith(b"{") and payload.endswith(b"}")):
        return payload
    comma = b"" if payload == b"{}" else b","
    mac = _mac(payload, kind, session, instance, key)
    return b"".join(
        (
            payload[:-1],
            comma,
            b'"ours":{"instance":"%s","generation":%d,"mac":"%s"}}'
            % (instance.encode(), generation, mac.encode()),
        )
    )


def _mac(payload: bytes, kind: str, session: SessionId, instance: InstanceId, key: bytes) -> str:
    name = kind.encode()
    return blake3(
        len(name).to_bytes(4, "big") + name + payload,
        key=subkey(key, "quarantine", session, instance),
    ).hexdigest()


def _not_ours(where: str) -> BrokenChain:
    return BrokenChain(
        f"{where} is not what was kept there, or was never kept by us",
        hint="look at it yourself; nothing in it is believed",
    )
