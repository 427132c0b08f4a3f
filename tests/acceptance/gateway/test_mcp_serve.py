"""`holdfast mcp serve`: an assistant reads a home, sends if its token may, and answers nothing."""

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.acceptance.gateway.conftest import Gateway

READS = {"sessions", "session", "approvals", "approval", "outcome"}


@pytest.fixture
def served(gateway: Gateway) -> Gateway:
    """Alice has one prompt that waits, and bob one conversation."""
    gateway.settings('[agents.assistant]\ntools = ["shell", "now"]\n')
    gateway.home.chmod(0o700)
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    assert gateway.send(alice, "a/one", "run: echo hi").status_code == 202
    gateway.waiting(alice)
    bob = gateway.client(gateway.token("bob"))
    assert gateway.send(bob, "b/two", "hello").status_code == 202
    return gateway


def environment(gateway: Gateway, token: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {**kept, "HOLDFAST_TOKEN": token, "HOLDFAST_URL": gateway.url}


def command(gateway: Gateway) -> list[str]:
    return [sys.executable, "-m", "holdfast", "--home", str(gateway.home), "mcp", "serve"]


def told(gateway: Gateway, token: str, *messages: Any) -> list[dict[str, Any]]:
    """Write all lines to the server, close its input, and return its answers."""
    lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
    done = subprocess.run(
        command(gateway),
        input=b"\n".join([*lines, b""]),
        capture_output=True,
        timeout=60,
        check=False,
        env=environment(gateway, token),
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def call(number: int, name: str, **arguments: str) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def test_an_assistant_reads_what_its_token_sees_and_answers_nothing(served: Gateway) -> None:
    token = served.token("alice", "read")
    (prompt,) = served.client(token).get("/v1/approvals").json()["approvals"]
    answers = told(
        served,
        token,
        {"jsonrpc": "2.0", "id": 0, "method": "tools/list"},
        call(1, "sessions"),
        call(2, "approvals"),
        call(3, "approval", id=prompt["id"]),
        call(4, "session", session="b/two"),
        call(5, "outcome", session="a/one"),
        call(6, "send", session="a/one", text="no"),
        *(call(7 + at, name, id=prompt["id"]) for at, name in enumerate(("answer", "approve"))),
        call(9, "approval", id="../tokens"),
        b'{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"x","name":"sessions"}}',
        call(11, "sessions", other="x"),
        {"jsonrpc": "2.0", "id": 12, "method": "resources/read",
         "params": {"uri": "holdfast://approvals"}},
    )  # fmt: skip
    by_id = {each["id"]: each for each in answers}
    assert {each["name"] for each in by_id[0]["result"]["tools"]} == READS
    shown = by_id[1]["result"]["structuredContent"]
    assert [each["session"] for each in shown["sessions"]] == ["a/one"]
    assert by_id[2]["result"]["structuredContent"]["approvals"][0]["id"] == prompt["id"]
    assert by_id[3]["result"]["structuredContent"]["display"] == prompt["display"]
    assert by_id[4]["result"]["isError"]  # bob's conversation does not exist for alice
    assert by_id[5]["result"]["structuredContent"] == {"outcomes": []}  # nothing has ended
    assert [by_id[at]["error"]["message"] for at in (6, 7, 8)] == ["Unknown tool"] * 3
    assert by_id[9]["result"]["isError"]
    assert by_id[None]["error"]["code"] == -32700
    assert by_id[11]["error"]["code"] == -32602
    assert prompt["id"] in by_id[12]["result"]["contents"][0]["text"]
    (still,) = served.client(token).get("/v1/approvals").json()["approvals"]
    assert still == prompt


def test_send_needs_the_scope_and_counts_once(served: Gateway) -> None:
    token = served.token("bob", "read,send")
    given = {"session": "b/two", "text": "what time is it?", "key": "k1"}
    first, again = told(served, token, call(1, "send", **given), call(2, "send", **given))
    taken = [each["result"]["structuredContent"] for each in (first, again)]
    assert taken[0]["input"] == taken[1]["input"]
    strangers = told(served, token, call(3, "session", session="a/one"))
    assert strangers[0]["result"]["isError"]


@pytest.mark.parametrize("scopes", ["read,approve", "admin", "send"])
def test_a_token_that_may_approve_or_cannot_read_is_refused(gateway: Gateway, scopes: str) -> None:
    gateway.start()
    done = subprocess.run(
        command(gateway),
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
        env=environment(gateway, gateway.token("alice", scopes)),
    )
    assert done.returncode != 0
    assert b"an assistant gets read" in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize("wire", ["legacy", "2026-07-28"])
def test_the_clients_of_the_library_can_use_it(served: Gateway, wire: str) -> None:
    first, *words = command(served)
    env = environment(served, served.token("alice", "read"))

    async def story() -> None:
        server = StdioServerParameters(command=first, args=words, env=env)
        async with Client(server, mode=wire) as client:
            assert {each.name for each in (await client.list_tools()).tools} == READS
            result = await client.call_tool("approvals", {})
            assert not result.is_error
            listed = await client.list_resources()
            assert len(listed.resources) == 2
            read = await client.read_resource("holdfast://approvals")
            assert "a/one" in str(read.contents[0])

    asyncio.run(story())
