"""
`/v1/grants`: remembered approvals. The requester, the person who gave a grant and an admin see it
and may revoke it.
"""

import re

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.pagination import LIMIT, after_name, page_asked_for, page_of
from holdfast.gateway.http.router import AnyRoute, ApiCall, Route
from holdfast.gateway.http.schemas import GrantsList
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import GrantId
from holdfast.runtime.reports.grants import GrantReport

_GRANT = re.compile(r"[a-z0-9-]{1,64}\Z")


class GrantRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._service = gateway.service

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/v1/grants", scope="read", handle=self.list_grants,
                response=GrantsList, query=(LIMIT, after_name("^.+$")),
                id="listGrants", summary="Remembered approvals", answer="a page",
            ),
            Route(
                method="DELETE", path="/v1/grants/{grant}", scope="approve", handle=self.revoke,
                id="revokeGrant", summary="Revoke a remembered approval",
            ),
        ]  # fmt: skip

    async def list_grants(self, call: ApiCall[None]) -> GrantsList:
        limit, after = page_asked_for(call.query)
        mine = [each for each in await self._service.grants() if _may_see(call.bearer, each)]
        page, following = page_of([(each.id, each) for each in mine], limit, after)
        return GrantsList(grants=page, next=following)

    async def revoke(self, call: ApiCall[None]) -> None:
        name, bearer = call.request.path_parts["grant"], call.bearer
        known = (
            {each.id: each for each in await self._service.grants()} if _GRANT.match(name) else {}
        )
        found = known.get(GrantId(name))
        if found is None or not _may_see(bearer, found):
            raise Refused("no such grant", code="unknown", hint="GET /v1/grants lists yours")
        await self._service.revoke(found.id, by=bearer.person, may_all=bearer.is_admin)


def _may_see(bearer: Bearer, grant: GrantReport) -> bool:
    """
    Return whether the token may see a grant: its person is the requester or the giver, within the
    token's audience, or it is an admin's.
    """
    is_theirs = bearer.person in (grant.requester, grant.granted_by)
    return bearer.is_admin or (is_theirs and bearer.reads(grant.audience, grant.boundary))
