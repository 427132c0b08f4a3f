"""
Strict JSON: digested and stored text means the same to every reader.

These are refused: NaN, infinities, numbers that overflow to infinity, duplicate keys, lone
surrogates, integers beyond 2**53, nesting beyond a bound, bytes that are not UTF-8. In the common
case (text from an ordinary encoder) the C decoder and one comparison are enough. Any other spelling
takes the slow, exact path. Neither path recurses without bound or builds huge integers.
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
            # The value encodes back to the very same bytes: no part was dropped, doubled or
            # rounded.
            return value
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass  # the slow path reports the error
    return _strict_json_slowly(raw, what)


def _has_long_number(raw: bytes) -> bool:
    """
    Check whether the text may hold an integer beyond 2**53. Most texts have fewer digits than that
    in all, which is quick to count.
    """
    return (
        len(raw.translate(None, _NOT_DIGITS)) >= _INTEGER_DIGITS_MAX
        and _LONG_DIGITS.search(raw) is not None
    )


def check_depth(raw: bytes, *, what: str) -> None:
    """
    Refuse text that nests deeper than the bound, before any parser recurses into it. Call it before
    every parse that is not `strict_json`.
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
    # The decoder keeps escaped surrogates as they are; raw ones were refused as invalid UTF-8.
    if b"\\u" in raw and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        _refuse(what, "a lone surrogate is no character")
    return value


def _refuse(what: str, why: str, cause: BaseException | None = None) -> NoReturn:
    raise Refused(
        f"{what} are not strict JSON: {why}",
        code="malformed",
        hint="send plain JSON as in RFC 8259",
    ) from cause
