"""
`/v1/approvals`: list, show and answer prompts. The session itself judges who answers and journals a
wrong approver. In every other respect a foreign prompt looks like a missing one.
"""

import asyncio
import re

from holdfast.errors import HoldfastError, Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.pagination import LIMIT, after_name, page_asked_for, page_of
from holdfast.gateway.http.request import HttpRequest
from holdfast.gateway.http.router import AnyRoute, ApiCall, Route
from holdfast.gateway.http.schemas import AnswerIn, AnswerResult, ApprovalsList
from holdfast.gateway.routes.visibility import may_see, unknown_approval
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import ApprovalId, TurnId
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.decisions import DecisionReport
from holdfast.runtime.reports.types import AnswerReport, ApprovalReport
from holdfast.session.state import Phase

ANSWER_STARTS_SECONDS = 2.0  # longest wait to report `started` instead of `handed_on`


_APPROVAL = re.compile(r"a-[a-z2-7]{26}\Z")


class ApprovalRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._service = gateway.service

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/v1/approvals", scope="read", handle=self.list_approvals,
                response=ApprovalsList, query=(LIMIT, after_name("^.+$")),
                id="listApprovals", summary="Waiting prompts", answer="a page",
            ),
            Route(
                method="GET", path="/v1/approvals/{approval}", scope="read", handle=self.show,
                response=ApprovalReport,
                id="showApproval", summary="One prompt", answer="complete",
            ),
            Route(
                method="GET", path="/v1/approvals/{approval}/outcome", scope="read",
                handle=self.outcome, response=DecisionReport,
                id="showOutcome", summary="The answer to a prompt, and the result of its call",
                answer="complete; `outcome` is null while the call runs",
            ),
            Route(
                method="POST", path="/v1/approvals/{approval}/answer", scope="approve",
                handle=self.answer, request=AnswerIn, response=AnswerResult,
                id="answerApproval", summary="Answer a prompt", answer="durable",
                problems=(409, 410, 422),
            ),
        ]  # fmt: skip

    async def list_approvals(self, call: ApiCall[None]) -> ApprovalsList:
        limit, after = page_asked_for(call.query)
        mine = [each for each in await self._service.approvals() if _concerns(call.bearer, each)]
        page, following = page_of([(each.id, each) for each in mine], limit, after)
        return ApprovalsList(approvals=page, next=following)

    async def show(self, call: ApiCall[None]) -> ApprovalReport:
        """Return the prompt if this token may see it; otherwise report it as unknown."""
        return await self.seen(call.request.path_parts["approval"], call.bearer)

    async def seen(self, name: str, bearer: Bearer) -> ApprovalReport:
        """The same for a prompt by its name."""
        self._gateway.spend_miss(bearer)
        report = await self._looked_up(_approval_named(name), bearer)
        if not bearer.reads(report.audience, report.boundary) or not await may_see(
            self._gateway, report.session, bearer
        ):
            raise unknown_approval()
        self._gateway.refund_miss(bearer)
        return report

    async def outcome(self, call: ApiCall[None]) -> DecisionReport:
        report = await self.show(call)
        found = await self._service.decisions.outcome(report.session, report.id)
        if found is None:
            raise unknown_approval()
        return found

    async def answer(self, call: ApiCall[AnswerIn]) -> AnswerResult:
        name = _approval_in_path(call.request)
        answered = await self.record(name, call.body, call.bearer)
        answered = await self._until_started(answered, name)
        self._gateway.metrics.answers[answered.result] += 1
        return AnswerResult(result=answered.result, reason=answered.reason, turn=answered.turn)

    async def record(self, name: ApprovalId, body: AnswerIn, bearer: Bearer) -> AnswerReport:
        """Record the answer of the token's person, durably, and have the turn driven on."""
        self._gateway.spend_miss(bearer)
        await self._check_audience(name, bearer)
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
            raise await self._shown_error(exc, name, bearer) from exc
        self._gateway.refund_miss(bearer)
        self._gateway.drives.wake(answered.turn.session)
        return answered

    async def _shown_error(
        self, error: HoldfastError, approval: ApprovalId, bearer: Bearer
    ) -> HoldfastError:
        """
        Return the error unchanged for a token that sees the session. Other tokens learn only of an
        open prompt, and only that it is not theirs to answer: not its requester, its end or a seal.
        """
        if error.code == "wrong_approver":
            self._gateway.refund_miss(bearer)
            return Refused(
                "you may not answer this prompt; it still stands",
                code="wrong_approver",
                hint="one of the people in may_answer may",
            )
        session = await self._service.live.session_of(approval)
        if (
            session is None
            or error.code == "unknown"
            or not await may_see(self._gateway, session, bearer)
        ):
            return unknown_approval()
        self._gateway.refund_miss(bearer)
        return error

    async def _looked_up(self, approval: ApprovalId, bearer: Bearer) -> ApprovalReport:
        try:
            return await self._service.approval(approval)
        except HoldfastError as exc:
            raise await self._shown_error(exc, approval, bearer) from exc

    async def _check_audience(self, approval: ApprovalId, bearer: Bearer) -> None:
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
        async with self._service.live.use(answered.turn.session) as ledger:
            watch = ledger.watch()
            try:
                async with asyncio.timeout(ANSWER_STARTS_SECONDS):
                    while not _went_on(ledger, turn, approval, answered.turn.seq):
                        watch.clear()
                        await watch.wait()
                        if not ledger.driving:  # another process may drive it
                            await ledger.catch_up_if_behind()
            except TimeoutError:
                return answered
            finally:
                ledger.unwatch(watch)
            return AnswerReport(result="started", reason=None, turn=await turn_report(ledger, turn))


def _approval_in_path(request: HttpRequest) -> ApprovalId:
    return _approval_named(request.path_parts["approval"])


def _approval_named(name: str) -> ApprovalId:
    if not _APPROVAL.match(name):
        raise unknown_approval()
    return ApprovalId(name)


def _concerns(bearer: Bearer, report: ApprovalReport) -> bool:
    return bearer.is_concerned(
        report.audience, report.boundary, (report.requester, *report.may_answer)
    )


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
