"""
`/v1/mcp`: servers of tools and their pins, for the page. A server's program and paths are for
admins alone.
"""

import re

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.router import AnyRoute, ApiCall, Route
from holdfast.gateway.http.schemas import PinIn, Pinned, ServersList, ToolsShown, UnpinIn, Unpinned
from holdfast.gateway.server.tokens import Bearer
from holdfast.session.authority.policy import counts

_SERVER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")


class PinRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._service = gateway.service

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/v1/mcp", scope="admin", handle=self.list_servers,
                response=ServersList, id="listServers", summary="MCP servers and their tools",
                answer="as the servers are now",
            ),
            Route(
                method="GET", path="/v1/mcp/{server}", scope="admin", handle=self.show,
                response=ToolsShown, id="showServer", summary="All tools of a server, whole",
                answer="with the difference to each pin", problems=(503,),
            ),
            Route(
                method="POST", path="/v1/pins", scope="approve", handle=self.pin,
                request=PinIn, response=Pinned, id="pinTools",
                summary="Let models use tools, exactly as shown", answer="pinned",
                problems=(404, 409, 503),
            ),
            Route(
                method="POST", path="/v1/pins/withdraw", scope="approve", handle=self.unpin,
                request=UnpinIn, response=Unpinned, id="unpinTools",
                summary="Withdraw tools", answer="withdrawn", problems=(404,),
            ),
        ]  # fmt: skip

    async def list_servers(self, call: ApiCall[None]) -> ServersList:
        del call
        return ServersList(servers=await self._service.servers.list())

    async def show(self, call: ApiCall[None]) -> ToolsShown:
        server = call.request.path_parts["server"]
        if not _SERVER.match(server):
            raise Refused("no such server", code="unknown", hint="GET /v1/mcp lists them")
        return ToolsShown(tools=await self._service.servers.show([server]))

    async def pin(self, call: ApiCall[PinIn]) -> Pinned:
        self._require_person(call.bearer)
        wanted = [(each.name, each.digest) for each in call.body.tools]
        tools = await self._service.servers.pin(wanted, by=call.bearer.person)
        return Pinned(pinned=tuple(each.name for each in tools))

    async def unpin(self, call: ApiCall[UnpinIn]) -> Unpinned:
        self._require_person(call.bearer)
        gone = await self._service.servers.unpin(call.body.tools, by=call.bearer.person)
        return Unpinned(unpinned=tuple(gone))

    def _require_person(self, bearer: Bearer) -> None:
        """A pin holds for everybody, so it takes an admin; and it is consent, so its way counts."""
        if not bearer.is_admin:
            raise Refused(
                "this token may not decide about servers",
                code="no_authority",
                hint="a token with the scopes approve and admin may",
            )
        consent = self._service.live.policy().consent
        if not counts(bearer.way, consent):
            raise Refused(
                f"approvals.consent is {', '.join(consent)}",
                code="no_authority",
                hint="decide in a way that counts",
            )
