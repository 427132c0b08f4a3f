"""
Segments: the files a journal is made of, and the journal's own records in them.

The first line of a segment is a `segment_opened` record; it names the session, the instance, the key and, by length, last mac and
keyed digest, the segment before, which is thereby closed. A segment that was filled ends with `segment_closed`. Both are chained and
numbered like any record, but they are the journal's own: callers of a store never see them, so the numbers they see may skip.
"""

import re
from typing import Literal

import msgspec

from holdfast.errors import NewerVersion
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Draft, Record

FORMAT = 1
OPENED = "segment_opened"
CLOSED = "segment_closed"
REPAIRED = "tail_repaired"
"""A torn tail was cut: `{"bytes": n, "quarantine": where}`. Handed to callers like any record: it is said, not hidden."""

_FILE_NAME = re.compile(r"([a-z0-9][a-z0-9._-]{0,63})\.([0-9]{8})\.jsonl\Z")


class SegmentKey(msgspec.Struct, frozen=True):
    generation: int
    id: str


class Previous(msgspec.Struct, frozen=True):
    """The segment before, as it was left. Bytes past `length` don't count."""

    number: int
    length: int
    mac: str
    digest: str  # keyed BLAKE3 of those bytes, under that segment's own generation


class SegmentOpened(msgspec.Struct, frozen=True):
    format: int
    session: SessionId
    instance: InstanceId
    key: SegmentKey
    number: int
    previous: Previous | None


_decode_opened = msgspec.json.Decoder(SegmentOpened).decode


def is_own(record: Record) -> bool:
    """Is this one of the journal's own records, which callers never see?"""
    return record.type in {OPENED, CLOSED}


def opened_draft(opened: SegmentOpened) -> Draft:
    return Draft(OPENED, FORMAT, msgspec.json.encode(opened))


def closed_draft(number: int) -> Draft:
    return Draft(CLOSED, FORMAT, b'{"number":%d}' % number)


def repaired_draft(cut_bytes: int, quarantine: str) -> Draft:
    return Draft(REPAIRED, 1, msgspec.json.encode({"bytes": cut_bytes, "quarantine": quarantine}))


def read_opened(body: bytes) -> SegmentOpened | None:
    """What a segment's first body says, believed by nobody yet; None if it is no such thing. These fields stay in every format."""
    try:
        return _decode_opened(body)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, no header, or nested without end
        return None


def check_format(opened: SegmentOpened) -> None:
    """Only for a header whose mac was verified: a changed byte is no newer version."""
    if opened.format != FORMAT:
        raise NewerVersion(
            f"this journal is of format {opened.format}; this Holdfast knows format {FORMAT}",
            hint="upgrade Holdfast; nothing is wrong with the journal",
        )


def segment_name(instance: InstanceId, number: int) -> str:
    return f"{instance}.{number:08d}.jsonl"


def parse_segment_name(name: str) -> tuple[InstanceId, int] | None:
    match = _FILE_NAME.match(name)
    return (InstanceId(match.group(1)), int(match.group(2))) if match else None


Where = Literal["start", "middle", "closed"]
"""Where in a segment a reader stands: before its header, inside, or behind its closing record."""
