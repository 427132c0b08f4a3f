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
from holdfast.runtime.delegates.delegation import report_to_parent, stop_if_unwanted
from holdfast.runtime.drive.bound_call import bind_call, tool_for
from holdfast.runtime.drive.driver import Driver
from holdfast.runtime.drive.turn import drive_turn, drive_up, is_foreign, turn_standing
from holdfast.runtime.ledger.home_ledger import refuse_disputed
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.redaction import refuse_secrets
from holdfast.runtime.reports import prompt_list
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.open_prompts import has_expired
from holdfast.runtime.reports.types import AnswerReport, ErrorReport, Result
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.verbs.grant_proposal import proposed_grant
from holdfast.runtime.verbs.repeated_answer import match_repeated_edit
from holdfast.session.authority.approvals import DENY, SCOPES
from holdfast.session.codec import decode
from holdfast.session.commands import AnswerApproval, DecideCalls, Expire
from holdfast.session.events import ApprovalClosed
from holdfast.session.home.events import GrantActivated, GrantDropped, GrantProposed
from holdfast.session.results import Answered
from holdfast.session.state import Call, CallStatus, Phase, Turn

_log = logging.getLogger("holdfast.service")


async def answer(runtime: Runtime, command: AnswerApproval, *, wait: bool) -> AnswerReport:
    session = await prompt_list.session_of(runtime.world, runtime.sessions, command.approval)
    if session is None:
        raise Refused(
            f"no approval {command.approval}",
            code="unknown",
            hint="`holdfast approvals list` shows the prompts that wait",
        )
    refuse_secrets(
        runtime.world,
        command.reason,
        command.arguments,
        command.answer_id,
        command.option,
        command.by,
        command.asserted_by,
        what="answer",
    )
    async with runtime.sessions.use(session) as ledger:
        if not wait:
            answered = await _record(runtime, ledger, command)
            return await _as_recorded(runtime, ledger, command.approval, answered, wait=False)
        async with Driver(runtime, ledger) as driver:
            try:
                answered = await _record(runtime, ledger, command)
                report = await _go_on(driver, command.approval, answered)
                return await _answered_above(runtime, ledger, report)
            except Refused as refused:
                if refused.code in {"expired", "voided"}:
                    await _go_on_without(driver, command.approval)
                raise


# --- recording it


async def _record(runtime: Runtime, ledger: Ledger, command: AnswerApproval) -> Answered:
    """
    Record GrantProposed, ApprovalAnswered, GrantActivated, in this order, so that a grant never
    exists without its answer.
    """
    if ledger.state.parent is not None and await stop_if_unwanted(runtime, ledger):
        await report_to_parent(runtime, ledger)
    await ledger.catch_up_if_behind()
    await runtime.home.refresh()
    moment = runtime.home.moment(session_at=ledger.state.at)
    if has_expired(ledger.state, moment):
        await ledger.commit(Expire())
    await runtime.pins.settle(ledger)
    if command.option != DENY:
        refuse_disputed(
            moment,
            "nobody can say whether this prompt's time is over; it stands, and can be denied",
        )
    if command.arguments is not None:
        command = await match_repeated_edit(runtime.world, ledger, command)
        command = _checked_edit(runtime, ledger, command)
    grant = _grant(runtime, ledger, command, now=moment.now) if command.option in SCOPES else None
    if grant is None:
        return await _commit_answer(ledger, command, await _edit_decision(runtime, ledger, command))
    await runtime.home.append(grant)
    try:
        answered = await _commit_answer(ledger, msgspec.structs.replace(command, grant=grant.grant))
    except Refused:
        await runtime.home.append(GrantDropped(grant=grant.grant))
        raise
    try:
        await runtime.home.append(
            GrantDropped(grant=grant.grant) if answered.again else GrantActivated(grant=grant.grant)
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


def _grant(
    runtime: Runtime, ledger: Ledger, command: AnswerApproval, *, now: int
) -> GrantProposed | None:
    """Settings are read only for an answer that would be remembered: a denial needs none."""
    return proposed_grant(ledger.state, command, runtime.world.policy(), now=now)


def _checked_edit(runtime: Runtime, ledger: Ledger, command: AnswerApproval) -> AnswerApproval:
    """
    Validate new arguments before they are taken. If the person may not answer, or is too late,
    skip the validation: that refusal comes first.
    """
    found = ledger.state.find_prompt(command.approval)
    if command.arguments is None or found is None:
        return command
    turn, call = found
    tool = tool_for(runtime.world, turn, call.tool) if call is not None else None
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


async def _edit_decision(
    runtime: Runtime, ledger: Ledger, command: AnswerApproval
) -> tuple[DecideCalls, ...]:
    """
    Decide an edited call of an external loop in the commit that takes the edit, so that the new
    prompt stands at once, whether or not the loop runs.
    """
    found = ledger.state.find_prompt(command.approval)
    if command.arguments is None or found is None:
        return ()
    turn, call = found
    if call is None or turn.loop != "foreign":
        return ()
    edited = msgspec.structs.replace(
        call, status=CallStatus.PROPOSED, arguments=command.arguments, edited_by=command.by
    )
    bound = await bind_call(runtime.world, ledger.state, turn, edited)
    grants = await runtime.home.grants_of(turn.context.requester, ledger.state)
    policy = runtime.world.policy()
    return (DecideCalls(turn=turn.id, bound=(bound,), policy=policy, grants=grants),)


# --- going on after it


async def _as_recorded(
    runtime: Runtime, ledger: Ledger, approval: ApprovalId, answered: Answered, *, wait: bool
) -> AnswerReport:
    """Report without driving on."""
    result = _result(ledger, approval, answered)
    # The turn also waits for the prompts of its delegates.
    if wait or answered.again:
        turn = await turn_standing(runtime, ledger, answered.turn)
    else:
        turn = await turn_report(ledger, answered.turn)
    return AnswerReport(result=result, reason=None, turn=turn)


async def _go_on(driver: Driver, approval: ApprovalId, answered: Answered) -> AnswerReport:
    runtime, ledger = driver.runtime, driver.ledger
    if answered.waiting or answered.again or is_foreign(ledger.state, answered.turn):
        return await _as_recorded(runtime, ledger, approval, answered, wait=True)
    try:
        await drive_turn(driver, answered.turn)
    except CannotDrive as exc:
        return await _stopped_short(ledger, answered, "handed_on", exc)
    except HoldfastError as exc:
        # The answer is durable: it was not refused, even though a later step failed.
        return await _stopped_short(
            ledger, answered, "started" if _is_started(ledger, answered) else "handed_on", exc
        )
    result = _result(ledger, approval, answered)
    return AnswerReport(
        result=result, reason=None, turn=await turn_standing(runtime, ledger, answered.turn)
    )


async def _answered_above(runtime: Runtime, ledger: Ledger, report: AnswerReport) -> AnswerReport:
    """
    If this prompt belongs to a delegate, resume its parent and report the parent's turn. Errors
    while resuming do not undo the answer.
    """
    try:
        above = await drive_up(runtime, ledger)
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


async def _go_on_without(driver: Driver, approval: ApprovalId) -> None:
    """
    Continue the turn after its prompt was closed, which is journalled by now and denies the
    call. If it is a delegate's turn, resume its parent too.

    The next driver reports any error.
    """
    runtime, ledger = driver.runtime, driver.ledger
    found = ledger.state.find_prompt(approval)
    with suppress(HoldfastError):
        if found is not None:
            await drive_turn(driver, found[0].id)
        await drive_up(runtime, ledger)


async def _commit_answer(
    ledger: Ledger, command: AnswerApproval, further: tuple[DecideCalls, ...] = ()
) -> Answered:
    return (await ledger.commit(command, *further, check=Check.FENCE)).of(command)


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
