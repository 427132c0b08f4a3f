"""
The routes of `/v1`. Each checks the scope, then whether this token may see the item, and only then
acts.

A session that the token may not see and a missing session get the same answer. The session itself
judges who answers a prompt and journals a wrong approver. In every other respect a foreign prompt
looks like a missing one.
"""

import asyncio
import re
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError, Refused
from holdfast.gateway.http.bodies import one_header, page_from, page_of, query_of, read_body
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.schemas import (
    KEY_CHARS_MAX,
    Answered,
    AnswerIn,
    ApprovalsList,
    CancelIn,
    Cancelled,
    CodeIn,
    GrantsList,
    MessageIn,
    MessageTaken,
    SessionsList,
    TokenGiven,
    Whoami,
)
from holdfast.gateway.server.one_time_codes import PAGE_TOKEN_SECONDS
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import DELEGATE_CHANNEL, ApprovalId, GrantId, SessionId, TurnId, session_id
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.grants import GrantReport
from holdfast.runtime.reports.listing import is_seen, readers_of
from holdfast.runtime.reports.listing import session_of as session_of_approval
from holdfast.runtime.reports.types import AnswerReport, ApprovalReport, iso
from holdfast.session.state import Phase

T = TypeVar("T")
ANSWER_STARTS_SECONDS = 2.0  # longest wait to report `started` instead of `handed_on`
_APPROVAL = re.compile(r"a-[a-z2-7]{26}\Z")
_GRANT = re.compile(r"[a-z0-9-]{1,64}\Z")
_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_CHARS_MAX}}}\Z")


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def bearer_of(request: Request, scope: str) -> Bearer:
    """Return the token's owner, who must have this scope."""
    bearer: Bearer = request.scope["holdfast.bearer"]
    if not bearer.may(scope):
        raise Refused(
            f"this token may not {scope}",
            code="no_authority",
            hint=f"a token with the scope {scope} may",
        )
    return bearer


def session_of(request: Request) -> SessionId:
    return session_id(f"{request.path_params['channel']}/{request.path_params['thread']}")


class Api:
    """The handlers. The gateway holds all state."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._service = gateway.service
        # Locks under which a newcomer's first message is checked and accepted in one step, so that
        # two strangers can't both be first.
        self._joining: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()

    # --- sessions

    async def list_sessions(self, request: Request) -> Response:
        bearer = bearer_of(request, "read")
        limit, after = page_of(query_of(request, "limit", "after"))
        start = session_id(after) if after is not None else None
        found = await self._service.sessions(
            after=start, limit=limit + 1, sees=bearer.sees, reads_all=bearer.reads_all
        )
        page = found[:limit]
        return json_response(
            SessionsList(sessions=page, next=page[-1].session if len(found) > limit else None)
        )

    async def show_session(self, request: Request) -> Response:
        bearer = bearer_of(request, "read")
        query_of(request)
        session = await self._seen(session_of(request), bearer)
        report = await self._service.show(session)
        if not bearer.is_admin:  # file paths are for admins only
            mine = tuple(
                each for each in report.reminders if bearer.reads(each.audience, each.boundary)
            )
            jobs = tuple(job for job in report.jobs if bearer.reads(job.audience, job.boundary))
            report = msgspec.structs.replace(
                report, journal=(), quarantine=(), reminders=mine, jobs=jobs
            )
        if not bearer.reads_every_circle and not bearer.reads_all(
            await readers_of(self._service.shelf, session)
        ):  # these entries do not record their boundary
            report = msgspec.structs.replace(
                report, parked=(), memory=(), deliveries=(), delegates=()
            )
        return json_response(report)

    async def post_message(self, request: Request) -> Response:
        bearer = bearer_of(request, "send")
        query_of(request)
        session = session_of(request)
        body = await self._body(request, MessageIn, bearer)
        key = _key(request)
        if await self._is_seen(session, bearer):
            report = await self._send(session, body.text, bearer, key)
        elif session.startswith(f"{DELEGATE_CHANNEL}/"):
            # Nobody can create or join one, so do not reveal whether it exists.
            raise unknown_session()
        else:
            async with self._joining.setdefault(session, asyncio.Lock()):
                await self._may_join(session, bearer)
                report = await self._send(session, body.text, bearer, key)
        if report.error is not None and report.error.code == "answer_word":
            raise Refused(
                report.error.message,
                code="answer_word",
                hint="answer the prompt itself: POST /v1/approvals/{id}/answer",
            )
        self._gateway.metrics.messages += 1
        turn = report.turn or ""
        return json_response(
            MessageTaken(session=session, turn=report.turn, input=f"i{turn[1:]}", seq=report.seq),
            202,
        )

    async def _send(self, session: SessionId, text: str, bearer: Bearer, key: str | None) -> Any:
        report = await self._service.send(
            session,
            text,
            source=bearer.source(),
            dedup=key,
            workspace=self._gateway.workspace(),
            wait=False,
        )
        self._gateway.drives.wake(session)
        return report

    async def _may_join(self, session: SessionId, bearer: Bearer) -> None:
        if await self._service.world.store.current(session) is None:
            return
        readers = await readers_of(self._service.shelf, session)
        if readers and not (bearer.sees(readers) or bearer.may_join(readers)):
            raise unknown_session()

    async def cancel(self, request: Request) -> Response:
        bearer = bearer_of(request, "read")
        if not (bearer.may("send") or bearer.is_admin):
            raise Refused(
                "this token may not send",
                code="no_authority",
                hint="a token with the scope send may",
            )
        query_of(request)
        session = await self._seen(session_of(request), bearer)
        body = await self._body(request, CancelIn, bearer, nothing=CancelIn())
        turn = TurnId(body.turn) if body.turn is not None else None
        reports = await self._service.cancel(
            session, by=bearer.person, turn=turn, may_all=bearer.is_admin
        )
        self._gateway.drives.wake(session)
        return json_response(Cancelled(session=session, turns=reports))

    # --- prompts

    async def list_approvals(self, request: Request) -> Response:
        bearer = bearer_of(request, "read")
        limit, after = page_of(query_of(request, "limit", "after"))
        mine = [each for each in await self._service.approvals() if _concerns(bearer, each)]
        page, following = page_from([(each.id, each) for each in mine], limit, after)
        return json_response(ApprovalsList(approvals=tuple(page), next=following))

    async def show_approval(self, request: Request) -> Response:
        bearer = bearer_of(request, "read")
        query_of(request)
        return json_response(await self._approval(request, bearer))

    async def _approval(self, request: Request, bearer: Bearer) -> ApprovalReport:
        """Return the prompt if this token may see it; otherwise report it as unknown."""
        self._gateway.spend_miss(bearer)
        report = await self._looked_up(_approval_of(request), bearer)
        if not bearer.reads(report.audience, report.boundary) or not await self._is_seen(
            report.session, bearer
        ):
            raise unknown_approval()
        self._gateway.refund_miss(bearer)
        return report

    async def answer(self, request: Request) -> Response:
        bearer = bearer_of(request, "approve")
        query_of(request)
        body = await self._body(request, AnswerIn, bearer)
        name = _approval_of(request)
        self._gateway.spend_miss(bearer)
        await self._within_audience(name, bearer)
        try:
            answered = await self._service.answer(
                name,
                body.option,
                by=bearer.person,
                digest=body.digest,
                reason=body.reason,
                arguments=body.arguments,
                answer_id=body.answer_id,
                way=bearer.way,
                wait=False,
            )
        except HoldfastError as exc:
            self._gateway.metrics.answers["failed"] += 1
            raise await self._told(exc, name, bearer) from exc
        self._gateway.refund_miss(bearer)
        self._gateway.drives.wake(answered.turn.session)
        answered = await self._until_started(answered, name)
        self._gateway.metrics.answers[answered.result] += 1
        return json_response(
            Answered(result=answered.result, reason=answered.reason, turn=answered.turn)
        )

    async def _told(
        self, error: HoldfastError, approval: ApprovalId, bearer: Bearer
    ) -> HoldfastError:
        """
        Return the error unchanged for a token that sees the session. Other tokens learn only of an
        open prompt, and only that it is not theirs to answer: not its requester, its end or a seal.
        """
        if error.code == "wrong_approver":
            self._gateway.refund_miss(bearer)
            return Refused("you may not answer this prompt; it still stands", code="wrong_approver")
        session = await session_of_approval(self._service.world, self._service.shelf, approval)
        if session is None or error.code == "unknown" or not await self._is_seen(session, bearer):
            return unknown_approval()
        self._gateway.refund_miss(bearer)
        return error

    async def _looked_up(self, approval: ApprovalId, bearer: Bearer) -> ApprovalReport:
        try:
            return await self._service.approval(approval)
        except HoldfastError as exc:
            raise await self._told(exc, approval, bearer) from exc

    async def _within_audience(self, approval: ApprovalId, bearer: Bearer) -> None:
        """
        Report the prompt as unknown to a token with a wider audience than the prompt's, even if its
        person may answer.
        """
        if bearer.reads("personal", f"personal:{bearer.person}"):
            return
        report = await self._looked_up(approval, bearer)
        if not bearer.reads(report.audience, report.boundary):
            raise unknown_approval()

    async def _until_started(self, answered: AnswerReport, approval: ApprovalId) -> AnswerReport:
        """
        Wait a moment so that the answer can report `started`. The answer is durable either way.
        """
        if answered.result != "handed_on" or answered.turn.turn is None:
            return answered
        turn = answered.turn.turn
        async with self._service.shelf.use(answered.turn.session) as ledger:
            watch = ledger.watch()
            try:
                async with asyncio.timeout(ANSWER_STARTS_SECONDS):
                    while not _went_on(ledger, turn, approval, answered.turn.seq):
                        watch.clear()
                        await watch.wait()
            except TimeoutError:
                return answered
            finally:
                ledger.unwatch(watch)
            return AnswerReport(result="started", reason=None, turn=await turn_report(ledger, turn))

    # --- grants

    async def list_grants(self, request: Request) -> Response:
        bearer = bearer_of(request, "read")
        limit, after = page_of(query_of(request, "limit", "after"))
        mine = [each for each in await self._service.grants() if _may_see(bearer, each)]
        page, following = page_from([(each.id, each) for each in mine], limit, after)
        return json_response(GrantsList(grants=tuple(page), next=following))

    async def delete_grant(self, request: Request) -> Response:
        bearer = bearer_of(request, "approve")
        query_of(request)
        name = request.path_params["grant"]
        known = (
            {each.id: each for each in await self._service.grants()} if _GRANT.match(name) else {}
        )
        found = known.get(GrantId(name))
        if found is None or not _may_see(bearer, found):
            raise Refused(
                "there is no such grant", code="unknown", hint="GET /v1/grants lists yours"
            )
        await self._service.revoke(found.id, by=bearer.person, may_all=bearer.is_admin)
        return Response(status_code=204)

    # --- the token itself

    async def exchange_code(self, request: Request) -> Response:
        query_of(request)
        gateway, now = self._gateway, self._service.world.clock.now_ms()
        body = await read_body(request, CodeIn)
        found = await gateway.book.exchange(
            body.code,
            name=gateway.page_token_name(),
            expires_at=self._service.world.now_ms() + PAGE_TOKEN_SECONDS * 1000,
            now=now,
        )
        if found is None:
            if not gateway.code_tries.take(
                ""
            ):  # count only wrong codes, so that guessing can't keep the owner out
                raise Refused("too many codes were tried", code="too_many", hint="wait a moment")
            raise Refused(
                "this code is unknown, used or too old",
                code="unauthorized",
                hint="`holdfast serve code` gives a new one",
            )
        token, added = found
        expires_at = iso(added.expires_at) if added.expires_at is not None else None
        given = TokenGiven(
            token=token,
            name=added.name,
            person=added.person,
            scopes=added.scopes,
            audience=added.audience,
            expires_at=expires_at,
        )
        return json_response(given, 201)

    async def whoami(self, request: Request) -> Response:
        bearer: Bearer = request.scope["holdfast.bearer"]
        query_of(request)
        expires_at = iso(bearer.expires_at) if bearer.expires_at is not None else None
        scopes = tuple(sorted(bearer.scopes))
        audience = bearer.audience.value
        return json_response(
            Whoami(
                name=bearer.name,
                person=bearer.person,
                scopes=scopes,
                audience=audience,
                boundary=bearer.boundary,
                expires_at=expires_at,
            )
        )

    async def _body(
        self, request: Request, kind: type[T], bearer: Bearer, *, nothing: T | None = None
    ) -> T:
        """
        Read the body, then check the token again: reading takes time, and a token revoked meanwhile
        must not act. An empty body means `nothing`.
        """
        body = await read_body(request, kind, nothing=nothing)
        if not await self._gateway.book.still_lives(
            [bearer], now=self._service.world.clock.now_ms()
        ):
            raise Refused(
                "the token was revoked or ran out before the body was here", code="unauthorized"
            )
        return body

    # --- visibility

    async def _is_seen(self, session: SessionId, bearer: Bearer) -> bool:
        return await is_seen(self._service.world, self._service.shelf, session, bearer.sees)

    async def _seen(self, session: SessionId, bearer: Bearer) -> SessionId:
        if not await self._is_seen(session, bearer):
            raise unknown_session()
        return session


def unknown_session() -> Refused:
    return Refused("there is no such session", code="unknown", hint="GET /v1/sessions lists yours")


def unknown_approval() -> Refused:
    return Refused(
        "there is no such approval", code="unknown", hint="GET /v1/approvals lists what waits"
    )


def _approval_of(request: Request) -> ApprovalId:
    name = request.path_params["approval"]
    if not _APPROVAL.match(name):
        raise unknown_approval()
    return ApprovalId(name)


def _key(request: Request) -> str | None:
    key = one_header(request, "idempotency-key")
    if key is not None and not _KEY.match(key):
        raise Refused(
            f"Idempotency-Key is 1 to {KEY_CHARS_MAX} printable characters without spaces",
            code="malformed",
        )
    return key


def _concerns(bearer: Bearer, report: ApprovalReport) -> bool:
    return bearer.is_concerned(
        report.audience, report.boundary, (report.requester, *report.may_answer)
    )


def _may_see(bearer: Bearer, grant: GrantReport) -> bool:
    """
    Return whether the token may see a grant: its person is the requester or the giver, within the
    token's audience, or it is an admin's.
    """
    is_theirs = bearer.person in (grant.requester, grant.granted_by)
    return bearer.is_admin or (is_theirs and bearer.reads(grant.audience, grant.boundary))


def _went_on(ledger: Ledger, turn: TurnId, approval: ApprovalId, since: int) -> bool:
    """
    Return whether the call started or nothing is left to start: denied, asked again, or the turn
    ended.
    """
    open_turn = ledger.state.turns.get(turn)
    if open_turn is None:
        return True
    call = next(
        (
            each
            for each in open_turn.calls
            if each.approval is not None and each.approval.asked.approval == approval
        ),
        None,
    )
    if call is None:
        return ledger.state.seq > since
    if call.call in ledger.started:
        return True
    return call.outcome is not None and open_turn.phase is not Phase.PARKED
