"""
`POST /mcp` and `POST /mcp/SERVER`: streamable HTTP, one message for each request, with a token that
may send.

While an answer is made, the connection is watched: a client that leaves gets nothing, and its
result is kept for the same call again.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast.errors import Refused
from holdfast.gateway.http.asgi import AsgiApp, Receive, Scope, Send
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.request import HttpRequest
from holdfast.gateway.http.response import HttpResponse
from holdfast.gateway.http.router import AnyRoute, ApiCall, StreamRoute
from holdfast.gateway.mcp.answer import McpAnswer
from holdfast.gateway.mcp.clients import (
    client_in_header,
    client_name,
    new_session_header,
    refuse_approver,
)
from holdfast.gateway.mcp.methods import ClientReply, McpMethods, ProxyClient
from holdfast.gateway.mcp.peer_user import shares_user
from holdfast.gateway.mcp.rpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    ClientMessage,
    RpcProblem,
    problem_message,
    read_client_message,
)
from holdfast.gateway.mcp.versions import Spoken, is_of_handshake, spoken_by
from holdfast.gateway.server.tokens import Bearer

MCP_PATH = "/mcp"
KEY_HEADER = "holdfast-request"
_KEY = re.compile(r"[0-9a-f]{32}\Z")
_SESSION = "mcp-session-id"
_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


class McpEndpoint:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._methods = McpMethods(gateway)

    def routes(self) -> list[AnyRoute]:
        return [
            StreamRoute(method="POST", path=path, scope="send", open=self.open)
            for path in (MCP_PATH, f"{MCP_PATH}/{{server}}")
        ]

    @asynccontextmanager
    async def open(self, call: ApiCall[None]) -> AsyncGenerator[AsgiApp, None]:
        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            await self._respond(call.request, call.bearer, scope, receive, send)

        yield respond

    async def _respond(
        self, request: HttpRequest, bearer: Bearer, scope: Scope, receive: Receive, send: Send
    ) -> None:
        refuse_approver(bearer)
        request.check_media_type()
        body = await request.raw()
        now = self._gateway.service.live.clock_ms()
        if not await self._gateway.book.still_lives([bearer], now=now):
            raise Refused(
                "the token was revoked or expired meanwhile",
                code="unauthorized",
                hint="use another token",
            )
        message = ClientMessage(None, None, {})
        answer = McpAnswer(send, request.header("accept"))
        try:
            message = read_client_message(body)
            spoken = spoken_by(message, request.header) if message.is_request else None
            if spoken is None:
                await HttpResponse(status=202)(send)
                return
            client = self._client(request, bearer, message, spoken, scope)
            await self._answered(message, client, receive, answer)
        except RpcProblem as problem:
            is_older = message.is_request and is_of_handshake(message, request.header)
            status = 200 if is_older else _STATUS.get(problem.code, 200)
            await answer.end(problem_message(message.id, problem), status=status)

    def _client(
        self,
        request: HttpRequest,
        bearer: Bearer,
        message: ClientMessage,
        spoken: Spoken,
        scope: Scope,
    ) -> ProxyClient:
        info = spoken.client_info
        if not spoken.is_stateless:
            info = message.params.get("clientInfo") or client_in_header(request.header(_SESSION))
        key = request.header(KEY_HEADER)
        server = request.path_parts.get("server")
        if server is not None and server not in self._gateway.service.servers.names():
            raise Refused("no such server", code="unknown", hint="see `holdfast mcp list`")
        return ProxyClient(
            bearer=bearer,
            name=client_name(info, bearer),
            is_stateless=spoken.is_stateless,
            server=server,
            shares_user=message.method == "tools/call"
            and shares_user(scope.get("client"), scope.get("server")),
            key=f"mcp:{bearer.name}:{key}" if key is not None and _KEY.match(key) else None,
            # A request with a key comes from the relay, whose client speaks on a pipe.
            headers=request.header_values if spoken.is_stateless and key is None else None,
        )

    async def _answered(
        self, message: ClientMessage, client: ProxyClient, receive: Receive, answer: McpAnswer
    ) -> None:
        """Answer, unless the client leaves first."""

        async def make() -> None:
            async with self._methods.answer(message, client, answer.note) as reply:
                await _end(reply, message, client, answer)

        answering = asyncio.ensure_future(make())
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()
                await asyncio.wait([answering])
        try:
            if not answering.cancelled():
                answering.result()
        finally:
            del answering  # its error refers to this frame: a circle, which would hold the request


async def _end(
    reply: ClientReply, message: ClientMessage, client: ProxyClient, answer: McpAnswer
) -> None:
    headers = {}
    if message.method == "initialize" and not client.is_stateless:
        headers = {_SESSION: new_session_header(client.name)}
    status = _STATUS.get(reply.code, 200) if client.is_stateless else 200
    await answer.end(reply.body, status=status, headers=headers)
    if reply.flight is not None:
        reply.flight.deliver()


async def _left(receive: Receive) -> None:
    with contextlib.suppress(OSError):
        while (await receive())["type"] != "http.disconnect":
            pass
