"""
Stream frames as bytes: records with their seq as id, pieces and notices without an id.

A client resumes by the id, so only journal records have one. JSON text contains no raw newline, so
a frame is one `data` line.
"""

from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.journal.record import Record
from holdfast.runtime.streams.feed import Delta, Heard

KEEP_ALIVE = b": still here\n\n"
_OPEN_TYPES = frozenset({"session_born", "tail_repaired", "model_given"})
"""Records of the session itself, which reveal nothing about a turn."""


class Frame(NamedTuple):
    """
    Bytes for every follower that may see them. `turn` decides the audience; an `is_open` frame is
    for all.
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
    """A stored record, as clients receive it."""

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
    """Return a frame about the session or the stream itself."""
    return Frame(
        b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(told)),
        None,
        None,
        is_open=True,
    )


def circle_from_input(body: bytes) -> tuple[str, tuple[str, str]]:
    """
    Return the turn, and its audience and boundary. A context that can't be read gets neither, so
    only a bearer that may see everything sees the turn.
    """
    accepted = _decode_input(body)
    try:
        circle = _decode_circle(accepted.context)
    except msgspec.MsgspecError:
        return accepted.turn, ("", "")
    return accepted.turn, (circle.audience, circle.boundary)
