"""`/healthz`, `/readyz`, `/metrics` and `/openapi.json`: for operators and programs."""

from collections.abc import Callable
from typing import Any

from holdfast.errors import HoldfastError, Unusable
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.problems import problem, problem_response
from holdfast.gateway.http.response import HttpResponse
from holdfast.gateway.http.router import ANY_BEARER, OPEN, AnyRoute, ApiCall, Route
from holdfast.gateway.server.metrics import metrics_text

CHANNELS_DOWN = "channels-down"


class OperationRoutes:
    def __init__(self, gateway: Gateway, document: Callable[[], dict[str, Any]]) -> None:
        self._gateway = gateway
        self._document = document

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/healthz", scope=OPEN, handle=self.healthz,
                id="healthz", summary="Alive",
            ),
            Route(
                method="GET", path="/readyz", scope=OPEN, handle=self.readyz,
                id="readyz", summary="Ready for requests", problems=(503,),
            ),
            Route(
                method="GET", path="/metrics", scope=ANY_BEARER, handle=self.metrics, response=str,
                media_type="text/plain; version=0.0.4; charset=utf-8",
                id="metrics", summary="Numbers", answer="Prometheus text",
            ),
            Route(
                method="GET", path="/openapi.json", scope=ANY_BEARER, handle=self.openapi,
                response=dict[str, Any],
                id="openapi", summary="This document", answer="this document",
            ),
        ]  # fmt: skip

    async def healthz(self, _: ApiCall[None]) -> None:
        return None

    async def readyz(self, _: ApiCall[None]) -> HttpResponse:
        """
        Report not ready also while the home or the settings can't be used, because every request
        would be refused. Anybody may ask, so the answer only names the command to run.
        """
        gateway = self._gateway
        if not gateway.is_ready or not await _can_be_read(gateway):
            return HttpResponse(status=503)
        try:
            gateway.service.live.policy()
        except Unusable as exc:
            where = "holdfast.toml" if exc.line is None else f"holdfast.toml, line {exc.line}"
            return problem_response(
                problem(
                    503,
                    "settings",
                    f"{where}: can't be used, so nothing is decided",
                    "for the operator: `holdfast config check`",
                )
            )
        # A chat that is away refuses no request, so the server stays ready; its messages wait.
        down = ", ".join(sorted(gateway.chats_down()))
        return HttpResponse(status=204, headers={CHANNELS_DOWN: down} if down else None)

    async def metrics(self, _: ApiCall[None]) -> str:
        gateway, service = self._gateway, self._gateway.service
        waiting = await service.live.waiting_since()
        now = service.live.now_ms()
        of_home: dict[str, tuple[str, float]] = {
            "prompts_waiting": ("Prompts that wait for an answer.", len(waiting)),
            "prompt_oldest_seconds": (
                "How long the oldest of them waits; 0 if none does.",
                max(0, now - min(waiting, default=now)) / 1000,
            ),
            "sessions_sealed": (
                "Sealed sessions, which a person must look at.",
                await service.live.sealed_sessions(),
            ),
        }
        return metrics_text(await gateway.counts_of_workers(), of_home)

    async def openapi(self, _: ApiCall[None]) -> dict[str, Any]:
        return self._document()


async def _can_be_read(gateway: Gateway) -> bool:
    """Return whether tokens can be checked: the home's journal can be read."""
    try:
        await gateway.service.home.refresh()
    except (HoldfastError, OSError):
        return False
    return True
