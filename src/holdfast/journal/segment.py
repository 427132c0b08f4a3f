"""
Segments: the files of a journal, and the journal's own records in them.

The first line of a segment is a `segment_opened` record. It names the session, the instance and the
key. It also names the segment before by length, last mac and keyed digest, which closes that
segment. A full segment ends with `segment_closed`. Both are chained and numbered like any record.
Callers of a store never see these two, so the numbers they see may skip.
"""

import re
from typing import Literal

import msgspec
from blake3 import blake3

from holdfast.errors import NewerVersion
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Draft, Record

FORMAT = 1
OPENED = "segment_opened"
CLOSED = "segment_closed"
REPAIRED = "tail_repaired"
"""
A torn tail was cut: `{"bytes": n, "quarantine": where}`. Callers see this record like any other, so
that the cut is never hidden.
"""

_FILE_NAME = re.compile(r"([a-z0-9][a-z0-9._-]{0,63})\.([0-9]{8})\.jsonl\Z")


class SegmentKey(msgspec.Struct, frozen=True):
    generation: int
    id: str


class Ignored(msgspec.Struct, frozen=True):
    """
    Bytes past a segment's length that do not count: a torn tail that was copied to quarantine and
    is being truncated.
    """

    length: int
    digest: str  # keyed BLAKE3 of those bytes, under that segment's own generation


class Previous(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The segment before, as its writer left it. Only the bytes that `ignored` names may follow
    `length`.

    `sha256` is for stores whose server cannot compute a keyed digest. The file store leaves it out
    and accepts it.
    """

    number: int
    length: int
    mac: str
    digest: str  # keyed BLAKE3 of those bytes, under that segment's own generation
    ignored: Ignored | None = None
    sha256: str | None = None

    def is_same_segment(self, other: "Previous | None") -> bool:
        """
        Check that both name the same bytes. The optional fields are not compared: each writer sets
        its own.
        """
        if other is None:
            return False
        return (self.number, self.length, self.mac, self.digest) == (
            other.number,
            other.length,
            other.mac,
            other.digest,
        )

    def allows(self, excess: bytes, key: bytes) -> bool:
        """
        Check that these bytes may stand past `length`. `key` is the segment subkey of that
        segment's generation.
        """
        if not excess:
            return True
        ignored = self.ignored
        return (
            ignored is not None
            and ignored.length == len(excess)
            and ignored.digest == blake3(excess, key=key).hexdigest()
        )


class SegmentOpened(msgspec.Struct, frozen=True):
    format: int
    session: SessionId
    instance: InstanceId
    key: SegmentKey
    number: int
    previous: Previous | None


_decode_opened = msgspec.json.Decoder(SegmentOpened).decode


def is_own(record: Record) -> bool:
    """Check for one of the journal's own records, which callers never see."""
    return record.type in {OPENED, CLOSED}


def opened_draft(opened: SegmentOpened) -> Draft:
    return Draft(OPENED, FORMAT, msgspec.json.encode(opened))


def closed_draft(number: int) -> Draft:
    return Draft(CLOSED, FORMAT, b'{"number":%d}' % number)


def repaired_draft(cut_bytes: int, quarantine: str) -> Draft:
    return Draft(REPAIRED, 1, msgspec.json.encode({"bytes": cut_bytes, "quarantine": quarantine}))


def read_opened(body: bytes) -> SegmentOpened | None:
    """
    Parse a segment's first body, which is not verified yet. Return None if it is not a segment
    header. Every format keeps these fields.
    """
    try:
        return _decode_opened(body)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, not a header, or nested without end
        return None


def check_format(opened: SegmentOpened) -> None:
    """
    Refuse an unknown format. Call it only for a header whose mac verified: a changed byte does not
    make a newer version.
    """
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
"""A reader's position in a segment: before its header, inside it, or after its closing record."""
