"""
What goes over a stream, as bytes: records with their seq as id, pieces and notices without one.

A client resumes by the id, so only what is in the journal has one. JSON text holds no raw newline,
so a frame is one `data` line.
"""

from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.journal.record import Record
from holdfast.runtime.streams.feed import Delta, Heard

KEEP_ALIVE = b": still here\n\n"
_OPEN_TYPES = frozenset({"session_born", "tail_repaired", "model_given"})
"""Records of the session itself, which say nothing of any turn."""


class Frame(NamedTuple):
    """
    Bytes for everyone who may see them. `turn` is whose circle they belong to; `is_open` needs
    none.
    """

    data: bytes
    seq: int | None
    turn: str | None
    is_open: bool


class _Turn(msgspec.Struct):
    turn: str | None = None


class _Circle(msgspec.Struct):
    audience: str = ""
    boundary: str = ""


class _Input(msgspec.Struct):
    turn: str
    context: msgspec.Raw


_decode_turn = msgspec.json.Decoder(_Turn).decode
_decode_input = msgspec.json.Decoder(_Input).decode
_decode_circle = msgspec.json.Decoder(_Circle).decode


class RecordSent(msgspec.Struct, frozen=True):
    """A record as it is stored, as clients get it."""

    seq: int
    at: int
    epoch: int
    writer: str
    type: str
    version: int
    more: bool
    digest: str
    body: msgspec.Raw
    mac: str


def frame_from_record(record: Record) -> Frame:
    digest = blake3(record.body).hexdigest()
    sent = RecordSent(
        record.seq,
        record.at,
        record.epoch,
        record.writer,
        record.type,
        record.version,
        record.more,
        digest,
        msgspec.Raw(record.body),
        record.mac.hex(),
    )
    data = b"id: %d\nevent: record\ndata: %s\n\n" % (record.seq, msgspec.json.encode(sent))
    return Frame(data, record.seq, _turn_of(record), record.type in _OPEN_TYPES)


def _turn_of(record: Record) -> str | None:
    try:
        return _decode_turn(record.body).turn
    except msgspec.MsgspecError:
        return None


def frame_from_piece(piece: Heard) -> Frame:
    if isinstance(piece, Delta):
        told = {"turn": piece.turn, "kind": piece.kind, "text": piece.text, "call": piece.call}
        return Frame(
            b"event: delta\ndata: %s\n\n" % msgspec.json.encode(told),
            None,
            piece.turn,
            is_open=False,
        )
    return frame_from_event("gap", {"session": piece.session, "lost": "pieces"})


def frame_from_event(name: str, told: Any) -> Frame:
    """Something about the session or the stream itself."""
    return Frame(
        b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(told)),
        None,
        None,
        is_open=True,
    )


def circle_from_input(body: bytes) -> tuple[str, tuple[str, str]]:
    """
    Which circle a turn belongs to. A context that can't be read belongs to none, so nobody with
    less than everything sees it.
    """
    accepted = _decode_input(body)
    try:
        circle = _decode_circle(accepted.context)
    except msgspec.MsgspecError:
        return accepted.turn, ("", "")
    return accepted.turn, (circle.audience, circle.boundary)
