"""A client that asks for progress is told that its call waits for a person, on both wires."""

import asyncio
from typing import Any

import pytest

from holdfast.testing.loop import in_loop
from tests.acceptance.gateway.proxy.conftest import Proxied, text_of

pytestmark = [pytest.mark.needs_system("bwrap"), pytest.mark.timeout(240)]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("wire", ["legacy", "2026-07-28"])
@in_loop
async def test_a_call_that_waits_reports_its_prompt_before_its_result(
    proxied: Proxied, wire: str, transport: str
) -> None:
    """The note names the prompt. The answer then comes as if nobody had been asked."""
    proxied.wait("30s")
    await asyncio.to_thread(proxied.gateway.stop)
    await asyncio.to_thread(proxied.gateway.start)
    noted: asyncio.Queue[tuple[float, str]] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        del total
        await noted.put((progress, message or ""))

    async with proxied.client(wire, transport) as client:
        call = asyncio.ensure_future(
            client.call_tool("wire.echo", {"text": "later"}, progress_callback=on_progress)
        )
        progress, message = await noted.get()
        prompt = await asyncio.to_thread(proxied.waiting)
        assert (progress > 0, prompt["id"] in message) == (True, True)
        assert not call.done()
        await asyncio.to_thread(proxied.answer, prompt)
        result: Any = await call
        assert (text_of(result), bool(result.is_error)) == ('{"text": "later"}', False)
        allowed = await client.call_tool(
            "wire.quick", {"text": "now"}, progress_callback=on_progress
        )
        assert text_of(allowed) == '{"text": "now"}'
    assert noted.empty()
    assert len(proxied.rig.got()) == 2
