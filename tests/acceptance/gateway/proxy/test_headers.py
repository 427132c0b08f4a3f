"""Arguments that a pinned schema wants in headers too: both must agree, or nothing is called."""

import base64
import json
from typing import Any

import httpx2
import pytest

from tests.acceptance.gateway.conftest import WAIT_SECONDS
from tests.acceptance.gateway.proxy.conftest import QUICK, Proxied

pytestmark = [pytest.mark.needs_system("bwrap"), pytest.mark.timeout(240)]

PREFIX = "io.modelcontextprotocol/"
ROUTED = {
    **QUICK,
    "inputSchema": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "x-mcp-header": "Region"},
            "of": {"properties": {"number": {"type": "integer", "x-mcp-header": "Number"}}},
        },
    },
}


def posted(
    proxied: Proxied, arguments: dict[str, Any], given: list[tuple[str, str]]
) -> tuple[int, Any]:
    """Call `wire.quick` on the newer wire with these further headers."""
    meta = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}
    params = {"name": "wire.quick", "arguments": arguments, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = [
        ("authorization", f"Bearer {proxied.tokens['alice']}"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "wire.quick"),
    ]
    answer = httpx2.post(
        f"{proxied.gateway.url}/mcp",
        content=json.dumps(message).encode(),
        headers=[*headers, *given],
        timeout=WAIT_SECONDS,
    )
    return answer.status_code, answer.json().get("error", {}).get("code")


def test_a_header_that_is_not_the_argument_calls_nothing(proxied: Proxied) -> None:
    proxied.tools(ROUTED)
    proxied.gateway.stop()
    proxied.gateway.elsewhere(proxied.pin)
    proxied.gateway.start()
    west = {"text": "west"}
    coded = f"=?base64?{base64.b64encode('süd'.encode()).decode()}?="
    for arguments, given in (
        (west, []),
        (west, [("mcp-param-region", "east")]),
        (west, [("mcp-param-region", "WEST")]),
        (west, [("mcp-param-region", "=?base64?***?=")]),
        (west, [("mcp-param-region", "west"), ("mcp-param-region", "west")]),
        (west, [("mcp-param-region", "west"), ("mcp-param-number", "7")]),
        ({}, [("mcp-param-region", "west")]),
        ({"text": None}, [("mcp-param-region", "null")]),
        ({"of": {"number": 7}}, [("mcp-param-number", "8")]),
        ({"of": {"number": 7}}, [("mcp-param-number", "seven")]),
    ):
        assert posted(proxied, arguments, given) == (400, -32020), (arguments, given)
    assert proxied.rig.got() == []
    for arguments, given in (
        (west, [("mcp-param-region", "west")]),
        ({"text": "süd"}, [("mcp-param-region", coded)]),
        ({"of": {"number": 7}}, [("Mcp-Param-Number", "7")]),
        ({"of": {"number": 7}}, [("Mcp-Param-Number", "7.0")]),
        ({}, []),
    ):
        assert posted(proxied, arguments, given) == (200, None), (arguments, given)
    sent = [each["params"]["arguments"] for each in proxied.rig.got()]
    assert sent == [west, {"text": "süd"}, {"of": {"number": 7}}, {"of": {"number": 7}}, {}]


def test_an_error_of_the_server_has_the_status_of_its_code(proxied: Proxied) -> None:
    for code, status in ((-32602, 400), (-32021, 400), (-32601, 404), (-32000, 200)):
        proxied.tools(call={"do": "error", "error": {"code": code, "message": "no"}})
        assert posted(proxied, {"text": str(code)}, []) == (status, code)


@pytest.mark.parametrize(
    ("meta", "status"),
    [
        (None, 200),
        ({"progressToken": 1}, 200),
        ({"traceparent": "00-1"}, 200),
        ({f"{PREFIX}clientCapabilities": {}}, 400),
    ],
)
def test_only_a_newer_clients_error_has_a_status(
    proxied: Proxied, meta: dict[str, Any] | None, status: int
) -> None:
    """A library of the older wire takes the status for a fault on the way, and drops the error."""
    params = {"name": "wire.nope", "arguments": {}, **({} if meta is None else {"_meta": meta})}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = proxied.post(json.dumps(message).encode())
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, -32602)
