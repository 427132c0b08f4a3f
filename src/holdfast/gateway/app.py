"""
The application, from the outside in: guard (Host, Origin, form), record (log and numbers), gate (tokens), routes.

Whatever goes wrong inside comes out as a problem with a stable code. The access log has method, route, status, time and the token's name: no query, no header, no path.
"""

import logging
import time
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError, Unusable
from holdfast.gateway.context import Gateway
from holdfast.gateway.gate import Gate
from holdfast.gateway.guard import Guard, allowed_hosts
from holdfast.gateway.live import InboxEvents, SessionEvents
from holdfast.gateway.openapi import openapi_document
from holdfast.gateway.page_files import asset, index
from holdfast.gateway.problems import problem, problem_of, problem_response
from holdfast.gateway.routes import Api, json_response

_access = logging.getLogger("holdfast.gateway.access")
_log = logging.getLogger("holdfast.gateway")

EVENTS_PATH = "/v1/sessions/{channel}/{thread}/events"
INBOX_PATH = "/v1/approvals/events"


def routes_of(gateway: Gateway) -> list[BaseRoute]:
    api = Api(gateway)
    return [
        Route("/", index, methods=["GET"]),
        Route("/assets/{name}", asset, methods=["GET"]),
        Route("/healthz", _nothing, methods=["GET"]),
        Route("/readyz", _readiness(gateway), methods=["GET"]),
        Route("/metrics", _metrics(gateway), methods=["GET"]),
        Route("/openapi.json", _openapi, methods=["GET"]),
        Route("/v1/me", api.whoami, methods=["GET"]),
        Route("/v1/codes", api.exchange_code, methods=["POST"]),
        Route("/v1/sessions", api.list_sessions, methods=["GET"]),
        Route("/v1/sessions/{channel}/{thread}", api.show_session, methods=["GET"]),
        Route("/v1/sessions/{channel}/{thread}/messages", api.post_message, methods=["POST"]),
        Route(EVENTS_PATH, SessionEvents(gateway), methods=["GET"]),
        Route("/v1/sessions/{channel}/{thread}/cancel", api.cancel, methods=["POST"]),
        Route("/v1/approvals", api.list_approvals, methods=["GET"]),
        Route(INBOX_PATH, InboxEvents(gateway), methods=["GET"]),
        Route("/v1/approvals/{approval}", api.show_approval, methods=["GET"]),
        Route("/v1/approvals/{approval}/answer", api.answer, methods=["POST"]),
        Route("/v1/grants", api.list_grants, methods=["GET"]),
        Route("/v1/grants/{grant}", api.delete_grant, methods=["DELETE"]),
    ]


def make_app(gateway: Gateway) -> ASGIApp:
    secrets = gateway.service.world.secrets

    async def told(_: Request, exc: Exception) -> Response:
        assert isinstance(exc, HoldfastError)  # noqa: S101  # for the type checker: registered for it alone
        return problem_response(problem_of(exc, secrets=secrets))

    async def http_told(_: Request, exc: Exception) -> Response:
        status = exc.status_code if isinstance(exc, HTTPException) else 500
        headers = exc.headers if isinstance(exc, HTTPException) else None
        if status == 405:  # noqa: PLR2004
            return problem_response(problem(405, "method", "this is not done that way", "see /openapi.json"), headers)
        return problem_response(problem(404, "unknown", "there is nothing here", "see /openapi.json"), headers)

    settings = gateway.settings

    async def os_told(_: Request, exc: Exception) -> Response:
        """The disk refused to be read. Not this request's fault and no bug: told as something that may pass, without a path."""
        why = (exc.strerror if isinstance(exc, OSError) else None) or type(exc).__name__
        _log.warning("the system refused: %s", why)
        return problem_response(problem(503, "io", f"the system refused: {why}", "try again; `holdfast doctor` looks for the reason"))

    inner = Starlette(routes=routes_of(gateway), exception_handlers={HoldfastError: told, OSError: os_told, HTTPException: http_told})
    inner.router.redirect_slashes = False
    gate = Gate(inner, gateway.book, now=gateway.service.world.clock.now_ms, per_second=settings.requests_per_second, burst=settings.requests_burst)
    hosts = allowed_hosts(settings.host, settings.port, settings.hosts)
    return Guard(Recorder(gate, gateway, inner.routes), hosts, proxied=settings.hosts)


class Recorder:
    """Counts and logs what was answered; a bug inside is logged with its trace, and told as a bug."""

    def __init__(self, app: ASGIApp, gateway: Gateway, routes: list[BaseRoute]) -> None:
        self._app = app
        self._gateway = gateway
        self._paths: dict[object, str] = {route.endpoint: route.path for route in routes if isinstance(route, Route)}

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
        except Exception:  # noqa: BLE001  # the loop's edge: one request's bug is told as one, and the others go on
            _log.exception("a bug in %s", self._paths.get(scope.get("endpoint"), "-"))
            if status == 0:
                await problem_response(problem(500, "bug", "something is wrong here, and it is not your request"))(scope, receive, seen)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = self._paths.get(scope.get("endpoint"), "-")
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        bearer = scope.get("holdfast.bearer")
        if route not in (EVENTS_PATH, INBOX_PATH):
            self._gateway.metrics.saw(method, route, status, seconds)
        _access.info("%s %s %d %.1f ms %s", method, route, status, seconds * 1000, bearer.name if bearer is not None else "-")


_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})


async def _nothing(_: Request) -> Response:
    return Response(status_code=204)


def _readiness(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    async def readyz(_: Request) -> Response:
        """Not ready either while the settings can't be used: every message would be refused. Anybody may ask, so only where to look is told."""
        if not gateway.is_ready:
            return Response(status_code=503)
        try:
            gateway.service.world.policy()
        except Unusable as exc:
            where = "holdfast.toml" if exc.line is None else f"holdfast.toml, line {exc.line}"
            return problem_response(
                problem(503, "settings", f"{where}: can't be used, so nothing is decided", "whoever runs it: `holdfast config check`")
            )
        return Response(status_code=204)

    return readyz


def _metrics(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(_: Request) -> Response:
        service = gateway.service
        waiting = sum(len(row.approvals) for row in service.world.index.rows(only_waiting=True))
        gauges: dict[str, tuple[str, float]] = {
            "streams": ("Live streams.", len(gateway.streams)),
            "drives": ("Sessions driven by this process now.", gateway.drives.running),
            "prompts_waiting": ("Prompts that wait for an answer.", waiting),
            "sessions_open": ("Sessions this process has open.", len(service.shelf.open_ledgers())),
            "pieces_gaps": ("How often pieces were lost on their way to followers.", gateway.tails.gaps),
        }
        return Response(gateway.metrics.text(gauges), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    return metrics


async def _openapi(_: Request) -> Response:
    return json_response(openapi_document())
