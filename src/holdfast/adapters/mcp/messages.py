"""
JSON-RPC messages of MCP as bytes: written from our own values, read strictly.

A message that two readers could understand differently is refused as a whole: a key that stands
twice, a member in odd case, a number that cannot be read. Such differences let a message pass one
program and mean something else to the next.
"""

from typing import Any, NamedTuple

import msgspec

from holdfast.errors import Refused
from holdfast.journal.strict import strict_json

METHOD_NOT_FOUND = -32601
_ID_CHARS_MAX = 512

_REPLY = frozenset({"jsonrpc", "id", "result", "error"})
_REQUEST = frozenset({"jsonrpc", "id", "method", "params"})


class Malformed(Exception):
    """The message is not one that MCP allows. The text says why, and holds nothing of it."""


class ServerReply(NamedTuple):
    """The other side's word about one of our requests: exactly one of the two is set."""

    id: int
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    raw: bytes = b""  # the one that is set, as it was sent


class FromServer(NamedTuple):
    """A request or, without an id, a notification of the server."""

    method: str
    id: int | str | None
    params: dict[str, Any] = {}  # noqa: RUF012  never changed


def write_request(number: int, method: str, params: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def write_notification(method: str, params: Any = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return msgspec.json.encode(message if params is None else {**message, "params": params})


def write_result(request: FromServer, result: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result})


def write_answer(request: FromServer) -> bytes:
    """Answer a ping. Refuse every other request: a server gets nothing from us by asking."""
    head: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
    if request.method == "ping":
        return write_result(request, {})
    refusal = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
    return msgspec.json.encode({**head, "error": refusal})


def read_message(data: bytes) -> ServerReply | FromServer:
    """Return the message. Raise Malformed."""
    try:
        value = strict_json(data, what="the server's messages", any_integer=True)
    except Refused as exc:
        raise Malformed(exc.message) from exc
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise Malformed("the server sent something that is not a JSON-RPC message")
    if "method" in value:
        return _from_server(value)
    if not set(value) <= _REPLY:
        raise Malformed("the server's reply has members that JSON-RPC does not know")
    return _reply(value, data)


def _from_server(value: dict[str, Any]) -> FromServer:
    number, method, params = value.get("id"), value["method"], value.get("params", {})
    if (
        not set(value) <= _REQUEST
        or not isinstance(method, str)
        or isinstance(number, bool)
        or not isinstance(number, int | str | None)
        or (isinstance(number, str) and len(number) > _ID_CHARS_MAX)
        or not isinstance(params, dict)
    ):
        raise Malformed("the server sent a request that JSON-RPC does not allow")
    return FromServer(method, number, params)


class _RawReply(msgspec.Struct):
    """The text of a reply's parts. No key stands twice in it, so there is one text for each."""

    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


def _reply(value: dict[str, Any], data: bytes) -> ServerReply:
    number, result, error = value.get("id"), value.get("result"), value.get("error")
    if isinstance(number, bool) or not isinstance(number, int):
        raise Malformed("the server's reply names none of our requests")
    if ("result" in value) == ("error" in value):
        raise Malformed("the server's reply has neither or both of result and error")
    found = result if "result" in value else error
    if not isinstance(found, dict):
        raise Malformed("the server's result or error is not an object")
    raw = msgspec.json.decode(data, type=_RawReply)
    return ServerReply(number, result, error, bytes(raw.result) or bytes(raw.error))
