"""
The routes that answer with a live stream, as raw ASGI endpoints. The stream outlives the handler's
return, so its listener is held here.

Each makes the same checks as the plain route beside it. `/v1/sessions/{id}/events` checks that the
token may see the session. `/v1/approvals/events` checks that the token may read, and then checks
each prompt.
"""

from contextlib import AbstractAsyncContextManager

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from holdfast.gateway.http.bodies import cursor_of, one_header, query_of
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.routes.api import bearer_of, session_of, unknown_session
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.frames import frame_from_event
from holdfast.gateway.streams.inbox_stream import Inbox, check_cursor
from holdfast.gateway.streams.sse_response import Stream
from holdfast.ids import SessionId
from holdfast.runtime.reports.listing import is_seen
from holdfast.runtime.reports.open_prompts import prompts_of


class SessionEvents:
    """
    `GET /v1/sessions/{channel}/{thread}/events`: a stream that runs until its client leaves, its
    token ends or the server stops.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        bearer = bearer_of(request, "read")
        session = session_of(request)
        query_of(request)
        service = self._gateway.service
        instance = await service.world.store.current(
            session
        )  # ask first: the check below then applies to this instance, or the stream is refused
        if not await is_seen(service.world, service.shelf, session, bearer.sees):
            raise unknown_session()
        async with self._gateway.tails.follow(
            session, bearer, instance=instance, after=cursor_of(request)
        ) as follower:
            first = await self._standing(session, bearer)
            await Stream(follower, first, life=follower.tail.instance)(scope, receive, send)

    async def _standing(self, session: SessionId, bearer: Bearer) -> bytes:
        """
        Return the follower's open prompts. Every stream starts with them, also after a restart.
        """
        async with self._gateway.service.shelf.use(session) as ledger:
            asked = [each for each in prompts_of(ledger) if bearer.person in each.may_answer]
        mine = [each for each in asked if bearer.reads(each.audience, each.boundary)]
        return frame_from_event("standing", {"approvals": mine}).data if mine else b""


class InboxEvents:
    """`GET /v1/approvals/events`: the same for the prompts of all sessions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        bearer = bearer_of(request, "read")
        query_of(request)
        opened: AbstractAsyncContextManager[Inbox] = self._gateway.inboxes.open(
            bearer, after=check_cursor(one_header(request, "last-event-id"))
        )
        async with opened as inbox:
            await Stream(inbox)(scope, receive, send)
