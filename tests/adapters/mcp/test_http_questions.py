"""A server behind an address asks a person inside of an open call, on either of its streams."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import alice, outcome
from tests.adapters.mcp.test_http import DONE, TEXT, Web, handshake
from tests.adapters.mcp.web_server import Answer, Got, WebServer, http, serving

FORM = {
    "message": "Tell me",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Asking:
    """Asks once in each call, on the stream of the call or on that of the session."""

    def __init__(self, *, on_session: bool) -> None:
        self.on_session = on_session
        self.asked, self.answered = asyncio.Event(), asyncio.Event()
        self.answer: Any = None
        self.streams = 0

    def __call__(self, server: WebServer, got: Got) -> Answer:
        if got.method == "GET" and self.on_session:
            self.streams += 1
            return self._of_session()
        if got.method != "POST":
            return http("405 Method Not Allowed", b"", kind="text/plain")
        if "method" not in got.message and "result" in got.message:
            assert got.headers["mcp-session-id"] == "s-1"
            self.answer = got.message
            self.answered.set()
            return http("202 Accepted", b"")
        return handshake(self._of_call)(server, got)

    def _of_call(self, got: Got) -> Answer:
        return self._call(got)

    async def _call(self, got: Got) -> AsyncIterator[bytes]:
        yield HEAD
        if not self.on_session:
            yield _event({"id": "q-1", "method": "elicitation/create", "params": FORM})
        self.asked.set()
        await self.answered.wait()
        yield _event({"id": got.message["id"], "result": DONE})

    async def _of_session(self) -> AsyncIterator[bytes]:
        yield HEAD
        await self.asked.wait()
        yield _event({"id": "q-1", "method": "elicitation/create", "params": FORM})
        yield _event({"id": 7, "method": "roots/list"})
        await asyncio.Event().wait()  # until the client leaves


def _event(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n"


@pytest.fixture
def web(tmp_path: Path) -> Web:
    return Web(tmp_path / "home")


@pytest.mark.parametrize("on_session", [False, True])
def test_a_question_of_either_stream_is_answered_inside_of_the_one_call(
    web: Web, on_session: bool
) -> None:
    @in_loop
    async def story() -> None:
        asking = Asking(on_session=on_session)
        async with serving(asking) as server:
            home = await web.pinned(server)
            (prompt,) = (await home.send("ops/a", TEXT, source=alice)).approvals
            calling = asyncio.ensure_future(home.answer(prompt, "approve_once", by=alice))
            await asking.asked.wait()
            async with asyncio.timeout(20):
                while not (found := await home.approvals()):  # noqa: ASYNC110  # of another task
                    await asyncio.sleep(0.01)
            assert (found[0].kind, "Tell me" in found[0].display) == ("question", True)
            await home.answer(found[0], "answer", by=alice, reason="Ada", wait=False)
            assert (await calling).turn.outcome == "completed"
            assert (await outcome(home))[0] == "ok"
            await home.__aexit__(None, None, None)
            assert len(server.calls()) == 1
            assert asking.streams == on_session
        assert asking.answer == {
            "jsonrpc": "2.0",
            "id": "q-1",
            "result": {"action": "accept", "content": {"name": "Ada"}},
        }

    story()
