"""
Which handler a request means, and what is told when what was asked for went wrong: looked at with
no server around it.
"""

import asyncio
import errno
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.errors import InvariantBroken, Refused
from holdfast.gateway.http.app import Recorder
from holdfast.gateway.http.asgi import AsgiApp, Message, Receive, Scope, Send
from holdfast.gateway.http.openapi import openapi_document
from holdfast.gateway.http.response import HttpResponse
from holdfast.gateway.http.router import ANY_BEARER, OPEN, ApiCall, Route, Router, StreamRoute
from holdfast.gateway.routes.table import all_routes
from holdfast.gateway.server.metrics import Metrics
from holdfast.gateway.server.tokens import Bearer, TokenAdded
from holdfast.gateway.workers.share import ALL


async def never() -> Message:
    raise AssertionError("nothing of a request is read here")


def asked(app: AsgiApp, path: str = "/", method: str = "GET") -> tuple[list[Message], Scope]:
    """The response, and the scope after the call."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [],
        "query_string": b"",
    }
    asyncio.run(app(scope, never, send))
    return sent, scope


def told(sent: list[Message]) -> tuple[int, str]:
    assert [each["type"] for each in sent] == ["http.response.start", "http.response.body"]
    return sent[0]["status"], msgspec.json.decode(sent[1]["body"])["code"]


# --- which handler


def named(name: str) -> Any:
    async def answer(call: ApiCall[None]) -> HttpResponse:
        parts = call.request.path_parts.items()
        return HttpResponse(" ".join([name, *(f"{k}={v}" for k, v in parts)]).encode())

    return answer


@asynccontextmanager
async def stream(call: ApiCall[None]) -> AsyncGenerator[AsgiApp, None]:
    async def answer(_: Scope, __: Receive, send: Send) -> None:
        await HttpResponse(f"stream of {call.request.path_parts['thing']}".encode())(send)

    yield answer


def route(method: str, path: str, name: str) -> Route[None, None]:
    return Route(method=method, path=path, scope=OPEN, handle=named(name))


async def is_alive(bearer: Bearer) -> bool:
    return bearer.name != "revoked"


ROUTES = Router(
    [
        route("GET", "/things/{thing}", "one"),
        route("GET", "/things/all", "all"),
        route("POST", "/things/{thing}/end", "end"),
        StreamRoute(method="GET", path="/things/{thing}/events", scope=OPEN, open=stream),
        route("DELETE", "/a.b/{x}/{y}", "two"),
        route("GET", "/both", "read"),
        route("PUT", "/both", "written"),
    ],
    is_alive,
)


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/things/all", b"all"), ("GET", "/things/alles", b"one thing=alles"), ("HEAD", "/things/all", b"all"), ("POST", "/things/x/end", b"end thing=x"),
        ("GET", "/things/x/events", b"stream of x"), ("HEAD", "/things/x/events", b"stream of x"), ("DELETE", "/a.b/1/2", b"two x=1 y=2"),
        ("GET", "/both", b"read"), ("PUT", "/both", b"written"),
    ],
)  # fmt: skip
def test_a_path_means_one_handler_and_its_parts_are_whole(
    method: str, path: str, says: bytes
) -> None:
    sent, _ = asked(ROUTES, path, method)
    assert (sent[0]["status"], sent[1]["body"]) == (200, says)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/things",
        "/things/",
        "/things/x/",
        "/things//end",
        "/things/x/y/end",
        "/things/all/",
        "/aXb/1/2",
        "/things/x/end\n",
        "/THINGS/all",
        "things/all",
    ],
)
def test_a_path_that_is_nearly_one_of_ours_has_no_route(path: str) -> None:
    sent, scope = asked(ROUTES, path)
    assert told(sent) == (404, "unknown")
    assert "holdfast.route" not in scope


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/things/all", b"GET, HEAD"), ("get", "/things/all", b"GET, HEAD"), ("GET", "/things/x/end", b"POST"), ("HEAD", "/things/x/end", b"POST"),
        ("POST", "/things/x/events", b"GET, HEAD"), ("OPTIONS", "/a.b/1/2", b"DELETE"), ("POST", "/both", b"GET, HEAD, PUT"),
    ],
)  # fmt: skip
def test_a_method_that_a_path_does_not_have_is_reported_with_those_that_it_has(
    method: str, path: str, allow: bytes
) -> None:
    sent, scope = asked(ROUTES, path, method)
    assert told(sent) == (405, "method")
    assert dict(sent[0]["headers"])[b"allow"] == allow
    assert scope["holdfast.route"].startswith(("/things", "/a.b", "/both"))


NOTHING: Any = SimpleNamespace(service=None, share=ALL)


def test_the_document_names_every_route_and_no_other() -> None:
    routes = all_routes(NOTHING)
    ours = {(route.method.lower(), route.path) for route in routes}
    page = {("get", "/"), ("get", "/assets/{name}"), ("get", "/assets/{folder}/{name}")}
    mcp = {("post", "/mcp"), ("post", "/mcp/{server}")}  # its own specification describes it
    assert {
        (method, path)
        for path, item in openapi_document(routes)["paths"].items()
        for method in item
    } == ours - page - mcp


# --- who may


def bearer(*scopes: str, name: str = "a") -> Bearer:
    added = TokenAdded(
        name=name, digest="d", person="alice", scopes=scopes, audience="personal",
        expires_at=None, by="tests",
    )  # fmt: skip
    return Bearer.of(added)


SCOPES = ("read", "send", "approve", "admin")
MAY = {
    "read": {"read", "admin"},
    "send": {"send"},
    "approve": {"approve"},
    ANY_BEARER: set(SCOPES),
    "stop": {"admin"},  # and read with send, below
}


@pytest.mark.parametrize("wanted", [*MAY])
@pytest.mark.parametrize("given", SCOPES)
def test_a_route_checks_its_scope_before_its_handler_runs(wanted: str, given: str) -> None:
    ran: list[str] = []

    async def handle(call: ApiCall[None]) -> None:
        ran.append(call.bearer.person)

    router = Router([Route(method="GET", path="/x", scope=wanted, handle=handle)], is_alive)
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": [], "query_string": b""}
    asked_by = {**scope, "holdfast.bearer": bearer(given)}
    if given in MAY[wanted]:
        asyncio.run(router(asked_by, never, drop))
    else:
        with pytest.raises(Refused) as refused:
            asyncio.run(router(asked_by, never, drop))
        assert refused.value.code == "no_authority"
    assert ran == (["alice"] if given in MAY[wanted] else [])
    with pytest.raises(InvariantBroken):  # a route with a scope is never answered without a token
        asyncio.run(router(scope, never, drop))


def test_stopping_needs_read_and_send_or_admin() -> None:
    assert [bearer(*each).may("stop") for each in (("read", "send"), ("send",), ("read",))] == [
        True,
        False,
        False,
    ]


async def drop(_: Message) -> None: ...


class Said(msgspec.Struct, forbid_unknown_fields=True):
    text: str


@pytest.mark.parametrize(
    ("name", "body", "query", "code"),
    [
        ("a", b'{"text":"hi"}', b"", None),
        ("a", b'{"text":1}', b"", "malformed"),
        ("a", b'{"text":"hi","admin":true}', b"", "malformed"),
        ("a", b'{"text":"hi"}', b"x=1", "malformed"),
        ("revoked", b'{"text":"hi"}', b"", "unauthorized"),
    ],
)
def test_a_body_is_read_into_the_routes_type_and_the_token_is_checked_again_after_it(
    name: str, body: bytes, query: bytes, code: str | None
) -> None:
    heard: list[str] = []

    async def handle(call: ApiCall[Said]) -> Said:
        heard.append(call.body.text)
        return call.body

    post = Route(method="POST", path="/x", scope="send", handle=handle, request=Said, response=Said)
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/x",
        "headers": [(b"content-type", b"application/json")],
        "query_string": query,
        "holdfast.bearer": bearer("send", name=name),
    }
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    if code is None:
        asyncio.run(Router([post], is_alive)(scope, receive, send))
        assert (heard, sent[1]["body"]) == (["hi"], b'{"text":"hi"}')
    else:
        with pytest.raises(Refused) as refused:
            asyncio.run(Router([post], is_alive)(scope, receive, send))
        assert (refused.value.code, heard, sent) == (code, [], [])


# --- what went wrong


def recorded(error: Exception | None, *, begun: bool = False) -> tuple[list[Message], Metrics]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        scope["holdfast.route"] = "/v1/things"
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if error is not None:
            raise error

    gateway: Any = SimpleNamespace(
        metrics=Metrics(), service=SimpleNamespace(live=SimpleNamespace(secrets=("hunter22",)))
    )
    return asked(Recorder(app, gateway), "/v1/things")[0], gateway.metrics


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Refused("no", code="wrong_approver"), 403, "wrong_approver"), (PermissionError(errno.EACCES, "Permission denied", "a/path"), 503, "io"),
        (TimeoutError(), 503, "io"), (InvariantBroken("two heads"), 500, "bug"), (KeyError("x"), 500, "bug"),
    ],
)  # fmt: skip
def test_a_failed_request_returns_one_problem_and_is_counted(
    error: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "holdfast.gateway"):
        sent, metrics = recorded(error)
    assert told(sent) == (status, code)
    assert metrics.requests == {("GET", "/v1/things", status): 1}
    assert [record.message for record in caplog.records] == (
        ["a bug in /v1/things"] if code == "bug" else []
    )


def test_a_problem_carries_no_path_and_no_secret() -> None:
    sent, _ = recorded(PermissionError(errno.EACCES, "Permission denied", "some/path"))
    assert b"some/path" not in sent[1]["body"]
    sent, _ = recorded(Refused("the password is hunter22", code="malformed"))
    assert b"hunter22" not in sent[1]["body"]


@pytest.mark.parametrize(
    "error",
    [Refused("no", code="unknown"), OSError(errno.EIO, "Input/output error"), KeyError("x")],
)
def test_after_an_answer_has_begun_nothing_is_put_into_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Half an answer can't become a problem: it is logged as the bug it is, and the connection is
    closed by who sees it end too early.
    """
    with caplog.at_level(logging.ERROR, "holdfast.gateway"):
        sent, metrics = recorded(error, begun=True)
    assert sent == [{"type": "http.response.start", "status": 200, "headers": []}]
    assert metrics.requests == {("GET", "/v1/things", 200): 1}
    assert [record.message for record in caplog.records] == ["a bug in /v1/things"]
