"""
One record is one line: how an entry becomes bytes, and how bytes are verified.

    {"seq":12,"at":1763256543123,"epoch":3,"writer":"w","type":"t","version":1,"more":true,
     "body":{...},"mac":"<64 hex>"}

The fields stand in this order on one line, with no whitespace outside the body; `more` stands only
where it is true. Every check slices the stored bytes: the header is everything before `,"body":`,
the mac is the last 64 digits. The format does not need canonical JSON. Pure: bytes in, values out.
"""

import re
from binascii import hexlify
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import msgspec
from blake3 import blake3

from holdfast.errors import Refused
from holdfast.journal.strict import strict_json
from holdfast.limits import INTEGER_MAX, RECORD_BYTES_MAX
from holdfast.secrecy import known

MAC_BYTES = 32
ZERO_MAC = bytes(MAC_BYTES)
"""The mac that the first record of a journal is chained to."""

_BODY = b',"body":'
_MORE = ',"more":true'
_MAC = b',"mac":"'
_END = b'"}\n'
_TAIL_BYTES = len(_MAC) + 2 * MAC_BYTES + len(_END)
_SEALED = re.compile(
    _MAC + b"[0-9a-f]{64}" + _END
)  # a body has no newline, so this matches only at the end of a line
_NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}\Z"
)  # needs no escaping, so a header can be written in one way only


class Head(NamedTuple):
    """The last record of a journal: its number and its mac."""

    seq: int
    mac: bytes


class Draft(msgspec.Struct, frozen=True):
    """
    An entry to be written: its type, version and body, which is one JSON object in UTF-8. The store
    numbers, stamps and seals it.

    `at` is set only for a new instance that starts with the records of another one: the time at
    which the event happened there. Callers that append cannot set it.

    `has_happened` marks the record of a result that exists only once, such as a tool's outcome. A
    store with a reserve writes it on a full disk too.
    """

    type: str
    version: int
    body: bytes
    at: int | None = None
    has_happened: bool = False


body_of = attrgetter("body")


class Record(msgspec.Struct, frozen=True):
    """
    One durable entry. `body` is the stored bytes. `at` is Unix milliseconds and never decreases
    along a journal.

    `more`: the batch goes on with the next record. All records of one decision are one batch, and a
    batch is kept whole or not at all.
    """

    seq: int
    at: int
    epoch: int
    writer: str
    type: str
    version: int
    body: bytes
    mac: bytes
    more: bool = False


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields that stand before the body."""

    seq: int
    at: int
    epoch: int
    writer: str
    type: str
    version: int
    more: bool = False


_decode_header = msgspec.json.Decoder(Header).decode


def record_mac(key: bytes, previous: bytes, header: bytes, digest: bytes) -> bytes:
    """
    Keyed BLAKE3 over the previous mac (32), the header's length (4, big endian), the header, and
    the body's digest (32).
    """
    return blake3(
        b"".join((previous, len(header).to_bytes(4, "big"), header, digest)), key=key
    ).digest()


def frame(
    key: bytes,
    previous: bytes,
    record: Draft,
    *,
    seq: int,
    at: int,
    epoch: int,
    writer: str,
    more: bool = False,
) -> tuple[bytes, Record]:
    """
    Return the line of a draft that `check_draft` accepted, and its record. `more`: the batch goes
    on.
    """
    body = record.body
    header = (
        f'{{"seq":{seq},"at":{at},"epoch":{epoch},"writer":"{writer}","type":"{record.type}",'
        f'"version":{record.version}{_MORE if more else ""}'
    ).encode()
    mac = record_mac(key, previous, header, blake3(body).digest())
    line = b"".join((header, _BODY, body, _MAC, hexlify(mac), _END))
    return line, Record(seq, at, epoch, writer, record.type, record.version, body, mac, more)


def believe(key: bytes, previous: bytes, line: bytes) -> Record | None:
    """
    Return the record of a whole line, newline included, or None if it does not verify after
    `previous`.
    """
    cut = line.find(_BODY)
    end = len(line) - _TAIL_BYTES
    start = cut + len(_BODY)
    if cut < 0 or end < start or not line.endswith(_END):
        return None
    header, body = line[:cut], line[start:end]
    digest = blake3(body).digest()
    mac = blake3(b"".join((previous, cut.to_bytes(4, "big"), header, digest)), key=key).digest()
    # Compare as text: upper-case digits would be a second way to write the same record.
    if not line.startswith(_MAC + hexlify(mac), end):
        return None
    return _record(header, body, mac)


def read_unverified(line: bytes) -> Record | None:
    """
    Parse the record of a line without verifying it. For bytes whose digest was checked as a whole,
    or for export without the key.
    """
    cut = line.find(_BODY)
    end = len(line) - _TAIL_BYTES
    start = cut + len(_BODY)
    if cut < 0 or end < start:
        return None
    try:
        mac = bytes.fromhex(line[end + len(_MAC) : -len(_END)].decode())
        return _record(line[:cut], line[start:end], mac)
    except (ValueError, RecursionError):
        return None


def without_macs(data: bytes) -> bytes:
    """Return the same lines at the same length, with macs that never verify."""
    return _SEALED.sub(_MAC + b"0" * (2 * MAC_BYTES) + _END, data)


def _record(header: bytes, body: bytes, mac: bytes) -> Record | None:
    try:
        fields = _decode_header(header + b"}")
    except msgspec.MsgspecError:
        return None
    return Record(
        fields.seq,
        fields.at,
        fields.epoch,
        fields.writer,
        fields.type,
        fields.version,
        body,
        mac,
        fields.more,
    )


@lru_cache(maxsize=256)
def _is_name(name: str) -> bool:
    return _NAME.match(name) is not None


def times_of_creation(first: Sequence[Draft], now: int) -> list[int]:
    """
    Return the time of each record that begins an instance: its own time, but never after now and
    never before the record ahead of it.

    >>> times = {"a": 5, "b": 3, "c": 99, "d": None}
    >>> times_of_creation([Draft(name, 1, b"{}", at) for name, at in times.items()], 10)
    [5, 5, 10, 10]
    """
    times: list[int] = []
    for draft in first:
        at = now if draft.at is None else min(draft.at, now)
        times.append(max(at, times[-1]) if times else at)
    return times


def check_draft(draft: Draft) -> None:
    """
    Refuse a body that could not be read back: not one line, not strict JSON, not an object, a name
    that would need escaping, or too large. Also refuse a body that holds a known secret (S1).
    """
    check_drafts((draft,))


def check_drafts(drafts: Sequence[Draft]) -> None:
    """Check all drafts of one commit, as `check_draft` does."""
    for draft in drafts:
        _check_form(draft)
    # One look at all bodies together is enough in the common case. A body begins and ends with a
    # brace, so each of its signs of a secret is also found in the joined text.
    if known().may_hold(b"".join(map(body_of, drafts))):
        for draft in drafts:
            _refuse_secret(draft)


def _check_form(draft: Draft) -> None:
    if not _is_name(draft.type):
        check_name(draft.type, what="record type")
    if not 1 <= draft.version <= INTEGER_MAX:
        raise Refused(
            f"version {draft.version} of {draft.type} is out of range",
            code="malformed",
            hint="versions start at 1",
        )
    if len(draft.body) + 1024 > RECORD_BYTES_MAX:  # the header and mac take less than 1 KiB
        raise Refused(
            f"a {draft.type} record of {len(draft.body)} bytes is too large",
            code="too_large",
            hint=f"a record holds at most {RECORD_BYTES_MAX} bytes; keep large output beside the "
            "journal",
        )
    body = draft.body
    if not body.startswith(b"{") or body.find(b"\n") >= 0 or body.find(b"\r") >= 0:
        raise Refused(
            f"the body of a {draft.type} record is not one JSON object on one line",
            code="malformed",
        )
    strict_json(draft.body, what=f"the body of a {draft.type} record")


def _refuse_secret(draft: Draft) -> None:
    if known().holds(draft.body):
        raise Refused(
            f"a {draft.type} record would hold a known secret, and was not written",
            code="secret",
            hint="send it again without the secret; revoke the secret if others saw it",
        )


def check_name(name: str, *, what: str) -> None:
    if not _is_name(name):
        raise Refused(
            f"{name!r} is not a valid {what}",
            code="malformed",
            hint="use letters, digits and . _ : @ - (64 at most)",
        )
