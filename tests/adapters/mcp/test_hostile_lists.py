"""A hostile server's list: bounded in bytes and time, and quoted without its own characters."""

import json
import time

import pytest

from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import ECHO, Rig, approved, outcome

pytestmark = pytest.mark.needs_system("bwrap")
TITLE = "\x1b]0;evil\x07"


@in_loop
async def test_a_problem_holds_no_text_of_the_server(rig: Rig) -> None:
    error = json.dumps({"code": TITLE * 20_000, "message": "x"})
    names = [{**ECHO, "name": TITLE * 1000}] * 2
    async with rig.pinned() as home:
        for plan in (
            {"raw": {"tools/list": f'{{"jsonrpc":"2.0","id":$ID,"error":{error}}}'}},
            {"tools": [ECHO, *names]},
        ):
            rig.plan(**plan)
            (server,) = await home.service.servers.list()
            assert server.state == "unreachable"
            assert len(server.problem) < 300
            assert server.problem.isprintable()


@in_loop
async def test_a_list_of_many_large_pages_is_given_up(rig: Rig) -> None:
    large = "x" * 3_000_000
    rig.plan(pages=[[{**ECHO, "name": f"t{n}", "title": large}] for n in range(20)])
    async with rig.open() as home:
        (server,) = await home.service.servers.list()
        assert "longer than 16 MiB" in server.problem
    assert len(rig.got("tools/list")) < 10


@in_loop
async def test_a_list_that_comes_slowly_has_one_time_for_all_its_pages(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.mcp.protocol.MCP_LIST_SECONDS", 1.0)
    rig.plan(pages=[[{**ECHO, "name": f"t{n}"}] for n in range(200)], page_seconds=0.4)
    async with rig.open() as home:
        began = time.monotonic()
        (server,) = await home.service.servers.list()
        assert "within 1 s" in server.problem
        assert time.monotonic() - began < 20
    assert len(rig.got("tools/list")) < 10


@in_loop
async def test_a_server_that_talks_without_end_is_cut_off(rig: Rig) -> None:
    async with rig.pinned() as home:
        rig.plan(tools=[ECHO], call={"do": "talk", "lines": 400_000, "of": 100})
        await approved(home)
        kind, text = await outcome(home)
        assert (kind, "more than 16 MiB" in text) == ("in_doubt", True)
        rig.plan(tools=[ECHO])
        await approved(home, "wire.echo text=again", "ops/b")
        assert (await outcome(home, "ops/b"))[0] == "ok"
