"""The SDK's own client through the proxy, over both transports and on both wires."""

import asyncio
from typing import Any

import pytest

from holdfast.testing.loop import in_loop
from tests.acceptance.gateway.proxy.conftest import Proxied, text_of

pytestmark = [pytest.mark.needs_system("bwrap"), pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("wire", "transport"),
    [
        ("legacy", "stdio"),
        ("2026-07-28", "http"),
        pytest.param("legacy", "http", marks=pytest.mark.long),
        pytest.param("2026-07-28", "stdio", marks=pytest.mark.long),
    ],
)
@in_loop
async def test_a_client_gets_results_prompts_and_outcomes(
    proxied: Proxied, wire: str, transport: str
) -> None:
    """One story: an allowed call, a call that waits, its repeat, its answer and its outcome."""
    in_thread = asyncio.to_thread
    async with proxied.client(wire, transport) as client:
        listed = await client.list_tools()
        names = [each.name for each in listed.tools]
        assert names == ["wire.echo", "wire.quick", "holdfast.outcome"]
        allowed = await client.call_tool("wire.quick", {"text": "now"})
        assert (text_of(allowed), bool(allowed.is_error)) == ('{"text": "now"}', False)
        waits = await client.call_tool("wire.echo", {"text": "later"})
        prompt = await in_thread(proxied.waiting)
        assert waits.is_error
        assert prompt["id"] in text_of(waits)
        assert "holdfast.outcome" in text_of(waits)
        again = await client.call_tool("wire.echo", {"text": "later"})
        assert prompt["id"] in text_of(again)
        early = await client.call_tool("holdfast.outcome", {"id": prompt["id"]})
        assert "Not run yet" in text_of(early)
        assert len(proxied.rig.got()) == 1
        await in_thread(proxied.answer, prompt)
        await in_thread(proxied.sent, 2)
        result: Any = await client.call_tool("holdfast.outcome", {"id": prompt["id"]})
        while "runs now" in text_of(result):
            result = await client.call_tool("holdfast.outcome", {"id": prompt["id"]})
        assert (text_of(result), bool(result.is_error)) == ('{"text": "later"}', False)
        assert (await client.list_tools()).tools[-1].name == "holdfast.outcome"
    assert [each["params"]["arguments"]["text"] for each in proxied.rig.got()] == ["now", "later"]
    session = prompt["session"]
    assert session.startswith("mcp/claude-code.")
