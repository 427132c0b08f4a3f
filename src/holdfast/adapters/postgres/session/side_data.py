"""
Data beside the journals: quarantine, full outputs and snapshots. Each row is believed by its mac or
its digest, never by its place.
"""

import re

import msgspec
from blake3 import blake3

from holdfast.adapters.files.session.outputs import redacted_output
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.session.tail import Tail
from holdfast.errors import BrokenChain, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import subkey
from holdfast.journal.record import Head
from holdfast.limits import MIB
from holdfast.ports.snapshots import Snapshot

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
SNAPSHOT_BYTES_MAX = 64 * MIB  # a larger state is folded anew each time


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """The bytes that a mac covers, with its generation."""

    generation: int
    kind: str
    payload: bytes
    mac: bytes


class SideData:
    def __init__(self, schema: str, keys: dict[int, bytes]) -> None:
        self._schema, self._keys = schema, keys

    # --- Quarantine

    def quarantine(self, wire: Wire, tail: Tail, kind: str, payload: bytes) -> str:
        generation = max(self._keys, default=0)
        mac = self._mac(generation, "quarantine", tail.session, tail.instance, kind, payload)
        kept = msgspec.msgpack.encode(_Kept(generation, kind, payload, mac))
        (row,) = wire.rows("select hf.keep_quarantine(%s, %s, %s)", (tail.journal, kind, kept))
        return self._place(tail.session, tail.instance, row[0], kind)

    def quarantined(self, wire: Wire, session: SessionId) -> list[str]:
        rows = wire.rows(
            "select head.instance, item, kind from hf.quarantine join hf.head using (journal) "
            "where session = %s order by item",
            (session,),
        )
        return [self._place(session, *row) for row in rows]

    def _place(self, session: str, instance: str, item: int, kind: str) -> str:
        return f"postgres:{self._schema}/{session}/{instance}/quarantine/{item}-{kind}"

    def read_quarantined(self, wire: Wire, session: SessionId, where: str) -> tuple[str, bytes]:
        rows = wire.rows(
            "select head.instance, item, kind, payload from hf.quarantine "
            "join hf.head using (journal) where session = %s",
            (session,),
        )
        for instance, item, kind, data in rows:
            if self._place(session, instance, item, kind) == where:
                return kind, self._believed(where, session, InstanceId(instance), kind, data)
        raise Refused(f"{session} has nothing in quarantine at {where}", code="unknown")

    def _believed(
        self, where: str, session: SessionId, instance: InstanceId, kind: str, data: bytes
    ) -> bytes:
        try:
            kept = msgspec.msgpack.decode(data, type=_Kept)
        except ValueError:
            kept = None
        if (
            kept is None
            or kept.generation not in self._keys
            or kept.mac
            != self._mac(kept.generation, "quarantine", session, instance, kind, kept.payload)
        ):
            raise BrokenChain(
                f"{where} is not what was kept there, or was never kept by us",
                hint="look at it yourself; nothing in it is believed",
            )
        return kept.payload

    def _mac(
        self, generation: int, purpose: str, session: str, instance: str, kind: str, payload: bytes
    ) -> bytes:
        key, name = self._keys.get(generation), kind.encode()
        if key is None:
            return b""
        said = len(name).to_bytes(4, "big") + name + payload
        return blake3(said, key=subkey(key, purpose, session, instance)).digest()

    # --- Outputs

    def keep_output(self, wire: Wire, tail: Tail, data: bytes) -> str:
        data = redacted_output(data)
        digest = blake3(data).hexdigest()
        wire.rows("select hf.keep_output(%s, %s, %s)", (tail.journal, digest, data))
        return digest

    def output(self, wire: Wire, tail: Tail, digest: str) -> bytes:
        if not _DIGEST.match(digest):
            raise Refused(f"{digest!r} is not a digest", code="malformed")
        row = wire.one(
            "select data from hf.output where journal = %s and digest = %s", (tail.journal, digest)
        )
        if row is None:
            raise Refused(f"{tail.session} keeps no output {digest}", code="unknown")
        data = bytes(row[0])
        if blake3(data).hexdigest() != digest:
            raise BrokenChain(
                f"{tail.session}: the output {digest} was changed",
                hint="its text can't be believed; the journal has its digest",
            )
        return data

    # --- Snapshots

    def keep_snapshot(self, wire: Wire, tail: Tail, snapshot: Snapshot) -> None:
        if len(snapshot.data) > SNAPSHOT_BYTES_MAX:
            return
        generation = max(self._keys, default=0)
        kind = f"{snapshot.head.seq} {snapshot.head.mac.hex()}"
        mac = self._mac(generation, "snapshot", tail.session, tail.instance, kind, snapshot.data)
        kept = msgspec.msgpack.encode(_Kept(generation, kind, snapshot.data, mac))
        wire.rows("select hf.keep_snapshot(%s, %s)", (tail.journal, kept))

    def read_snapshot(self, wire: Wire, tail: Tail) -> Snapshot | None:
        row = wire.one("select data from hf.snapshot where journal = %s", (tail.journal,))
        if row is None:
            return None
        try:
            kept = msgspec.msgpack.decode(row[0], type=_Kept)
            seq, mac = kept.kind.split(" ")
            head = Head(int(seq), bytes.fromhex(mac))
        except ValueError:
            return None
        wanted = self._mac(
            kept.generation, "snapshot", tail.session, tail.instance, kept.kind, kept.payload
        )
        return Snapshot(head, kept.payload) if wanted and wanted == kept.mac else None
