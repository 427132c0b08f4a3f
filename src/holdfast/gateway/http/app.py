"""
The application, from the outside in: guard (Host, Origin, form), recorder (log and metrics), gate
(tokens), routes.

Every error inside becomes a problem with a stable code. The access log has method, route, status,
time and the token's name, but no query, header or path.
"""

import logging
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError, Unusable
from holdfast.gateway.http.authentication import Gate
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.openapi import openapi_document
from holdfast.gateway.http.page_files import asset, index
from holdfast.gateway.http.problems import Problem, problem, problem_of, problem_response
from holdfast.gateway.http.request_guard import Guard, allowed_hosts
from holdfast.gateway.http.router import AnyRoute, Handler, Route, Routes, StreamRoute
from holdfast.gateway.routes.api import Api, json_response
from holdfast.gateway.streams.routes import InboxEvents, SessionEvents

_access = logging.getLogger("holdfast.gateway.access")
_log = logging.getLogger("holdfast.gateway")

EVENTS_PATH = "/v1/sessions/{channel}/{thread}/events"
INBOX_PATH = "/v1/approvals/events"


def routes_of(gateway: Gateway) -> list[AnyRoute]:
    api = Api(gateway)
    return [
        Route("GET", "/", index),
        Route("GET", "/assets/{name}", asset),
        Route("GET", "/healthz", _nothing),
        Route("GET", "/readyz", _readiness(gateway)),
        Route("GET", "/metrics", _metrics(gateway)),
        Route("GET", "/openapi.json", _openapi),
        Route("GET", "/v1/me", api.whoami),
        Route("POST", "/v1/codes", api.exchange_code),
        Route("GET", "/v1/sessions", api.list_sessions),
        Route("GET", "/v1/sessions/{channel}/{thread}", api.show_session),
        Route("POST", "/v1/sessions/{channel}/{thread}/messages", api.post_message),
        StreamRoute("GET", EVENTS_PATH, SessionEvents(gateway)),
        Route("POST", "/v1/sessions/{channel}/{thread}/cancel", api.cancel),
        Route("GET", "/v1/approvals", api.list_approvals),
        StreamRoute("GET", INBOX_PATH, InboxEvents(gateway)),
        Route("GET", "/v1/approvals/{approval}", api.show_approval),
        Route("POST", "/v1/approvals/{approval}/answer", api.answer),
        Route("GET", "/v1/grants", api.list_grants),
        Route("DELETE", "/v1/grants/{grant}", api.delete_grant),
    ]


def make_app(gateway: Gateway) -> ASGIApp:
    settings = gateway.settings
    now = gateway.service.world.clock.now_ms
    gate = Gate(
        Routes(routes_of(gateway)),
        gateway.book,
        now=now,
        per_second=settings.requests_per_second,
        burst=settings.requests_burst,
    )
    hosts = allowed_hosts(settings.host, settings.port, settings.hosts)
    recorder = Recorder(gate, gateway)
    return Guard(recorder, hosts, proxied=settings.hosts, refused=recorder.refused)


class Recorder:
    """
    Count and log every answer. An error before the answer began becomes a problem. A bug is logged
    with its trace and reported as a bug.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
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
        except Exception as exc:  # noqa: BLE001  # the loop's edge: one request's bug is told as one, and the others go on
            told = self._told(exc) if status == 0 else None
            if told is None:
                _log.exception("a bug in %s", scope.get("holdfast.route", "-"))
                told = problem(500, "bug", "something is wrong here, and it is not your request")
            if status == 0:
                await problem_response(told)(scope, receive, seen)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def refused(self, scope: Scope, status: int) -> None:
        """
        Count and log a request that the guard refused. Without this the operator could not find out
        why a page stays empty.
        """
        self._record(scope, status, 0.0)

    def _told(self, exc: Exception) -> Problem | None:
        """Return the problem for this error, or None for a bug."""
        if isinstance(exc, HoldfastError):
            return problem_of(exc, secrets=self._gateway.service.world.secrets)
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
        if route not in (EVENTS_PATH, INBOX_PATH):
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


async def _nothing(_: Request) -> Response:
    return Response(status_code=204)


def _readiness(gateway: Gateway) -> Handler:
    async def readyz(_: Request) -> Response:
        """
        Report not ready also while the home or the settings can't be used, because every request
        would be refused. Anybody may ask, so the answer only names the command to run.
        """
        if not gateway.is_ready or not await _can_be_read(gateway):
            return Response(status_code=503)
        try:
            gateway.service.world.policy()
        except Unusable as exc:
            where = "holdfast.toml" if exc.line is None else f"holdfast.toml, line {exc.line}"
            return problem_response(
                problem(
                    503,
                    "settings",
                    f"{where}: can't be used, so nothing is decided",
                    "whoever runs it: `holdfast config check`",
                )
            )
        return Response(status_code=204)

    return readyz


async def _can_be_read(gateway: Gateway) -> bool:
    """Return whether tokens can be checked: the home's journal can be read."""
    try:
        await gateway.service.home.refresh()
    except (HoldfastError, OSError):
        return False
    return True


def _metrics(gateway: Gateway) -> Handler:
    async def metrics(_: Request) -> Response:
        service = gateway.service
        waiting = sum(len(row.approvals) for row in service.world.index.rows(only_waiting=True))
        gauges: dict[str, tuple[str, float]] = {
            "streams": ("Live streams.", len(gateway.streams)),
            "drives": ("Sessions driven by this process now.", gateway.drives.running),
            "prompts_waiting": ("Prompts that wait for an answer.", waiting),
            "sessions_open": ("Sessions this process has open.", len(service.shelf.open_ledgers())),
            "pieces_gaps": (
                "How often pieces were lost on their way to followers.",
                gateway.tails.gaps,
            ),
        }
        return Response(
            gateway.metrics.text(gauges),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    return metrics


async def _openapi(_: Request) -> Response:
    return json_response(openapi_document())
