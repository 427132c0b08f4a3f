"""
A home as an MCP server shows it: tools that read, and one that sends if the token may.

Each tool is one request to the gateway with the token, so the gateway decides what is visible, and
a revoked token sees nothing from the next call on. No tool answers a prompt, and none ever will: an
assistant that held it could approve its own calls.
"""

import http.client
import secrets
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from holdfast.cli.commands.mcp.relay import GatewayAddress
from holdfast.errors import Unusable
from holdfast.gateway.mcp.rpc import INVALID_PARAMS, RpcProblem
from holdfast.ids import session_id
from holdfast.limits import MCP_MESSAGE_BYTES_MAX

_RECORDS = 200  # the newest records of a session, among which outcomes are looked for
_OUTCOMES = ("turn_ended", "call_finished", "job_ended")
_LOST = (ConnectionError, http.client.HTTPException, OSError)
_TEXT = {"type": "string"}
_OK = range(200, 300)
_ANSWER_SECONDS = 60.0  # the gateway answers each of these at once, unless a home is very busy


class GatewayAnswer(NamedTuple):
    status: int
    body: Any


class ShownTool(NamedTuple):
    """A tool as the client sees it: its text, its fields, and those that a call must have."""

    description: str
    fields: dict[str, Any]
    required: tuple[str, ...] = ()


TOOLS = {
    "sessions": ShownTool(
        "List conversations. `after` is `next` of the page before.", {"after": _TEXT}
    ),
    "session": ShownTool("Show where one conversation stands.", {"session": _TEXT}, ("session",)),
    "approvals": ShownTool("List the prompts that wait for a person. You cannot answer them.", {}),
    "approval": ShownTool("Show one prompt whole. You cannot answer it.", {"id": _TEXT}, ("id",)),
    "outcome": ShownTool(
        "Show how the newest calls, jobs and turns of a conversation ended.",
        {"session": _TEXT},
        ("session",),
    ),
}
SEND = ShownTool(
    "Send a message to a conversation, as the token's person. A message may replace a prompt that "
    "waits. The same `key` and text is accepted once.",
    {"session": _TEXT, "text": _TEXT, "key": _TEXT},
    ("session", "text"),
)
RESOURCES = {"holdfast://sessions": "sessions", "holdfast://approvals": "approvals"}


class ShownHome:
    def __init__(self, gateway: GatewayAddress) -> None:
        self._gateway = gateway
        self._may_send = False

    def check_token(self) -> None:
        """Refuse a token that could do more than it should here. Raise Unusable."""
        try:
            found = self._ask("GET", "/v1/me")
        except _LOST as exc:
            raise Unusable(
                f"Holdfast does not answer at {self._gateway.url}",
                code="unreachable",
                hint="start it: `holdfast serve`",
            ) from exc
        if found.status not in _OK:
            raise Unusable("the token is not valid", code="no_token", hint="`holdfast tokens list`")
        scopes = set(found.body["scopes"])
        if scopes & {"approve", "admin"} or "read" not in scopes:
            raise Unusable(
                f"this token has the scopes {', '.join(sorted(scopes))}; an assistant gets read, or"
                " read and send",
                code="no_authority",
                hint="`holdfast tokens add NAME --as YOU --scopes read`",
            )
        self._may_send = "send" in scopes

    def tools(self) -> dict[str, ShownTool]:
        return {**TOOLS, **({"send": SEND} if self._may_send else {})}

    def call(self, name: str, given: dict[str, str]) -> GatewayAnswer:
        """Make the one request that the tool stands for. Raise RpcProblem or a lost connection."""
        match name:
            case "sessions":
                after = f"?after={quote(given['after'], safe='')}" if "after" in given else ""
                return self._ask("GET", f"/v1/sessions{after}")
            case "session":
                return self._ask("GET", _path(given["session"]))
            case "approvals":
                return self._ask("GET", "/v1/approvals")
            case "approval":
                return self._ask("GET", f"/v1/approvals/{quote(given['id'], safe='')}")
            case "outcome":
                found = self._ask("GET", f"{_path(given['session'])}/records?limit={_RECORDS}")
                return found if found.status not in _OK else _outcomes(found)
            case _:
                return self._send(given)

    def _send(self, given: dict[str, str]) -> GatewayAnswer:
        key = given.get("key") or secrets.token_hex(16)
        body = msgspec.json.encode({"text": given["text"]})
        path = f"{_path(given['session'])}/messages"
        try:
            return self._ask("POST", path, body, {"idempotency-key": key})
        except _LOST:
            detail = "nobody knows whether the message was accepted; send it again with this key"
            return GatewayAnswer(503, {"detail": detail, "key": key})

    def _ask(
        self, method: str, path: str, body: bytes | None = None, more: dict[str, str] | None = None
    ) -> GatewayAnswer:
        headers = {
            "authorization": f"Bearer {self._gateway.token}",
            "content-type": "application/json",
            **(more or {}),
        }
        connection = self._gateway.connect()
        connection.timeout = _ANSWER_SECONDS
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            data = response.read(MCP_MESSAGE_BYTES_MAX + 1)
        finally:
            connection.close()
        if len(data) > MCP_MESSAGE_BYTES_MAX:
            return GatewayAnswer(500, {"detail": "the answer is too long to show"})
        try:
            return GatewayAnswer(response.status, msgspec.json.decode(data))
        except msgspec.MsgspecError:
            return GatewayAnswer(response.status, {"detail": f"the status {response.status}"})


def _path(session: str) -> str:
    try:
        channel, _, thread = session_id(session).partition("/")
    except Unusable as exc:
        raise RpcProblem(INVALID_PARAMS, exc.message) from exc
    return f"/v1/sessions/{quote(channel, safe='')}/{quote(thread, safe='')}"


def _outcomes(found: GatewayAnswer) -> GatewayAnswer:
    records = [each for each in found.body["records"] if each.get("type") in _OUTCOMES]
    return GatewayAnswer(found.status, {"outcomes": records})
