"""
Strict JSON: what we digest and keep means the same to every reader.

Refused: NaN, infinities and numbers that overflow to one, duplicate keys, lone surrogates, integers
beyond 2**53, nesting beyond a bound, bytes that are no UTF-8. The common case (what an ordinary
encoder wrote) is settled by the C decoder and one comparison; whatever is spelled differently takes
the slow, exact road. Neither recurses without bound nor builds huge integers.
"""

import json
import math
import re
from typing import Any, NoReturn

import msgspec

from holdfast.errors import Refused
from holdfast.limits import INTEGER_MAX, JSON_DEPTH_MAX

_LONG_DIGITS = re.compile(rb"[0-9]{16}")
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER_DIGITS_MAX = len(str(INTEGER_MAX))
_NOT_DIGITS = bytes(set(range(256)) - set(b"0123456789"))

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def strict_json(data: bytes | str, *, what: str) -> Any:
    """
    The value of a JSON text, or `Refused` with code `malformed`.

    >>> strict_json(b'{"cmd": "ls"}', what="the arguments")
    {'cmd': 'ls'}
    >>> strict_json('{"cmd": "ls", "cmd": "rm"}', what="the arguments")
    Traceback (most recent call last):
    holdfast.errors.Refused: the arguments are not strict JSON: key 'cmd' stands twice
    """
    raw = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    check_depth(raw, what=what)
    try:
        value = _decode(raw)
        if _encode(value) == raw and not _has_long_number(raw):
            # it reads back to the very same bytes: nothing was dropped, doubled or rounded
            return value
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass  # the slow road says what is wrong
    return _strict_json_slowly(raw, what)


def _has_long_number(raw: bytes) -> bool:
    """
    Could an integer in it be beyond 2**53? Fewer digits than that in all is the common case, and
    quick to see.
    """
    return (
        len(raw.translate(None, _NOT_DIGITS)) >= _INTEGER_DIGITS_MAX
        and _LONG_DIGITS.search(raw) is not None
    )


def check_depth(raw: bytes, *, what: str) -> None:
    """
    Refuse what nests deeper than the bound, before any reader recurses into it. Ask before every
    reading that is not `strict_json`.
    """
    if raw.count(b"[") + raw.count(b"{") <= JSON_DEPTH_MAX:
        return
    depth = 0
    for match in _STRUCTURE.finditer(raw):
        char = match.group()[:1]
        if char in b"[{":
            depth += 1
            if depth > JSON_DEPTH_MAX:
                _refuse(what, f"nested deeper than {JSON_DEPTH_MAX}")
        elif char in b"]}":
            depth -= 1


def _strict_json_slowly(raw: bytes, what: str) -> Any:
    def constant(text: str) -> NoReturn:
        _refuse(what, f"{text} is no number")

    def integer(text: str) -> int:
        if len(text) > _INTEGER_DIGITS_MAX + 1 or abs(int(text)) > INTEGER_MAX:
            _refuse(what, f"an integer of {len(text)} characters is beyond 2**53")
        return int(text)

    def real(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            _refuse(what, f"{text[:40]} is beyond any number")
        return number

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            _refuse(what, f"key {twice!r} stands twice")
        return found

    try:
        text = raw.decode()
    except UnicodeError as exc:
        _refuse(what, f"no UTF-8 text ({exc})", exc)
    try:
        value = json.loads(
            text,
            parse_constant=constant,
            parse_int=integer,
            parse_float=real,
            object_pairs_hook=members,
        )
    except (ValueError, RecursionError) as exc:
        _refuse(what, str(exc), exc)
    # Escaped surrogates come out of the decoder as they are; raw ones were no UTF-8.
    if b"\\u" in raw and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        _refuse(what, "a lone surrogate is no character")
    return value


def _refuse(what: str, why: str, cause: BaseException | None = None) -> NoReturn:
    raise Refused(
        f"{what} are not strict JSON: {why}",
        code="malformed",
        hint="send plain JSON as in RFC 8259",
    ) from cause
