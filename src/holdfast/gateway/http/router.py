"""
Find a request's handler by its path, then check the path's one method.

Starlette's router and application are not used. They try one route after the other and wrap every
request in five layers that turn errors into answers, and a resumed request walks through each layer
again. Here `Recorder` does that once. Each handler validates the parts of its path.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.gateway.http.problems import problem, problem_response

Handler = Callable[[Request], Awaitable[Response]]


class Route(NamedTuple):
    """
    A `{name}` in the path matches one whole part that is not empty. GET includes HEAD, whose body
    the protocol leaves out.
    """

    method: str
    path: str
    answer: Handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.answer(Request(scope, receive))
        await response(scope, receive, send)


class StreamRoute(NamedTuple):
    """A route whose answer is a stream."""

    method: str
    path: str
    stream: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream(scope, receive, send)


AnyRoute = Route | StreamRoute


class Routes:
    """
    Put the route's path into the scope as `holdfast.route`, for metrics, and the parts of the path
    as `path_params`.
    """

    def __init__(self, routes: Sequence[AnyRoute]) -> None:
        self._plain = {route.path: route for route in routes if "{" not in route.path}
        self._parted = [(_pattern(route.path), route) for route in routes if "{" in route.path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, parts = self._find(scope["path"])
        if route is None:
            await problem_response(
                problem(404, "unknown", "there is nothing here", "see /openapi.json")
            )(scope, receive, send)
            return
        scope["holdfast.route"], scope["path_params"] = route.path, parts
        if scope["method"] != route.method and (scope["method"], route.method) != ("HEAD", "GET"):
            allow = {"allow": "GET, HEAD" if route.method == "GET" else route.method}
            await problem_response(
                problem(405, "method", "this is not done that way", "see /openapi.json"), allow
            )(scope, receive, send)
            return
        await route(scope, receive, send)

    def _find(self, path: str) -> tuple[AnyRoute | None, dict[str, str]]:
        """Prefer a path without parts to one with parts."""
        if (plain := self._plain.get(path)) is not None:
            return plain, {}
        for pattern, route in self._parted:
            if (found := pattern.match(path)) is not None:
                return route, found.groupdict()
        return None, {}


def _pattern(path: str) -> re.Pattern[str]:
    """
    >>> _pattern("/v1/grants/{grant}").match("/v1/grants/g-1").groupdict()
    {'grant': 'g-1'}
    """
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)) + r"\Z")
