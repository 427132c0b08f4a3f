"""
The routes that answer with a live stream. The stream outlives the handler's return, so each is an
async context that is held while the client reads.

Each makes the same checks as the plain route beside it. `/v1/sessions/{id}/events` checks that the
token may see the session. `/v1/approvals/events` checks that the token may read, and then checks
each prompt.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.request import HttpRequest
from holdfast.gateway.http.router import AnyRoute, ApiCall, Parameter, StreamRoute
from holdfast.gateway.routes.visibility import check_seen, session_in_path
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.frames import frame_from_event
from holdfast.gateway.streams.inbox_stream import CURSOR_PATTERN, check_cursor
from holdfast.gateway.streams.sse_response import SseResponse
from holdfast.ids import SessionId
from holdfast.runtime.reports.open_prompts import prompts_of

EVENTS_PATH = "/v1/sessions/{channel}/{thread}/events"
INBOX_PATH = "/v1/approvals/events"
_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_SEQ = Parameter(
    "Last-Event-ID",
    "the seq of the last record that was received",
    {"type": "string", "pattern": "^[0-9]{1,15}$"},
)
_PLACE = Parameter(
    "Last-Event-ID",
    "the id of the last event that was received",
    {"type": "string", "pattern": CURSOR_PATTERN},
)


class EventRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[AnyRoute]:
        return [
            StreamRoute(
                method="GET", path=EVENTS_PATH, scope="read", open=self.session_events,
                headers=(_SEQ,), id="follow", summary="Follow a session",
                answer="records, deltas and notices, live", problems=(409,),
            ),
            StreamRoute(
                method="GET", path=INBOX_PATH, scope="read", open=self.inbox_events,
                headers=(_PLACE,), id="followApprovals", summary="Follow the waiting prompts",
                answer="the waiting prompts and every change to them, live",
            ),
        ]  # fmt: skip

    @asynccontextmanager
    async def session_events(self, call: ApiCall[None]) -> AsyncGenerator[SseResponse, None]:
        """Follow until the client leaves, its token ends or the server stops."""
        bearer, session = call.bearer, session_in_path(call.request)
        # Ask first: the check below then applies to this instance, or the stream is refused.
        instance = await self._gateway.service.live.current(session)
        await check_seen(self._gateway, session, bearer)
        async with self._gateway.tails.follow(
            session, bearer, instance=instance, after=_seq_in(call.request)
        ) as stream:
            first = await self._standing(session, bearer)
            yield SseResponse(stream, first, instance=stream.tail.instance)

    async def _standing(self, session: SessionId, bearer: Bearer) -> bytes:
        """
        Return the follower's open prompts. Every stream starts with them, also after a restart.
        """
        async with self._gateway.service.live.use(session) as ledger:
            asked = [each for each in prompts_of(ledger) if bearer.person in each.may_answer]
        mine = [each for each in asked if bearer.reads(each.audience, each.boundary)]
        return frame_from_event("standing", {"approvals": mine}).data if mine else b""

    @asynccontextmanager
    async def inbox_events(self, call: ApiCall[None]) -> AsyncGenerator[SseResponse, None]:
        """The same for the prompts of all sessions."""
        cursor = check_cursor(call.request.header("last-event-id"))
        async with self._gateway.inboxes.open(call.bearer, after=cursor) as inbox:
            yield SseResponse(inbox)


def _seq_in(request: HttpRequest) -> int | None:
    given = request.header("last-event-id")
    if not given:
        return None
    if not _NUMBER.match(given):
        raise Refused(
            "Last-Event-ID is the seq of a record",
            code="malformed",
            hint="take the id of the last record, or leave the header out",
        )
    return int(given)
