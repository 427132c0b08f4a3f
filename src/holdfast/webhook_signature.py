"""
Signatures of Standard Webhooks 1.0, to make and to check.

The signed bytes are `ID.TIMESTAMP.BODY`. Nothing of a body is read before its signature holds.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Sequence

PREFIX = "whsec_"
SECRET_BYTES_MIN = 24  # of the standard; a shorter one could be guessed
WINDOW_SECONDS = 300  # a request that is older or comes from the future was recorded, or is forged
_ID = re.compile(r"[\x21-\x2d\x2f-\x7e]{1,200}\Z")  # printable, without the dot that separates
_TIMESTAMP = re.compile(r"[0-9]{1,12}\Z")
_SIGNATURES_MAX = 8  # of one request; a sender that changes keys has two


def secret_bytes(text: str) -> bytes | None:
    """
    Return the key in a secret's text; None if it is not one.

    >>> secret_bytes("whsec_" + "QUJD" * 8) == b"ABC" * 8
    True
    >>> secret_bytes("whsec_QUJD") is None
    True
    """
    if not text.startswith(PREFIX):
        return None
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) >= SECRET_BYTES_MIN else None


def signature(key: bytes, *, ident: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`."""
    return "v1," + _mac(key, ident, str(timestamp), body)


def is_signed(
    keys: Sequence[bytes],
    *,
    ident: str | None,
    timestamp: str | None,
    signatures: str | None,
    body: bytes,
    now_seconds: int,
) -> bool:
    """Return whether one of the signatures is by one of the keys, and the time is near."""
    if ident is None or not _ID.match(ident):
        return False
    if timestamp is None or not _TIMESTAMP.match(timestamp):
        return False
    if signatures is None or abs(now_seconds - int(timestamp)) > WINDOW_SECONDS:
        return False
    given = [
        each.removeprefix("v1,").encode("ascii", "replace")
        for each in signatures.split(" ")[:_SIGNATURES_MAX]
        if each.startswith("v1,")
    ]
    wanted = [_mac(key, ident, timestamp, body).encode() for key in keys]
    # Every pair is compared, so that the time tells nothing.
    return bool(sum(hmac.compare_digest(one, other) for one in given for other in wanted))


def _mac(key: bytes, ident: str, timestamp: str, body: bytes) -> str:
    signed = f"{ident}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
