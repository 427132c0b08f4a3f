"""A server behind an address: one POST for each request, and the table of outcomes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import ECHO, approved, asked, outcome
from tests.adapters.mcp.web_server import Answer, Got, WebServer, events, http, reply, serving

DONE = {"content": [{"type": "text", "text": "done"}]}
Call = Callable[[Got], Answer]


def modern(call: Call, tool: dict[str, Any] = ECHO) -> Callable[[WebServer, Got], Answer]:
    def answer(_: WebServer, got: Got) -> Answer:
        match got.message.get("method"):
            case "server/discover":
                return reply(got, {"supportedVersions": ["2026-07-28"], "capabilities": {}})
            case "tools/list":
                return reply(got, {"tools": [tool]})
            case _:
                return call(got)

    return answer


def handshake(call: Call) -> Callable[[WebServer, Got], Answer]:
    def answer(_: WebServer, got: Got) -> Answer:
        match got.message.get("method"):
            case "server/discover":
                return http("400 Bad Request", b"no session", kind="text/plain")
            case "initialize":
                version = {"protocolVersion": "2025-11-25", "capabilities": {}}
                return reply(got, version, "mcp-session-id: s-1")
            case "tools/list":
                return reply(got, {"tools": [ECHO]})
            case "tools/call":
                return call(got)
            case _:
                return http("202 Accepted", b"")

    return answer


class Web:
    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()

    async def pinned(self, server: WebServer, more: str = "") -> holdfast.home.Home:
        self.home.joinpath("holdfast.toml").write_text(
            f"[mcp.web]\nurl = {json.dumps(server.url)}\n{more}\n"
            '[agents.ops]\ntools = ["web.*"]\n[limits]\ntool_timeout = "2s"\n',
            encoding="utf-8",
        )
        home = holdfast.open(self.home)
        await home.__aenter__()
        try:
            shown = await home.service.servers.show(["web"])
        except BaseException:
            await home.__aexit__(None, None, None)
            raise
        await home.service.servers.pin([(each.name, each.digest) for each in shown], by="alice")
        return home


@pytest.fixture
def web(tmp_path: Path) -> Web:
    return Web(tmp_path / "home")


TEXT = "web.echo text=hi"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda got: reply(got, DONE), "ok"),
        (
            lambda got: events(
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}},
                {"jsonrpc": "2.0", "id": got.message["id"], "result": DONE},
            ),
            "ok",
        ),
        (lambda got: reply(got, {**DONE, "isError": True}), "error"),
        (
            lambda got: http(
                "400 Bad Request",
                json.dumps(
                    {"jsonrpc": "2.0", "id": got.message["id"], "error": {"code": -32602}}
                ).encode(),
            ),
            "error",
        ),
        (lambda _: http("500 Internal Server Error", b"", kind="text/plain"), "in_doubt"),
        (lambda _: http("307 Temporary Redirect", b"", "location: /other"), "in_doubt"),
        (lambda _: None, "in_doubt"),
        (lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", "in_doubt"),
        (lambda _: events({"jsonrpc": "2.0", "id": 999, "result": DONE}), "in_doubt"),
        (lambda _: http("200 OK", b'{"jsonrpc":"2.0","id":3,"id":4,"result":{}}'), "in_doubt"),
        (lambda _: http("200 OK", b" " * 5_000_000), "in_doubt"),
        (lambda _: http("401 Unauthorized", b"", kind="text/plain"), "in_doubt"),
        (lambda _: http("401 Unauthorized", b"", "www-authenticate: Bearer"), "error"),
        (lambda _: http("403 Forbidden", b"", "www-authenticate: Bearer"), "in_doubt"),
    ],
    ids=[
        "result", "stream", "is_error", "error_for_our_id", "status_500", "redirect", "closed",
        "cut_off", "other_id", "key_twice", "too_long", "status_401",
        "refused_by_name", "status_403",
    ],
)  # fmt: skip
@in_loop
async def test_the_table_of_outcomes(web: Web, call: Call, expected: str) -> None:
    async with serving(modern(call)) as server:
        home = await web.pinned(server)
        try:
            await approved(home, TEXT)
            kind, _ = await outcome(home)
        finally:
            await home.__aexit__(None, None, None)
        assert kind == expected
        assert len(server.calls()) == 1
        assert all(each.method == "POST" for each in server.got)


@in_loop
async def test_a_redirect_is_never_followed(web: Web) -> None:
    async with serving(lambda _, got: reply(got, {})) as other:
        target = f"location: {other.url}"
        away = http("308 Permanent Redirect", b"", target)
        async with serving(modern(lambda _: away)) as server:
            home = await web.pinned(server)
            await approved(home, TEXT)
            await home.__aexit__(None, None, None)
        assert other.got == []


@in_loop
async def test_a_server_that_is_away_runs_nothing(web: Web) -> None:
    async with serving(modern(lambda got: reply(got, DONE))) as server:
        home = await web.pinned(server)
        prompt = await asked(home, TEXT)
    await home.answer(prompt, "approve_once", by=holdfast.MessageSource.local("alice"))
    kind, text = await outcome(home)
    await home.__aexit__(None, None, None)
    assert (kind, "nothing was run" in text) == ("error", True)
    assert server.calls() == []


@in_loop
async def test_a_change_between_list_and_call_never_runs(web: Web) -> None:
    tool = dict(ECHO)
    async with serving(modern(lambda got: reply(got, DONE), tool)) as server:
        home = await web.pinned(server)
        prompt = await asked(home, TEXT)
        tool["description"] = "Now it deletes."
        await home.answer(prompt, "approve_once", by=holdfast.MessageSource.local("alice"))
        kind, _ = await outcome(home)
        await home.__aexit__(None, None, None)
        assert (kind, server.calls()) == ("voided", [])


@in_loop
async def test_a_request_of_the_newer_version_names_itself_and_carries_the_token(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_TOKEN", "a-bearer-token-of-ours")
    properties = {"text": {"type": "string", "x-mcp-header": "Text"}}
    tool = {**ECHO, "inputSchema": {"type": "object", "properties": properties}}
    async with serving(modern(lambda got: reply(got, DONE), tool)) as server:
        home = await web.pinned(server, 'token_env = "WEB_TOKEN"')
        await approved(home, TEXT)
        await home.__aexit__(None, None, None)
        (call,) = server.calls()
    assert call.headers["authorization"] == "Bearer a-bearer-token-of-ours"
    assert call.headers["mcp-protocol-version"] == "2026-07-28"
    assert (call.headers["mcp-method"], call.headers["mcp-name"]) == ("tools/call", "echo")
    assert call.headers["mcp-param-text"] == "hi"
    assert "a-bearer-token-of-ours" not in everything_below(web.home)


def everything_below(folder: Path) -> str:
    files = [each for each in folder.rglob("*") if each.is_file()]
    return "".join(each.read_bytes().decode(errors="replace") for each in files)


@in_loop
async def test_a_token_that_is_not_set_sends_nothing(web: Web) -> None:
    async with serving(modern(lambda got: reply(got, DONE))) as server:
        with pytest.raises(holdfast.Refused, match="WEB_TOKEN that holds its token is not set"):
            await web.pinned(server, 'token_env = "WEB_TOKEN"')
        assert server.got == []


@in_loop
async def test_the_older_version_shakes_hands_and_keeps_its_session(web: Web) -> None:
    async with serving(handshake(lambda got: reply(got, DONE))) as server:
        home = await web.pinned(server)
        await approved(home, TEXT)
        kind, _ = await outcome(home)
        await home.__aexit__(None, None, None)
        (call,) = server.calls()
        assert (kind, call.headers["mcp-session-id"]) == ("ok", "s-1")
        assert call.headers["mcp-protocol-version"] == "2025-11-25"
        assert "_meta" not in call.message["params"]
        assert server.calls("notifications/initialized") != []
        assert server.got[-1].method == "DELETE"


@in_loop
async def test_a_session_that_the_server_ended_is_begun_anew_before_the_call(web: Web) -> None:
    sessions = iter(range(1, 9))
    living: set[str] = set()

    def answer(server: WebServer, got: Got) -> Answer:
        if got.message.get("method") == "initialize":
            name = f"s-{next(sessions)}"
            living.add(name)
            version = {"protocolVersion": "2025-11-25", "capabilities": {}}
            return reply(got, version, f"mcp-session-id: {name}")
        if got.message.get("method") != "server/discover" and (
            got.headers.get("mcp-session-id") not in living
        ):
            return http("404 Not Found", b"", kind="text/plain")
        return handshake(lambda got: reply(got, DONE))(server, got)

    async with serving(answer) as server:
        home = await web.pinned(server)
        prompt = await asked(home, TEXT)
        living.clear()
        await home.answer(prompt, "approve_once", by=holdfast.MessageSource.local("alice"))
        kind, _ = await outcome(home)
        await home.__aexit__(None, None, None)
        assert (kind, len(server.calls())) == ("ok", 1)


BEGUN = b"id: e-1\nretry: 0\ndata: \n\n"


@in_loop
async def test_the_rest_of_a_stream_is_asked_for_and_the_call_is_not_sent_again(web: Web) -> None:
    """On the older wire a server may end a stream and keep its rest."""
    parts = iter([b"id: e-2\ndata: \n\n", None])

    def answer(server: WebServer, got: Got) -> Answer:
        if got.method == "GET" and "last-event-id" not in got.headers:
            return http("405 Method Not Allowed", b"", kind="text/plain")
        if got.method == "GET" and (part := next(parts)) is not None:
            return http("200 OK", part, kind="text/event-stream")
        if got.method == "GET":
            return reply(server.calls()[0], DONE)
        begun = http("200 OK", BEGUN, kind="text/event-stream")
        return handshake(lambda _: begun)(server, got)

    async with serving(answer) as server:
        home = await web.pinned(server)
        await approved(home, TEXT)
        kind, _ = await outcome(home)
        await home.__aexit__(None, None, None)
        asked_for = [each.headers for each in server.got if "last-event-id" in each.headers]
        assert (kind, len(server.calls())) == ("ok", 1)
    assert [each["last-event-id"] for each in asked_for] == ["e-1", "e-2"]
    assert {each["mcp-session-id"] for each in asked_for} == {"s-1"}


@pytest.mark.parametrize(("wire", "looks"), [(handshake, 5), (modern, 0)])
@in_loop
async def test_a_rest_that_does_not_come_leaves_the_call_in_doubt(
    web: Web, wire: Callable[[Call], Callable[[WebServer, Got], Answer]], looks: int
) -> None:
    def answer(server: WebServer, got: Got) -> Answer:
        if got.method == "GET":
            return http("405 Method Not Allowed", b"", kind="text/plain")
        return wire(lambda _: http("200 OK", BEGUN, kind="text/event-stream"))(server, got)

    async with serving(answer) as server:
        home = await web.pinned(server)
        await approved(home, TEXT)
        kind, _ = await outcome(home)
        await home.__aexit__(None, None, None)
        assert (kind, len(server.calls())) == ("in_doubt", 1)
        assert len([each for each in server.got if "last-event-id" in each.headers]) == looks


@in_loop
async def test_a_list_that_is_refused_while_a_call_runs_costs_that_call_nothing(web: Web) -> None:
    runs, go = asyncio.Event(), asyncio.Event()

    async def held(got: Got) -> AsyncIterator[bytes]:
        runs.set()
        await go.wait()
        yield reply(got, DONE)

    plain = modern(held)

    def answer(server: WebServer, got: Got) -> Answer:
        if runs.is_set() and got.message.get("method") == "tools/list":
            error = {"jsonrpc": "2.0", "id": got.message["id"], "error": {"code": -32603}}
            return http("200 OK", json.dumps(error).encode())
        return plain(server, got)

    async with serving(answer) as server:
        home = await web.pinned(server)
        try:
            calling = asyncio.ensure_future(approved(home, TEXT))
            await runs.wait()
            (listed,) = await home.service.servers.list()
            assert "refused tools/list" in listed.problem
            go.set()
            await calling
            assert (await outcome(home))[0] == "ok"
        finally:
            await home.__aexit__(None, None, None)
    assert len(server.calls()) == 1
