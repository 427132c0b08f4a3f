"""
Convert between events and the bytes of a record: stored names, versions, upcasting.

A stored name never changes its meaning. When a body's shape changes, its version goes up and
`UPCASTS` learns to read the older one. A name or version from the future is refused
(`NewerVersion`), never skipped: the session is then read-only for this program. Golden files of
every version ever released are under tests/proof/golden and are never regenerated.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

import msgspec

from holdfast.errors import BrokenChain, NewerVersion, Refused, Unusable
from holdfast.session.events import Event, SessionEvent


def _stored_name(kind: type[Event]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


EVENT_TYPES: Mapping[str, type[Event]] = {
    _stored_name(kind): kind for kind in get_args(SessionEvent)
}
VERSIONS: Mapping[str, int] = dict.fromkeys(EVENT_TYPES, 1)
"""The version that this program writes, by stored name."""

UPCASTS: Mapping[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""One step up from (name, older version), applied to the decoded body."""

_NAMES = {kind: name for name, kind in EVENT_TYPES.items()}
_DECODERS: dict[tuple[str, int], Callable[[bytes], Any]] = {
    (name, VERSIONS[name]): msgspec.json.Decoder(kind).decode for name, kind in EVENT_TYPES.items()
}
_encode = msgspec.json.Encoder().encode


def encode(event: SessionEvent) -> tuple[str, int, bytes]:
    """
    Return (stored name, version, body), and only if `decode` can read the body back.

    Python does not check types when a program calls Holdfast. One value of a wrong type (a number
    as a dedup key) would be acknowledged and make the whole session unreadable.
    """
    name = _NAMES[type(event)]
    try:
        body = _encode(event)
        _DECODERS[name, VERSIONS[name]](body)
    except UnicodeEncodeError as exc:
        raise half_a_character() from exc
    except (msgspec.ValidationError, TypeError) as exc:
        raise Unusable(
            f"{name} can't be written down: {exc}",
            code="malformed",
            hint="give values of the annotated types",
        ) from exc
    return name, VERSIONS[name], body


def half_a_character() -> Refused:
    """
    The error for a lone surrogate in a caller's value. A journal cannot hold one; the caller must
    fix it, and nothing was written.
    """
    return Refused(
        "something that was given holds half a character (a lone surrogate), and can't be written "
        "down",
        code="malformed",
        hint="give well-formed Unicode text, and folders whose names are UTF-8",
    )


def decode(type_: str, version: int, body: bytes, *, seq: int = 0) -> SessionEvent:
    decoder = _DECODERS.get((type_, version))
    try:
        if decoder is not None:
            event: SessionEvent = decoder(body)
            return event
        return _upcast(type_, version, body)
    except (
        ValueError,
        RecursionError,
    ) as exc:  # not JSON, not UTF-8, other fields, or nested without end
        raise BrokenChain(
            f"record {seq} is a genuine {type_} of version {version}, but its body does not fit: "
            f"{exc}",
            at_seq=seq,
        ) from exc


def _upcast(type_: str, version: int, body: bytes) -> SessionEvent:
    if type_ not in EVENT_TYPES or not 1 <= version <= VERSIONS[type_]:
        raise NewerVersion(
            f"the journal has a {type_!r} record of version {version}, which this Holdfast does "
            "not know",
            hint="upgrade Holdfast to go on with this session; nothing is wrong with it, and "
            "reading works",
        )
    fields = msgspec.json.decode(body, type=dict[str, Any])
    for step in range(version, VERSIONS[type_]):
        fields = UPCASTS[type_, step](fields)
    return cast(SessionEvent, msgspec.convert(fields, EVENT_TYPES[type_]))
