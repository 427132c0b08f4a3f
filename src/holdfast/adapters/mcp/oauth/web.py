"""Requests to an issuer: one request, one bounded JSON object. No redirect is followed."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.adapters.mcp.http_library import http_library
from holdfast.errors import Refused
from holdfast.journal.strict import strict_json
from holdfast.session.view.safe_text import render_line

_SECONDS = 10.0  # for each part of an answer
_WHOLE_SECONDS = 30.0
_BYTES_MAX = 256 * 1024
_SAID_CHARS_MAX = 200
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_REFUSED = range(400, 500)


class LoginFailed(Exception):
    """No token can be had. The text says why, and names no secret."""


class WebAnswer(msgspec.Struct, frozen=True):
    status: int
    body: dict[str, Any]  # empty for anything that is not a JSON object

    @property
    def is_ok(self) -> bool:
        return self.status in range(200, 300)

    @property
    def said(self) -> str:
        """The issuer's own reason for a refusal, as one line."""
        words = [self.body.get("error"), self.body.get("error_description")]
        text = ": ".join(each for each in words if isinstance(each, str) and each)
        return render_line(text[:_SAID_CHARS_MAX]).text or f"status {self.status}"


def is_fit(address: object, server: str) -> bool:
    """
    Return whether Holdfast may use this address that a server, or its issuer, has named: https, or
    http on this machine for a server on this machine.
    """
    if not isinstance(address, str) or any(letter.isspace() for letter in address):
        return False
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or parts.password is not None or parts.fragment:
        return False
    if parts.scheme == "https":
        return True
    return parts.scheme == "http" and {host, urlsplit(server).hostname} <= _THIS_MACHINE


async def fetch(address: str) -> WebAnswer:
    return await _asked("GET", address)


async def post_form(
    address: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> WebAnswer:
    return await _asked("POST", address, data=dict(form), headers=dict(headers or {}))


async def post_json(address: str, body: Mapping[str, Any]) -> WebAnswer:
    return await _asked("POST", address, json=dict(body))


async def _asked(method: str, address: str, **more: Any) -> WebAnswer:
    library = http_library()
    headers = {"accept": "application/json", **more.pop("headers", {})}
    try:
        async with (
            asyncio.timeout(_WHOLE_SECONDS),
            library.AsyncClient(
                follow_redirects=False, trust_env=False, timeout=_SECONDS
            ) as client,
            client.stream(method, address, headers=headers, **more) as response,
        ):
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _BYTES_MAX:
                    raise LoginFailed(f"{_place(address)} sent more than {_BYTES_MAX} bytes")
    except (library.HTTPError, library.StreamError, library.InvalidURL) as exc:
        raise LoginFailed(f"{_place(address)} gives no answer ({type(exc).__name__})") from exc
    except TimeoutError:
        raise LoginFailed(f"{_place(address)} did not end its answer in time") from None
    if response.status_code not in _REFUSED and not 200 <= response.status_code < 300:  # noqa: PLR2004
        raise LoginFailed(f"{_place(address)} answered with the status {response.status_code}")
    return WebAnswer(response.status_code, _object(bytes(body)))


def _object(body: bytes) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything that two readers could read differently."""
    try:
        found = strict_json(body, what="the issuer's words", any_integer=True)
    except Refused:
        return {}
    return found if isinstance(found, dict) else {}


def _place(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
