"""`/v1/sessions`: list, show, send a message, stop a turn, give a title."""

import asyncio
import re
from weakref import WeakValueDictionary

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.pagination import LIMIT, after_name, page_asked_for
from holdfast.gateway.http.request import HttpRequest
from holdfast.gateway.http.router import STOP, AnyRoute, ApiCall, Parameter, Route
from holdfast.gateway.http.schemas import (
    KEY_CHARS_MAX,
    CancelIn,
    Cancelled,
    MessageIn,
    MessageTaken,
    Renamed,
    SessionsList,
    TitleIn,
)
from holdfast.gateway.routes.visibility import (
    check_seen,
    may_see,
    session_in_path,
    unknown_session,
)
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import DELEGATE_CHANNEL, SessionId, TurnId, session_id
from holdfast.runtime.reports.types import SessionReport, TurnReport
from holdfast.runtime.verbs.accept import Incoming

_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_CHARS_MAX}}}\Z")
_KEY_HEADER = Parameter(
    "Idempotency-Key",
    "the same key and text again is the same message",
    {
        "type": "string",
        "minLength": 1,
        "maxLength": KEY_CHARS_MAX,
        "pattern": "^[\\x21-\\x7e]+$",
    },
)
_ID_PAIR = "^[a-z0-9][a-z0-9._-]{0,63}/[a-z0-9][a-z0-9._-]{0,63}$"
_ONE = "/v1/sessions/{channel}/{thread}"


class SessionRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._service = gateway.service
        # Locks under which a newcomer's first message is checked and accepted in one step, so that
        # two strangers can't both be first.
        self._joining: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/v1/sessions", scope="read", handle=self.list_sessions,
                response=SessionsList, query=(LIMIT, after_name(_ID_PAIR)),
                id="listSessions", summary="Sessions", answer="a page",
            ),
            Route(
                method="GET", path=_ONE, scope="read", handle=self.show, response=SessionReport,
                id="showSession", summary="One session", answer="where it stands",
            ),
            Route(
                method="POST", path=f"{_ONE}/messages", scope="send", handle=self.send,
                request=MessageIn, response=MessageTaken, status=202, headers=(_KEY_HEADER,),
                id="sendMessage", summary="Send a message", answer="durable", problems=(409, 422),
            ),
            Route(
                method="POST", path=f"{_ONE}/cancel", scope=STOP, handle=self.cancel,
                request=CancelIn, nothing=CancelIn(), response=Cancelled,
                id="cancel", summary="Cancel a running or waiting turn", answer="durable",
                problems=(409, 410),
            ),
            Route(
                method="POST", path=f"{_ONE}/title", scope="send", handle=self.rename,
                request=TitleIn, response=Renamed,
                id="renameSession", summary="Give a conversation another title",
                answer="durable", problems=(409, 422),
            ),
        ]  # fmt: skip

    async def list_sessions(self, call: ApiCall[None]) -> SessionsList:
        bearer = call.bearer
        limit, after = page_asked_for(call.query)
        start = session_id(after) if after is not None else None
        found = await self._service.sessions(
            after=start, limit=limit + 1, sees=bearer.sees, reads_all=bearer.reads_all
        )
        page = found[:limit]
        return SessionsList(sessions=page, next=page[-1].session if len(found) > limit else None)

    async def show(self, call: ApiCall[None]) -> SessionReport:
        bearer = call.bearer
        session = await check_seen(self._gateway, session_in_path(call.request), bearer)
        report = await self._service.show(session)
        if not bearer.is_admin:  # file paths are for admins only
            mine = tuple(
                each for each in report.reminders if bearer.reads(each.audience, each.boundary)
            )
            jobs = tuple(job for job in report.jobs if bearer.reads(job.audience, job.boundary))
            report = msgspec.structs.replace(
                report, journal=(), quarantine=(), reminders=mine, jobs=jobs
            )
        if not await self._reads_all(session, bearer):  # these entries record no boundary
            report = msgspec.structs.replace(
                report, parked=(), memory=(), deliveries=(), delegates=(), title=""
            )
        return report

    async def _reads_all(self, session: SessionId, bearer: Bearer) -> bool:
        """Return whether everything said in the session is within the token's audience."""
        return bearer.reads_every_reader_set or bearer.reads_all(
            await self._service.live.readers_of(session)
        )

    async def send(self, call: ApiCall[MessageIn]) -> MessageTaken:
        session = session_in_path(call.request)
        incoming = Incoming(
            text=call.body.text, source=call.bearer.source(), dedup=_key_of(call.request)
        )
        report = await self.accept(session, incoming, call.bearer)
        turn = report.turn or ""
        return MessageTaken(
            session=session,
            turn=report.turn,
            input=f"i{turn[1:]}",
            seq=report.seq,
            superseded=report.superseded,
        )

    async def accept(self, session: SessionId, incoming: Incoming, bearer: Bearer) -> TurnReport:
        """
        Accept a message from this token where it may send, durably, and have its turn driven. The
        workspace comes from the server's settings.
        """
        if await may_see(self._gateway, session, bearer):
            report = await self._send(session, incoming)
        elif session.startswith(f"{DELEGATE_CHANNEL}/"):
            # Nobody can create or join one, so do not reveal whether it exists.
            raise unknown_session()
        else:
            async with self._joining.setdefault(session, asyncio.Lock()):
                await self._check_joining(session, bearer)
                report = await self._send(session, incoming)
        if report.error is not None and report.error.code == "answer_word":
            raise Refused(
                report.error.message,
                code="answer_word",
                hint="answer the prompt itself: POST /v1/approvals/{id}/answer",
            )
        self._gateway.metrics.messages += 1
        return report

    async def _send(self, session: SessionId, incoming: Incoming) -> TurnReport:
        placed = msgspec.structs.replace(incoming, workspace=self._gateway.workspace())
        report = await self._service.send(session, placed, wait=False)
        self._gateway.drives.wake(session)
        return report

    async def _check_joining(self, session: SessionId, bearer: Bearer) -> None:
        if await self._service.live.current(session) is None:
            return
        readers = await self._service.live.readers_of(session)
        if readers and not (bearer.sees(readers) or bearer.may_join(readers)):
            raise unknown_session()

    async def cancel(self, call: ApiCall[CancelIn]) -> Cancelled:
        bearer = call.bearer
        session = await check_seen(self._gateway, session_in_path(call.request), bearer)
        turn = TurnId(call.body.turn) if call.body.turn is not None else None
        reports = await self._service.cancel(
            session, by=bearer.person, turn=turn, may_all=bearer.is_admin
        )
        self._gateway.drives.wake(session)
        return Cancelled(session=session, turns=reports)

    async def rename(self, call: ApiCall[TitleIn]) -> Renamed:
        """
        The title stands for the whole conversation, so only a reader of all of it may change it.
        """
        bearer = call.bearer
        session = await check_seen(self._gateway, session_in_path(call.request), bearer)
        if not await self._reads_all(session, bearer):
            raise Refused(
                "other people talk here too, in turns that you may not read",
                code="no_authority",
                hint="a person who reads all of the conversation, or an admin, may rename it",
            )
        title = await self._service.rename(
            session, call.body.title, by=bearer.person, may_all=bearer.is_admin
        )
        return Renamed(session=session, title=title)


def _key_of(request: HttpRequest) -> str | None:
    key = request.header("idempotency-key")
    if key is not None and not _KEY.match(key):
        raise Refused(
            f"Idempotency-Key is 1 to {KEY_CHARS_MAX} printable characters without spaces",
            code="malformed",
            hint="send a new key for each message, such as a UUID",
        )
    return key
