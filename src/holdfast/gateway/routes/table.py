"""Every route of the server, in one list. The OpenAPI document is derived from it."""

from functools import cache
from typing import Any

from holdfast.gateway.agui.routes import AGUI_PATH, AguiRoutes
from holdfast.gateway.channels.routes import ChannelRoutes
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.openapi import openapi_document
from holdfast.gateway.http.router import AnyRoute
from holdfast.gateway.mcp.endpoint import McpEndpoint
from holdfast.gateway.mcp.gate_routes import GateRoutes
from holdfast.gateway.mcp.pin_routes import PinRoutes
from holdfast.gateway.routes.approvals import ApprovalRoutes
from holdfast.gateway.routes.decisions import DecisionRoutes
from holdfast.gateway.routes.events import EVENTS_PATH, INBOX_PATH, EventRoutes
from holdfast.gateway.routes.grants import GrantRoutes
from holdfast.gateway.routes.history import HistoryRoutes
from holdfast.gateway.routes.hooks import HookRoutes
from holdfast.gateway.routes.jobs import JobRoutes
from holdfast.gateway.routes.operations import OperationRoutes
from holdfast.gateway.routes.page import page_routes
from holdfast.gateway.routes.search import SearchRoutes
from holdfast.gateway.routes.sessions import SessionRoutes
from holdfast.gateway.routes.tokens import TokenRoutes

__all__ = ["STREAM_PATHS", "all_routes"]

STREAM_PATHS = frozenset({AGUI_PATH, EVENTS_PATH, INBOX_PATH})
"""Their answers last as long as a client listens, so their times say nothing."""


def all_routes(gateway: Gateway) -> list[AnyRoute]:
    routes: list[AnyRoute] = []

    @cache
    def document() -> dict[str, Any]:
        return openapi_document(routes)

    routes += page_routes()
    routes += OperationRoutes(gateway, document).routes()
    routes += TokenRoutes(gateway).routes()
    sessions, approvals = SessionRoutes(gateway), ApprovalRoutes(gateway)
    routes += sessions.routes()
    routes += approvals.routes()
    routes += EventRoutes(gateway).routes()
    routes += HistoryRoutes(gateway).routes()
    routes += DecisionRoutes(gateway).routes()
    routes += GrantRoutes(gateway).routes()
    routes += PinRoutes(gateway).routes()
    routes += McpEndpoint(gateway).routes()
    routes += GateRoutes(gateway).routes()
    routes += JobRoutes(gateway).routes()
    routes += SearchRoutes(gateway).routes()
    routes += HookRoutes(gateway).routes()
    routes += ChannelRoutes(gateway).routes()
    routes += AguiRoutes(gateway, sessions, approvals).routes()
    return routes
