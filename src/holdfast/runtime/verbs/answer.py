"""
Answer a prompt: the answer is durable before anything that it allows happens. Then its turn is
driven on.

A refused answer is raised and leaves the prompt as it was. A taken answer is never reported as
refused, even if a later step fails. Only an answer whose call may not run any more is reported as
failed, since nothing ran and nothing will.
"""

import logging
from contextlib import suppress

import msgspec

from holdfast.errors import Busy, CannotDrive, HoldfastError, Refused, Untrusted
from holdfast.ids import ApprovalId
from holdfast.ports.journal_store import Check
from holdfast.ports.tools import InvalidArguments
from holdfast.runtime.context import World
from holdfast.runtime.delegates.delegation import Delegation
from holdfast.runtime.drive.binding import tool_for
from holdfast.runtime.drive.driver import Driver
from holdfast.runtime.drive.turn import TurnRunner, is_foreign
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.ledger.timekeeper import HomeTime, refuse_disputed
from holdfast.runtime.redaction import refuse_secrets
from holdfast.runtime.reports import listing
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.open_prompts import has_expired
from holdfast.runtime.reports.types import AnswerReport, ErrorReport, Result
from holdfast.runtime.verbs.grant_proposal import proposed_grant
from holdfast.runtime.verbs.repeated_answer import match_repeated_edit
from holdfast.session.authority.approvals import DENY, SCOPES
from holdfast.session.codec import decode
from holdfast.session.commands import AnswerApproval, Expire
from holdfast.session.events import ApprovalClosed
from holdfast.session.home.events import GrantActivated, GrantDropped, GrantProposed
from holdfast.session.results import Answered
from holdfast.session.state import Call, CallStatus, Phase, Turn

_log = logging.getLogger("holdfast.service")


class Answering:
    """One per service; it keeps no state."""

    def __init__(
        self,
        world: World,
        shelf: OpenSessions,
        home: HomeLedger,
        time: HomeTime,
        delegation: Delegation,
        drives: TurnRunner,
    ) -> None:
        self._world = world
        self._shelf = shelf
        self._home = home
        self._time = time
        self._delegation = delegation
        self._drives = drives

    async def answer(self, command: AnswerApproval, *, wait: bool) -> AnswerReport:
        session = await listing.session_of(self._world, self._shelf, command.approval)
        if session is None:
            raise Refused(
                f"there is no approval {command.approval}",
                code="unknown",
                hint="`holdfast approvals list` shows what waits",
            )
        refuse_secrets(
            self._world,
            command.reason,
            command.arguments,
            command.answer_id,
            command.option,
            command.by,
            command.asserted_by,
            what="answer",
        )
        async with self._shelf.use(session) as ledger:
            driver = self._drives.driver(ledger)
            try:
                if await self._delegation.stop_if_unwanted(ledger):
                    await self._delegation.report(ledger)
                answered = await self._record(ledger, command)
                self._world.notifier.notify(session)
                report = await self._go_on(ledger, driver, command.approval, answered, wait=wait)
                return await self._answered_above(ledger, report) if wait else report
            except Refused as refused:
                if wait and refused.code in {"expired", "voided"}:
                    await self._go_on_without(ledger, driver, command.approval)
                raise
            finally:
                if wait:
                    await self._drives.leave(ledger, driver)
                else:
                    self._drives.hand_on(ledger)

    # --- recording it

    async def _record(self, ledger: Ledger, command: AnswerApproval) -> Answered:
        """
        Record GrantProposed, ApprovalAnswered, GrantActivated, in this order, so that a grant never
        exists without its answer.
        """
        await ledger.look()
        await self._home.refresh()
        moment = self._time.moment(session_at=ledger.state.at)
        if has_expired(ledger.state, moment):
            await ledger.commit(Expire())
        if command.option != DENY:
            refuse_disputed(
                moment,
                "nobody can say whether this prompt's time is over; it stands, and can be denied",
            )
        command = self._checked_edit(
            ledger, await match_repeated_edit(self._world, ledger, command)
        )
        grant = self._grant(ledger, command, now=moment.now) if command.option in SCOPES else None
        if grant is None:
            return await _commit_answer(ledger, command)
        await self._home.append(grant)
        try:
            answered = await _commit_answer(
                ledger, msgspec.structs.replace(command, grant=grant.grant)
            )
        except Refused:
            await self._home.append(GrantDropped(grant=grant.grant))
            raise
        try:
            await self._home.append(
                GrantDropped(grant=grant.grant)
                if answered.again
                else GrantActivated(grant=grant.grant)
            )
        except Busy as exc:
            # The answer is durable, and must not be reported as refused. The next read of grants
            # settles this one by the session's journal.
            _log.warning(
                "%s: the grant %s waits for its activation: %s",
                ledger.session,
                grant.grant,
                exc.message,
            )
        return answered

    def _grant(self, ledger: Ledger, command: AnswerApproval, *, now: int) -> GrantProposed | None:
        """Settings are read only for an answer that would be remembered: a denial needs none."""
        return proposed_grant(ledger.state, command, self._world.policy(), now=now)

    def _checked_edit(self, ledger: Ledger, command: AnswerApproval) -> AnswerApproval:
        """
        Validate new arguments before they are taken. If the person may not answer, or is too late,
        skip the validation: that refusal comes first.
        """
        where = ledger.state.approvals.get(command.approval)
        if command.arguments is None or where is None:
            return command
        turn, call = ledger.state.turns[where[0]], ledger.state.open_call(where[0], where[1])
        tool = tool_for(self._world, turn, call.tool) if call is not None else None
        would_be_taken = (
            call is not None
            and call.approval is not None
            and call.approval.is_open
            and command.by in call.approval.asked.may_answer
        )
        if tool is None:
            if not would_be_taken:
                return command
            raise Refused(
                "the new arguments can't be checked here: this process lacks the tool",
                code="option_unavailable",
                hint="edit where the tool is",
            )
        try:
            return msgspec.structs.replace(
                command, arguments=tool.validate(command.arguments.encode()).decode()
            )
        except InvalidArguments as exc:
            if not would_be_taken:
                return command
            raise Refused(
                f"these arguments don't fit {tool.definition.name}: {exc}",
                code="malformed",
                hint="the prompt stands; edit them again",
            ) from exc

    # --- going on after it

    async def _go_on(
        self,
        ledger: Ledger,
        driver: Driver,
        approval: ApprovalId,
        answered: Answered,
        *,
        wait: bool,
    ) -> AnswerReport:
        if (
            answered.waiting
            or answered.again
            or not wait
            or is_foreign(ledger.state, answered.turn)
        ):
            result = _result(ledger, approval, answered)
            # The turn also waits for the prompts of its delegates.
            standing = self._delegation.standing if wait or answered.again else turn_report
            return AnswerReport(
                result=result, reason=None, turn=await standing(ledger, answered.turn)
            )
        try:
            await self._drives.drive_turn(ledger, driver, answered.turn)
        except CannotDrive as exc:
            return await _stopped_short(ledger, answered, "handed_on", exc)
        except HoldfastError as exc:
            # The answer is durable: it was not refused, even though a later step failed.
            return await _stopped_short(
                ledger, answered, "started" if _is_started(ledger, answered) else "handed_on", exc
            )
        result = _result(ledger, approval, answered)
        return AnswerReport(
            result=result, reason=None, turn=await self._delegation.standing(ledger, answered.turn)
        )

    async def _answered_above(self, ledger: Ledger, report: AnswerReport) -> AnswerReport:
        """
        If this prompt belongs to a delegate, resume its parent and report the parent's turn. Errors
        while resuming do not undo the answer.
        """
        try:
            above = await self._drives.drive_up(ledger)
        except HoldfastError as exc:
            return msgspec.structs.replace(
                report,
                reason=exc.message,
                turn=msgspec.structs.replace(report.turn, error=ErrorReport.of(exc)),
            )
        if above is None:
            return report
        # The request above cannot know the error that stopped the delegate.
        stopped = report.turn.error if report.reason is not None else None
        return msgspec.structs.replace(
            report, turn=msgspec.structs.replace(above, error=above.error or stopped)
        )

    async def _go_on_without(self, ledger: Ledger, driver: Driver, approval: ApprovalId) -> None:
        """
        Continue the turn after its prompt was closed, which is journalled by now and denies the
        call. If it is a delegate's turn, resume its parent too.

        The next driver reports any error.
        """
        where = ledger.state.approvals.get(approval)
        with suppress(HoldfastError):
            if where is not None and where[0] in ledger.state.turns:
                await self._drives.drive_turn(ledger, driver, where[0])
            await self._drives.drive_up(ledger)


async def _commit_answer(ledger: Ledger, command: AnswerApproval) -> Answered:
    return (await ledger.commit(command, check=Check.FENCE)).of(command)


def _is_started(ledger: Ledger, answered: Answered) -> bool:
    return answered.call in ledger.started


def _result(ledger: Ledger, approval: ApprovalId, answered: Answered) -> Result:
    """
    Compute the result from the journalled state of the call, so that a repeated answer gets the
    same result. Raise if nothing ran and nothing will.
    """
    state = ledger.state
    turn, call = state.turns.get(answered.turn), state.open_call(answered.turn, answered.call)
    _raise_if_closed(ledger, call, approval)
    if turn is None or call is None or _is_started(ledger, answered):
        return "started"
    if turn.waiting:
        return "deferred"
    return "handed_on" if _waits_for_a_driver(turn, call) else "started"


def _waits_for_a_driver(turn: Turn, call: Call) -> bool:
    """Whether the answer is recorded and no driver has continued the turn yet."""
    return turn.phase is Phase.PARKED or call.status in (CallStatus.APPROVED, CallStatus.PROPOSED)


def _raise_if_closed(ledger: Ledger, call: Call | None, approval: ApprovalId) -> None:
    """
    Raise if the answer was taken, but its call was stopped before it began: only a call that never
    started can be.
    """
    prompt = call.approval if call is not None else None
    of_open = prompt.closed_as if prompt is not None and prompt.asked.approval == approval else None
    settled = ledger.state.settled.get(approval)
    closed_as = of_open or (settled.closed_as if settled is not None else None)
    if closed_as is not None:
        why = (
            _why_closed(ledger, approval)
            or "what would run is no longer what was shown, or may no longer run"
        )
        raise Refused(
            f"nothing ran: {why.removeprefix('Not run: ').rstrip('.')}",
            code=closed_as,
            hint="ask again if it is still wanted",
        )


def _why_closed(ledger: Ledger, approval: ApprovalId) -> str | None:
    """The reason in the prompt's closing record, if that is recent."""
    for record in reversed(ledger.recent):
        if record.type == "approval_closed":
            event = decode(record.type, record.version, record.body, seq=record.seq)
            if isinstance(event, ApprovalClosed) and event.approval == approval:
                return event.reason
    return None


async def _stopped_short(
    ledger: Ledger, answered: Answered, result: Result, error: HoldfastError
) -> AnswerReport:
    report = await turn_report(ledger, answered.turn)
    outcome = "sealed" if isinstance(error, Untrusted) else report.outcome
    return AnswerReport(
        result=result,
        reason=error.message,
        turn=msgspec.structs.replace(report, outcome=outcome, error=ErrorReport.of(error)),
    )
