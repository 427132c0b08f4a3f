"""
Stream frames as bytes: records with their seq as id, pieces and notices without an id.

A client resumes by the id, so only journal records have one. JSON text contains no raw newline, so
a frame is one `data` line.
"""

from typing import Any, NamedTuple

import msgspec

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


class _ReaderSet(msgspec.Struct):
    audience: str = ""
    boundary: str = ""


class _Input(msgspec.Struct):
    turn: str
    context: msgspec.Raw


_decode_turn = msgspec.json.Decoder(_Turn).decode
_decode_input = msgspec.json.Decoder(_Input).decode
_decode_reader_set = msgspec.json.Decoder(_ReaderSet).decode


class RecordSent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored record, as clients receive it."""

    seq: int
    at: int
    epoch: int
    writer: str
    type: str
    version: int
    more: bool = False
    body: msgspec.Raw
    mac: str


def record_sent(record: Record) -> RecordSent:
    return RecordSent(
        seq=record.seq,
        at=record.at,
        epoch=record.epoch,
        writer=record.writer,
        type=record.type,
        version=record.version,
        more=record.more,
        body=msgspec.Raw(record.body),
        mac=record.mac.hex(),
    )


def frame_from_record(record: Record) -> Frame:
    sent = msgspec.json.encode(record_sent(record))
    data = b"id: %d\nevent: record\ndata: %s\n\n" % (record.seq, sent)
    return Frame(data, record.seq, _turn_of(record), record.type in _OPEN_TYPES)


def _turn_of(record: Record) -> str | None:
    try:
        return _decode_turn(record.body).turn
    except msgspec.MsgspecError:
        return None


class PieceSent(msgspec.Struct, frozen=True):
    """A piece of text or output, as clients receive it."""

    turn: str
    kind: str
    text: str
    call: str | None
    offset: int


def frame_from_piece(piece: Heard) -> Frame:
    if isinstance(piece, Delta):
        content = PieceSent(piece.turn, piece.kind, piece.text, piece.call, piece.offset)
        return Frame(
            b"event: delta\ndata: %s\n\n" % msgspec.json.encode(content),
            None,
            piece.turn,
            is_open=False,
        )
    return frame_from_event("gap", {"session": piece.session, "lost": "pieces"})


def frame_from_event(name: str, content: Any) -> Frame:
    """Return a frame about the session or the stream itself."""
    return Frame(
        b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(content)),
        None,
        None,
        is_open=True,
    )


def sent_in_frame(frame: Frame) -> RecordSent | PieceSent | str:
    """
    Return the content of a frame: a record, a piece, or the name of an event about the stream.
    """
    head, data = frame.data.split(b"data: ", 1)
    if frame.seq is not None:
        return _decode_record(data)
    name = head.removeprefix(b"event: ").decode().strip()
    return _decode_piece(data) if name == "delta" else name


_decode_record = msgspec.json.Decoder(RecordSent).decode
_decode_piece = msgspec.json.Decoder(PieceSent).decode


def reader_set_from_input(body: bytes) -> tuple[str, tuple[str, str]]:
    """
    Return the turn, and its audience and boundary. A context that can't be read gets neither, so
    only a bearer that may see everything sees the turn.
    """
    accepted = _decode_input(body)
    try:
        reader_set = _decode_reader_set(accepted.context)
    except msgspec.MsgspecError:
        return accepted.turn, ("", "")
    return accepted.turn, (reader_set.audience, reader_set.boundary)
