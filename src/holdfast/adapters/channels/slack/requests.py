"""
A request of Slack over HTTP: its signature is checked over the bytes, before anything is decoded.

The library's verifier raises on a timestamp that is not a number and on bytes that are not UTF-8,
so this is our own.
"""

import hashlib
import hmac
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec

WINDOW_SECONDS = 300  # as Slack advises: an older request is a replay
_DIGITS_MAX = 12


def is_signed(
    secret: str, header: Callable[[str], str | None], body: bytes, *, now_seconds: int
) -> bool:
    stamp, given = header("x-slack-request-timestamp"), header("x-slack-signature")
    if stamp is None or given is None or not (stamp.isascii() and stamp.isdecimal()):
        return False
    if len(stamp) > _DIGITS_MAX or abs(now_seconds - int(stamp)) > WINDOW_SECONDS:
        return False
    text = b"v0:" + stamp.encode() + b":" + body
    wanted = "v0=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
    return hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace"))


def envelope(body: bytes) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and the payload of a signed body: an event as JSON, a press as a form."""
    try:
        if body.startswith(b"payload="):
            [text] = parse_qs(body.decode(), strict_parsing=True)["payload"]
            payload, kind = msgspec.json.decode(text), "interactive"
        else:
            payload, kind = msgspec.json.decode(body), "events_api"
    except (ValueError, KeyError, RecursionError):
        return None
    return (kind, payload) if isinstance(payload, dict) else None
