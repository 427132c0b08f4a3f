"""A hostile server behind an address: nothing that it says ends more than its own call."""

import asyncio
import base64
import gzip
import tracemalloc
from typing import Any

import pytest

from holdfast.errors import Refused
from holdfast.home import Home
from holdfast.runtime.jobs.reports import JobReport
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import alice, approved, outcome
from tests.adapters.mcp.test_http import DONE, TEXT, Web, handshake, modern, web
from tests.adapters.mcp.test_tasks import TASK
from tests.adapters.mcp.web_server import Answer, Got, WebServer, http, reply, serving

__all__ = ["web"]
MIB = 1024 * 1024


@pytest.mark.parametrize("session", ["s\xe9", "s 1", "\xff" * 300, "s" * 513])
@in_loop
async def test_a_session_id_that_no_header_may_carry_is_not_repeated(
    web: Web, session: str
) -> None:
    def answer(server: WebServer, got: Got) -> Answer:
        whole = handshake(lambda each: reply(each, DONE))(server, got)
        named = session.encode("latin-1")
        return whole.replace(b"s-1", named) if isinstance(whole, bytes) else whole

    async with serving(answer) as server:
        home = await web.pinned(server)
        try:
            await approved(home, TEXT)
            assert (await outcome(home))[0] == "ok"
        finally:
            await home.__aexit__(None, None, None)
    assert all("mcp-session-id" not in each.headers for each in server.got)


@pytest.mark.parametrize("name", ["t\xe9", "a\r\nx-evil: 1", "t\x00", " t ", "=?base64?dA==?="])
@in_loop
async def test_a_task_may_have_any_name(web: Web, name: str) -> None:
    """Its name is journalled, so one that nobody could ask for would end every later process."""

    def call(got: Got) -> Answer:
        if got.message["method"] != "tasks/get":
            return reply(got, {**TASK, "taskId": name})
        done = {"taskId": name, "status": "completed", "result": DONE}
        return reply(got, {"resultType": "complete", **done})

    async with serving(modern(call)) as server:
        home = await web.pinned(server)
        try:
            await approved(home, TEXT)
            job = await _ended(home)
        finally:
            await home.__aexit__(None, None, None)
    assert job.outcome == "ok"
    (asked, *_) = server.calls("tasks/get")
    assert asked.message["params"]["taskId"] == name
    wrapped = base64.b64encode(name.encode()).decode()
    assert asked.headers["mcp-name"] == f"=?base64?{wrapped}?="
    assert "x-evil" not in asked.headers


async def _ended(home: Home) -> JobReport:
    async with asyncio.timeout(30):
        while True:
            (job,) = await home.jobs(by=alice, everything=True)
            if job.state == "ended":
                return job
            await asyncio.sleep(0.05)


@in_loop
async def test_a_compressed_answer_fills_no_memory(web: Web) -> None:
    packed = gzip.compress(b" " * 512 * MIB, 9)

    def call(_: Got) -> Any:
        return http("200 OK", packed, "content-encoding: gzip")

    async with serving(modern(call)) as server:
        home = await web.pinned(server)
        tracemalloc.start()
        try:
            await approved(home, TEXT)
            assert tracemalloc.get_traced_memory()[1] < 32 * MIB
            assert (await outcome(home))[0] == "in_doubt"
        finally:
            tracemalloc.stop()
            await home.__aexit__(None, None, None)
    assert len(server.calls()) == 1


@pytest.mark.parametrize("token", ["tok\xe9n", "a b", "a\r\nx-evil: 1", "a\n"])
@in_loop
async def test_a_token_that_no_header_can_carry_is_not_sent(
    web: Web, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("WEB_TOKEN", token)
    async with serving(modern(lambda each: reply(each, DONE))) as server:
        with pytest.raises(Refused, match="WEB_TOKEN holds something that is not a token") as found:
            await web.pinned(server, 'token_env = "WEB_TOKEN"')
    assert (server.got, token in str(found.value)) == ([], False)
