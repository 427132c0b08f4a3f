"""
The application, from the outside in: guard (Host, Origin, form), recorder (log and metrics),
authentication (tokens), router.

Every error inside becomes a problem with a stable code. The access log has method, route, status,
time and the token's name, but no query, header or path.
"""

import logging
import time

from holdfast.errors import HoldfastError
from holdfast.gateway.http.asgi import AsgiApp, Message, Receive, Scope, Send
from holdfast.gateway.http.authentication import Authentication
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.problems import (
    ProblemDetails,
    problem,
    problem_of,
    problem_response,
)
from holdfast.gateway.http.request_guard import RequestGuard, allowed_hosts
from holdfast.gateway.http.router import Router
from holdfast.gateway.routes.table import STREAM_PATHS, all_routes
from holdfast.gateway.server.tokens import Bearer

_access = logging.getLogger("holdfast.gateway.access")
_log = logging.getLogger("holdfast.gateway")


def make_app(gateway: Gateway) -> AsgiApp:
    settings = gateway.settings
    now = gateway.service.live.clock_ms

    async def still_lives(bearer: Bearer) -> bool:
        return bool(await gateway.book.still_lives([bearer], now=now()))

    router = Router(all_routes(gateway), still_lives)
    authentication = Authentication(
        router,
        gateway.book,
        is_open=router.is_open,
        now=now,
        per_second=settings.requests_per_second,
        burst=settings.requests_burst,
    )
    hosts = allowed_hosts(settings.host, settings.port, settings.hosts)
    recorder = Recorder(authentication, gateway)
    return RequestGuard(recorder, hosts, proxied=settings.hosts, refused=recorder.refused)


class Recorder:
    """
    Count and log every answer. An error before the answer began becomes a problem. A bug is logged
    with its trace and reported as a bug.
    """

    def __init__(self, app: AsgiApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = 0

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        except Exception as exc:  # noqa: BLE001  # the loop's edge: report one request's bug, serve the others
            details = self._problem_of(exc) if status == 0 else None
            if details is None:
                _log.exception("a bug in %s", scope.get("holdfast.route", "-"))
                details = problem(500, "bug", "something is wrong here, and it is not your request")
            if status == 0:
                await problem_response(details)(seen)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def refused(self, scope: Scope, status: int) -> None:
        """
        Count and log a request that the guard refused. Without this the operator could not find out
        why a page stays empty.
        """
        self._record(scope, status, 0.0)

    def _problem_of(self, exc: Exception) -> ProblemDetails | None:
        """Return the problem for this error, or None for a bug."""
        if isinstance(exc, HoldfastError):
            return problem_of(exc, secrets=self._gateway.service.live.secrets)
        if isinstance(exc, OSError):
            # The disk could not be read. The request is not at fault, and this is not a bug. Report
            # it as temporary, without a path.
            why = exc.strerror or type(exc).__name__
            _log.warning("the system refused: %s", why)
            return problem(
                503,
                "io",
                f"the system refused: {why}",
                "try again; `holdfast doctor` looks for the reason",
            )
        return None

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("holdfast.route", "-")
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        bearer = scope.get("holdfast.bearer")
        if route not in STREAM_PATHS:
            self._gateway.metrics.saw(method, route, status, seconds)
        _access.info(
            "%s %s %d %.1f ms %s",
            method,
            route,
            status,
            seconds * 1000,
            bearer.name if bearer is not None else "-",
        )


_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})
