"""
The form of tokens and one-time codes: `hf_`, 43 base62 digits (256 random bits), 6 base62 digits of
checksum.

The checksum makes an unknown token recognisable in any text, including revoked ones and those of
other homes. Any other text passes for a token with a chance of 1 in 62**6. The spans below point at
tokens as written, in base64 (three alignments) and in hex.
"""

import base64
import binascii
import re
from collections.abc import Iterator

from blake3 import blake3

PREFIX = "hf_"
BODY_DIGITS = 43
CHECK_DIGITS = 6
TOKEN_CHARS = len(PREFIX) + BODY_DIGITS + CHECK_DIGITS
RANDOM_BYTES = 32

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RAW = re.compile(rb"hf_[0-9A-Za-z]{%d}" % (BODY_DIGITS + CHECK_DIGITS))
_BASE64_CHARS = 70  # characters of the standard alphabet that hold a token at any alignment
# Where a token begins, by alignment: the characters that `hf_` fills alone, and placeholders for
# the ones it shares with the byte before it.
_BASE64_STARTS = (
    (re.compile(rb"aGZf[A-Za-z0-9+/]{66}"), b"", 0),
    (re.compile(rb"hmX[A-Za-z0-9+/]{66}"), b"AG", 1),
    (re.compile(rb"oZl[A-Za-z0-9+/]{66}"), b"AAB", 2),
)
_HEX = re.compile(rb"68665f[0-9a-f]{%d}" % (2 * (BODY_DIGITS + CHECK_DIGITS)))
# Bytes that every token has, in each of its forms.
STARTS_AS_WRITTEN = (b"hf_",)
STARTS_IN_BASE64 = (b"aGZf", b"hmX", b"oZl")
STARTS_IN_HEX = (b"68665f",)
_BEGUN = re.compile(rb"(?:h|hf|hf_[0-9A-Za-z]{0,%d})\Z" % (BODY_DIGITS + CHECK_DIGITS - 1))
_BEGUN_BASE64 = re.compile(
    rb"(?:aG?Z?|aGZf[A-Za-z0-9+/]{0,65}|hm?|hmX[A-Za-z0-9+/]{0,65}|oZ?|oZl[A-Za-z0-9+/]{0,65})\Z"
)
_BEGUN_HEX = re.compile(
    rb"(?:68?6?6?5?|68665f[0-9a-f]{0,%d})\Z" % (2 * (BODY_DIGITS + CHECK_DIGITS) - 1)
)


def token_of(random: bytes) -> str:
    """
    The token that these 32 random bytes make.

    >>> token_of(bytes(32))
    'hf_0000000000000000000000000000000000000000000nx3WXs'
    """
    body = _base62(int.from_bytes(random[:RANDOM_BYTES], "big"), BODY_DIGITS)
    return f"{PREFIX}{body}{_check_of(body.encode())}"


def is_token(text: str) -> bool:
    """
    >>> is_token(token_of(bytes(32))), is_token("hf_" + "0" * 49)
    (True, False)
    """
    return (
        len(text) == TOKEN_CHARS
        and text.isascii()
        and _RAW.match(text.encode()) is not None
        and _is_sound(text.encode())
    )


def spans_as_written(data: bytes) -> Iterator[tuple[int, int]]:
    if b"hf_" in data:
        for found in _RAW.finditer(data):
            if _is_sound(found[0]):
                yield found.span()


def spans_in_base64(data: bytes) -> Iterator[tuple[int, int]]:
    """
    Find tokens in text of the standard alphabet. The spans exclude the characters that a token
    shares with its neighbours.
    """
    for start, before, skipped in _BASE64_STARTS:
        for found in start.finditer(data):
            whole = before + found[0]
            try:
                decoded = base64.b64decode(whole + b"A" * (-len(whole) % 4))
            except binascii.Error:
                continue
            if _is_sound(decoded[skipped : skipped + TOKEN_CHARS]):
                yield found.span()


def spans_in_hex(data: bytes) -> Iterator[tuple[int, int]]:
    """Find tokens in text of lower-case digits."""
    if b"68665f" in data:
        for found in _HEX.finditer(data):
            if _is_sound(bytes.fromhex(found[0].decode())):
                yield found.span()


def begun_as_written(data: bytes) -> int:
    """Count the bytes at the end that may be the beginning of an incomplete token."""
    return _length(_BEGUN.search(data, max(len(data) - TOKEN_CHARS, 0)))


def begun_in_base64(data: bytes) -> int:
    return _length(_BEGUN_BASE64.search(data, max(len(data) - _BASE64_CHARS, 0)))


def begun_in_hex(data: bytes) -> int:
    return _length(_BEGUN_HEX.search(data, max(len(data) - 2 * TOKEN_CHARS, 0)))


def _length(found: re.Match[bytes] | None) -> int:
    return len(found[0]) if found is not None else 0


def _is_sound(token: bytes) -> bool:
    if _RAW.fullmatch(token) is None:
        return False
    body = token[len(PREFIX) : -CHECK_DIGITS]
    return _check_of(body).encode() == token[-CHECK_DIGITS:]


def _check_of(body: bytes) -> str:
    return _base62(
        int.from_bytes(blake3(b"holdfast token check 1\0" + body).digest(length=8), "big")
        % 62**CHECK_DIGITS,
        CHECK_DIGITS,
    )


def _base62(number: int, digits: int) -> str:
    found = []
    for _ in range(digits):
        number, digit = divmod(number, len(_DIGITS))
        found.append(_DIGITS[digit])
    return "".join(reversed(found))
