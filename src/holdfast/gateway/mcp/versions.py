"""
The versions of MCP that clients speak, from the server's side.

2026-07-28 has no handshake: each request carries its version in `_meta`, and over HTTP again in
headers, which must agree. Older versions begin with `initialize`.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.gateway.mcp.rpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    UNSUPPORTED_VERSION,
    ClientMessage,
    RpcProblem,
)

STATELESS = "2026-07-28"
HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PREFIX = "io.modelcontextprotocol/"
NAME_MEMBERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose subject stands in a header too, with the member that names it."""


class Spoken(NamedTuple):
    """How a client speaks: with or without a handshake, and the name that it gives itself."""

    is_stateless: bool
    client_info: Any


def spoken_by(message: ClientMessage, header: Callable[[str], str | None]) -> Spoken:
    """Return how this request is spoken. Raise RpcProblem if its parts disagree."""
    meta = message.params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    given = header("mcp-protocol-version")
    version = meta.get(f"{PREFIX}protocolVersion")
    if version is None and (message.method == "initialize" or given in (None, *HANDSHAKES)):
        if message.method == "server/discover":
            raise RpcProblem(INVALID_PARAMS, f"params._meta lacks {PREFIX}protocolVersion")
        return Spoken(is_stateless=False, client_info=None)
    if not isinstance(version, str) or f"{PREFIX}clientCapabilities" not in meta:
        missing = f"{PREFIX}protocolVersion and {PREFIX}clientCapabilities"
        raise RpcProblem(INVALID_PARAMS, f"params._meta must have {missing}")
    _check_headers(message, version, header)
    if version != STATELESS:
        raise RpcProblem(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": [STATELESS], "requested": version},
        )
    return Spoken(is_stateless=True, client_info=meta.get(f"{PREFIX}clientInfo"))


def is_of_handshake(message: ClientMessage, header: Callable[[str], str | None]) -> bool:
    """Whether a request that was refused is of an older client, whose errors have no status."""
    meta = message.params.get("_meta", {})
    is_newer = not isinstance(meta, dict) or any(key.startswith(PREFIX) for key in meta)
    return not is_newer and header("mcp-protocol-version") in (None, *HANDSHAKES)


def _check_headers(
    message: ClientMessage, version: str, header: Callable[[str], str | None]
) -> None:
    if header("mcp-protocol-version") != version:
        raise RpcProblem(HEADER_MISMATCH, "the header MCP-Protocol-Version is not the message's")
    if header("mcp-method") != message.method:
        raise RpcProblem(HEADER_MISMATCH, "the header Mcp-Method is not the message's method")
    name = message.params.get(NAME_MEMBERS.get(message.method or "", ""))
    if name is not None and plain_value(header("mcp-name")) != name:
        raise RpcProblem(HEADER_MISMATCH, "the header Mcp-Name is not the message's own")


def plain_value(value: str | None) -> str | None:
    """Read a header's value. One that is not plain ASCII comes as `=?base64?...?=`."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def header_value(text: str) -> str:
    """
    Write a text as a header's value.

    >>> header_value("files.read"), header_value("größe")
    ('files.read', '=?base64?Z3LDtsOfZQ==?=')
    """
    if text.isascii() and text.isprintable() and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def agreed(requested: object) -> str:
    """Return the version of a handshake: the client's own if it is known, else the newest."""
    return requested if isinstance(requested, str) and requested in HANDSHAKES else HANDSHAKES[0]
