"""
A route is everything that is known about one operation: its method and path, the scope that a token
needs, the types of its body and its answer, and its words in the OpenAPI document. The router finds
it by the path, checks the method, the scope and the query, reads the body, and encodes the answer.

So a handler can't forget a check, and the document can't differ from the server. Routing is our
own (decision 0022): a path without parts is one look into a table.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.errors import InvariantBroken, Refused
from holdfast.gateway.http.asgi import AsgiApp, Receive, Scope, Send
from holdfast.gateway.http.problems import problem, problem_response
from holdfast.gateway.http.request import BODY_BYTES_MAX, HttpRequest
from holdfast.gateway.http.response import JSON_TYPE, HttpResponse
from holdfast.gateway.server.tokens import Bearer

OPEN = None
"""The scope of a route that needs no token."""
ANY_BEARER = "any"
"""The scope of a route for every valid token."""
STOP = "stop"
"""Stopping a turn: a token that sends may, and an admin's."""

B = TypeVar("B")
R = TypeVar("R")
StillLives = Callable[[Bearer], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query key or a header of a route, as the document describes it."""

    name: str
    text: str
    schema: dict[str, Any]

    def check(self, value: str) -> None:
        """Refuse a text that the schema does not allow. Numbers are checked where they are read."""
        schema = self.schema
        if schema.get("type") != "string":
            return
        fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1_000)
        if not fits or not re.search(schema.get("pattern", ""), value.replace("\n", "\0")):
            raise Refused(
                f"{self.name} is not valid: {self.text}", code="malformed", hint="see /openapi.json"
            )


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[B]):
    """A request to one route, after its checks. `body` is None for a route without a body."""

    request: HttpRequest
    query: dict[str, str]
    body: B
    owner: Bearer | None

    @property
    def bearer(self) -> Bearer:
        """The owner of the request's token. An open route has none."""
        if self.owner is None:
            raise InvariantBroken("an open route asked for the owner of a token")
        return self.owner


@dataclass(frozen=True, kw_only=True)
class Operation:
    """
    The part that every route has. A `{name}` in the path matches one whole part that is not empty.
    GET includes HEAD, whose body the protocol leaves out. `id` is the operation's id in the
    document; a route without one (the page's files) is not in it.
    """

    method: str
    path: str
    scope: str | None
    id: str = ""
    summary: str = ""
    answer: str = "no content"
    problems: tuple[int, ...] = ()
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()

    def checked(self, request: HttpRequest, bearer: Bearer | None) -> ApiCall[None]:
        """Check the scope, then the query."""
        if self.scope is OPEN:
            bearer = None
        elif bearer is None:
            raise InvariantBroken(f"{self.path} was reached without a token")
        elif self.scope != ANY_BEARER and not bearer.may(self.scope):
            raise wrong_scope(self.scope)
        query = request.query([each.name for each in self.query])
        for each in self.query:
            if each.name in query:
                each.check(query[each.name])
        return ApiCall(request, query, None, bearer)


def wrong_scope(scope: str) -> Refused:
    needed = "scopes read and send" if scope == STOP else f"scope {scope}"
    return Refused(
        f"this token may not {scope}", code="no_authority", hint=f"a token with the {needed} may"
    )


@dataclass(frozen=True, kw_only=True)
class Route(Operation, Generic[B, R]):
    """
    An operation with one whole answer. `nothing` is the meaning of an empty body, if it has one.
    """

    handle: Callable[[ApiCall[B]], Awaitable[R | HttpResponse]]
    request: type[B] | None = None
    nothing: B | None = None
    response: type[R] | None = None
    status: int = 200
    media_type: str = JSON_TYPE

    async def respond(
        self, request: HttpRequest, bearer: Bearer | None, still_lives: StillLives
    ) -> HttpResponse:
        call: ApiCall[Any] = self.checked(request, bearer)
        if self.request is not None:
            body = await request.json(self.request, nothing=self.nothing)
            call = await _with_body(call, body, still_lives)
        value = await self.handle(call)
        if isinstance(value, HttpResponse):
            return value
        if self.response is None:
            return HttpResponse(status=204)
        if isinstance(value, str):
            return HttpResponse(value.encode(), status=self.status, media_type=self.media_type)
        return HttpResponse(
            msgspec.json.encode(value), status=self.status, media_type=self.media_type
        )


@dataclass(frozen=True, kw_only=True)
class StreamRoute(Operation, Generic[B]):
    """An operation whose answer is a live stream, held open while the client reads it."""

    open: Callable[[ApiCall[B]], AbstractAsyncContextManager[AsgiApp]]
    request: type[B] | None = None
    body_bytes_max: int = BODY_BYTES_MAX

    async def read(
        self, request: HttpRequest, bearer: Bearer | None, still_lives: StillLives
    ) -> ApiCall[B]:
        call: ApiCall[Any] = self.checked(request, bearer)
        if self.request is None:
            return call
        body = await request.json(self.request, bytes_max=self.body_bytes_max)
        return await _with_body(call, body, still_lives)


async def _with_body(call: ApiCall[None], body: B, still_lives: StillLives) -> ApiCall[B]:
    """Reading takes time, and a token that was revoked meanwhile must not act."""
    if call.owner is not None and not await still_lives(call.owner):
        raise Refused(
            "the token was revoked or expired before the body arrived",
            code="unauthorized",
            hint="use another token",
        )
    return ApiCall(call.request, call.query, body, call.owner)


AnyRoute = Route[Any, Any] | StreamRoute[Any]


class Router:
    """
    Put the route's path into the scope as `holdfast.route`, for metrics, and the parts of the path
    as `holdfast.path_parts`.
    """

    def __init__(self, routes: Sequence[AnyRoute], still_lives: StillLives) -> None:
        self._still_lives = still_lives
        self._plain = _by_method((each.path, each) for each in routes if "{" not in each.path)
        parted = _by_method((each.path, each) for each in routes if "{" in each.path)
        self._parted = [(_pattern(path), methods) for path, methods in parted.items()]

    def is_open(self, path: str) -> bool:
        """Return whether this path needs no token."""
        methods, _ = self._find(path)
        return bool(methods) and all(each.scope is OPEN for each in methods.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods, parts = self._find(scope["path"])
        if not methods:
            await problem_response(
                problem(404, "unknown", "there is nothing at this path", "see /openapi.json")
            )(send)
            return
        route = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        scope["holdfast.route"] = next(iter(methods.values())).path
        scope["holdfast.path_parts"] = parts
        if route is None:
            refusal = problem(405, "method", "this path has other methods", "see /openapi.json")
            await problem_response(refusal, {"allow": _allow(methods)})(send)
            return
        request, bearer = HttpRequest(scope, receive), scope.get("holdfast.bearer")
        if isinstance(route, StreamRoute):
            call = await route.read(request, bearer, self._still_lives)
            async with route.open(call) as stream:
                await stream(scope, receive, send)
        else:
            response = await route.respond(request, bearer, self._still_lives)
            await response(send)

    def _find(self, path: str) -> tuple[dict[str, AnyRoute], dict[str, str]]:
        """Prefer a path without parts to one with parts."""
        if (plain := self._plain.get(path)) is not None:
            return plain, {}
        for pattern, methods in self._parted:
            if (found := pattern.match(path)) is not None:
                return methods, found.groupdict()
        return {}, {}


def _by_method(routes: Iterable[tuple[str, AnyRoute]]) -> dict[str, dict[str, AnyRoute]]:
    found: dict[str, dict[str, AnyRoute]] = {}
    for path, route in routes:
        found.setdefault(path, {})[route.method] = route
    return found


def _allow(methods: Iterable[str]) -> str:
    return ", ".join("GET, HEAD" if each == "GET" else each for each in methods)


def _pattern(path: str) -> re.Pattern[str]:
    """
    >>> _pattern("/v1/grants/{grant}").match("/v1/grants/g-1").groupdict()
    {'grant': 'g-1'}
    """
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)) + r"\Z")
