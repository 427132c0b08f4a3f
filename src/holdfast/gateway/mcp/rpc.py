"""
JSON-RPC messages of a client as bytes: read strictly, answered from our own values.

A message that two readers could understand differently is refused as a whole. So nothing reaches a
server that was decided about in another reading.
"""

from typing import Any, NamedTuple

import msgspec

from holdfast.errors import Refused
from holdfast.journal.strict import strict_json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
SERVER_ERROR = -32000
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

_MEMBERS = frozenset({"jsonrpc", "id", "method", "params"})
_REPLY_MEMBERS = frozenset({"jsonrpc", "id", "result", "error"})


class RpcProblem(Exception):
    """The error that a client gets for its message."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class ClientMessage(NamedTuple):
    """A request; without an id a notification; without a method a reply, which nobody awaits."""

    method: str | None
    id: int | str | None
    params: dict[str, Any]

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.id is not None


def read_client_message(data: bytes) -> ClientMessage:
    """Return the message. Raise RpcProblem."""
    try:
        value = strict_json(data, what="the message's contents")
    except Refused as exc:
        raise RpcProblem(PARSE_ERROR, exc.message) from exc
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise RpcProblem(INVALID_REQUEST, "this is not one JSON-RPC 2.0 message")
    if "method" not in value and set(value) <= _REPLY_MEMBERS:
        return ClientMessage(None, None, {})
    method, ident, params = value.get("method"), value.get("id"), value.get("params", {})
    if (
        not set(value) <= _MEMBERS
        or not isinstance(method, str)
        or ("id" in value and (isinstance(ident, bool) or not isinstance(ident, int | str)))
        or not isinstance(params, dict)
    ):
        raise RpcProblem(INVALID_REQUEST, "this is not a JSON-RPC request")
    return ClientMessage(method, ident, params)


def result_message(ident: int | str | None, result: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": ident, "result": result})


def server_message(ident: int | str | None, reply: bytes) -> bytes:
    """Answer with the server's own bytes: `{"result": ...}` or `{"error": ...}`."""
    return b'{"jsonrpc":"2.0","id":' + msgspec.json.encode(ident) + b"," + reply[1:]


def progress_message(token: int | str, progress: float, text: str) -> bytes:
    params = {"progressToken": token, "progress": progress, "message": text}
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    )


def problem_message(ident: int | str | None, problem: RpcProblem) -> bytes:
    error: dict[str, Any] = {"code": problem.code, "message": problem.message}
    if problem.data is not None:
        error["data"] = problem.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": ident, "error": error})
