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

_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER_DIGITS_MAX = len(str(INTEGER_MAX))
_ANY_INTEGER_DIGITS_MAX = 64  # of 128 bits, with room; longer ones cost the reader its time
# Each digit becomes a zero, so that a run of digits is found without a regular expression.
_AS_ZEROS = bytes(ord("0") if chr(byte) in "0123456789" else byte for byte in range(256))
_LONG_DIGITS = b"0" * _INTEGER_DIGITS_MAX

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def strict_json(data: bytes | str, *, what: str, any_integer: bool = False) -> Any:
    """
    The value of a JSON text, or `Refused` with code `malformed`. `any_integer` is for text that is
    never digested: another program's number may have 64 bits.

    >>> strict_json(b'{"cmd": "ls"}', what="the arguments")
    {'cmd': 'ls'}
    >>> strict_json('{"cmd": "ls", "cmd": "rm"}', what="the arguments")
    Traceback (most recent call last):
    holdfast.errors.Refused: the arguments are not strict JSON: key 'cmd' stands twice
    """
    raw = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    if raw.count(b"[") + raw.count(b"{") > JSON_DEPTH_MAX:
        check_depth(raw, what=what)
    try:
        value = _decode(raw)
        # The value encodes back to the very same bytes, blanks between the parts aside: no part was
        # dropped, doubled or rounded. An integer beyond 2**53 has a long run of digits.
        same = (encoded := _encode(value)) == raw or encoded == _without_blanks(raw)
        if same and (any_integer or raw.translate(_AS_ZEROS).find(_LONG_DIGITS) < 0):
            return value
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass  # the slow path reports the error
    return _strict_json_slowly(raw, what, any_integer=any_integer)


def _without_blanks(raw: bytes) -> bytes:
    return msgspec.json.format(raw, indent=-1)


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


def _strict_json_slowly(raw: bytes, what: str, *, any_integer: bool) -> Any:
    def constant(text: str) -> NoReturn:
        _refuse(what, f"{text} is not a number")

    def integer(text: str) -> int:
        if any_integer and len(text) <= _ANY_INTEGER_DIGITS_MAX:
            return int(text)
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
        _refuse(what, "a lone surrogate is not a character")
    return value


def _refuse(what: str, why: str, cause: BaseException | None = None) -> NoReturn:
    raise Refused(
        f"{what} are not strict JSON: {why}",
        code="malformed",
        hint="send plain JSON as in RFC 8259",
    ) from cause
