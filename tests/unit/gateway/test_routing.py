"""
Which handler a request means, and what is told when what was asked for went wrong: looked at with
no server around it.
"""

import asyncio
import errno
import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import InvariantBroken, Refused
from holdfast.gateway.http.app import Recorder, routes_of
from holdfast.gateway.http.openapi import openapi_document
from holdfast.gateway.http.router import Route, Routes, StreamRoute
from holdfast.gateway.server.metrics import Metrics


async def never() -> Message:
    raise AssertionError("nothing of a request is read here")


def asked(app: ASGIApp, path: str = "/", method: str = "GET") -> tuple[list[Message], Scope]:
    """What came back, and the scope as it was left."""
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
    async def answer(request: Request) -> Response:
        return Response(
            " ".join([name, *(f"{key}={value}" for key, value in request.path_params.items())])
        )

    return answer


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(f"stream of {scope['path_params']['thing']}")(scope, receive, send)


ROUTES = Routes(
    [
        Route("GET", "/things/{thing}", named("one")),
        Route("GET", "/things/all", named("all")),
        Route("POST", "/things/{thing}/end", named("end")),
        StreamRoute("GET", "/things/{thing}/events", stream),
        Route("DELETE", "/a.b/{x}/{y}", named("two")),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/things/all", b"all"), ("GET", "/things/alles", b"one thing=alles"), ("HEAD", "/things/all", b"all"), ("POST", "/things/x/end", b"end thing=x"),
        ("GET", "/things/x/events", b"stream of x"), ("HEAD", "/things/x/events", b"stream of x"), ("DELETE", "/a.b/1/2", b"two x=1 y=2"),
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
def test_a_path_that_is_nearly_one_of_ours_is_none(path: str) -> None:
    sent, scope = asked(ROUTES, path)
    assert told(sent) == (404, "unknown")
    assert "holdfast.route" not in scope


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/things/all", b"GET, HEAD"), ("get", "/things/all", b"GET, HEAD"), ("GET", "/things/x/end", b"POST"), ("HEAD", "/things/x/end", b"POST"),
        ("POST", "/things/x/events", b"GET, HEAD"), ("OPTIONS", "/a.b/1/2", b"DELETE"),
    ],
)  # fmt: skip
def test_a_method_that_a_path_does_not_have_is_told_with_those_that_it_has(
    method: str, path: str, allow: bytes
) -> None:
    sent, scope = asked(ROUTES, path, method)
    assert told(sent) == (405, "method")
    assert dict(sent[0]["headers"])[b"allow"] == allow
    assert scope["holdfast.route"].startswith(("/things", "/a.b"))


def test_the_document_names_every_route_and_no_other() -> None:
    nothing: Any = SimpleNamespace(service=None)
    ours = {(route.method.lower(), route.path) for route in routes_of(nothing)}
    page = {("get", "/"), ("get", "/assets/{name}")}
    assert {
        (method, path) for path, item in openapi_document()["paths"].items() for method in item
    } == ours - page


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
        metrics=Metrics(), service=SimpleNamespace(world=SimpleNamespace(secrets=("hunter22",)))
    )
    return asked(Recorder(app, gateway), "/v1/things")[0], gateway.metrics


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Refused("no", code="wrong_approver"), 403, "wrong_approver"), (PermissionError(errno.EACCES, "Permission denied", "a/path"), 503, "io"),
        (TimeoutError(), 503, "io"), (InvariantBroken("two heads"), 500, "bug"), (KeyError("x"), 500, "bug"),
    ],
)  # fmt: skip
def test_what_went_wrong_is_told_as_one_problem_and_counted(
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
