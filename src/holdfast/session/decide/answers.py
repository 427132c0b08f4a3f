"""Decide answers to prompts: who may answer, which prompt, only once. Also decide expiry."""

from collections.abc import Mapping
from typing import Any

from holdfast.errors import Refused
from holdfast.session.authority.approvals import ANSWER, DENY, EDIT, SCOPES
from holdfast.session.authority.context import LostContext
from holdfast.session.authority.policy import Way, counts
from holdfast.session.call_results import (
    question_closed,
    result_of_answer,
    result_of_closing,
)
from holdfast.session.commands import AnswerApproval, VoidPrompts
from holdfast.session.decide.decision import Decided, refused
from holdfast.session.decide.external_loop import loop_lost
from holdfast.session.decide.turns import drop_call
from holdfast.session.events import (
    AnswerRefused,
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    SessionEvent,
)
from holdfast.session.evolve.approvals import said
from holdfast.session.features.forms.form import AnswerMisfit, said_in, values_of
from holdfast.session.results import Answered
from holdfast.session.state import Approval, Call, SessionState, SettledApproval, Turn

_CLOSED = {
    "expired": ("expired", "its time is over"),
    "superseded": ("superseded", "another message was sent instead"),
    "cancelled": ("cancelled", "it was cancelled"),
    "voided": ("voided", "what would run has changed, or may no longer run"),
}


def answer_approval(state: SessionState, command: AnswerApproval, now: int) -> Decided[Answered]:
    """
    Take an answer. The first journalled answer, supersede, cancel or expiry wins. Every later one
    is refused with its reason.
    """
    found = state.find_prompt(command.approval)
    if found is None:
        return _of_the_past(state, command)
    turn, call = found
    if call is None or call.approval is None:
        return refused(
            "unknown",
            f"no approval {command.approval}",
            hint="`holdfast approvals list` shows the prompts that wait",
        )
    approval = call.approval
    if settled := _settled(approval, command, turn, call):
        return settled
    if turn.cancelled_by is not None or turn.superseded_by is not None:
        return _over("cancelled" if turn.cancelled_by is not None else "superseded", None, None)
    if flaw := _flaw(turn, approval, command, now):
        return flaw
    return _take(turn, call, approval, command)


def _of_the_past(state: SessionState, command: AnswerApproval) -> Decided[Answered]:
    settled: SettledApproval | None = state.settled.get(command.approval)
    if settled is None:
        return refused(
            "unknown",
            f"no approval {command.approval}",
            hint="`holdfast approvals list` shows the prompts that wait",
        )
    if settled.answer_id == command.answer_id:
        return _another_answer(settled.option, settled.by, settled.said, command) or Decided(
            outcome=Answered(
                settled.turn, settled.call, settled.option or "", waiting=False, again=True
            )
        )
    return _over(settled.closed_as, settled.by, settled.option)


def _another_answer(
    option: str | None, by: str | None, words: str | None, command: AnswerApproval
) -> Decided[Answered] | None:
    """
    Refuse unless the same person gave the same answer. A reason given beside an option is not part
    of the answer.
    """
    if (option, by, words) == (
        command.option,
        command.by,
        said(command.option, command.reason, command.arguments),
    ):
        return None
    return refused(
        "already_answered",
        f"the answer id {command.answer_id!r} was used for another answer",
        hint="leave the answer id out, or use a new one",
    )


def _over(closed_as: str | None, by: str | None, option: str | None) -> Decided[Any]:
    if by is None and closed_as is not None:
        code, why = _CLOSED[closed_as]
        return refused(
            code, f"this prompt is closed: {why}", hint="ask again if it is still wanted"
        )
    return refused(
        "already_answered",
        f"this was answered already: {option}, by {by!r}",
        hint="`holdfast approvals show` has the record",
    )


def _settled(
    approval: Approval, command: AnswerApproval, turn: Turn, call: Call
) -> Decided[Answered] | None:
    answer = approval.answer
    if answer is not None and answer.answer_id == command.answer_id:
        again = Answered(turn.id, call.call, answer.option, waiting=bool(turn.waiting), again=True)
        words = said(answer.option, answer.reason, answer.arguments)
        return _another_answer(answer.option, answer.by, words, command) or Decided(outcome=again)
    if approval.is_open:
        return None
    return _over(
        approval.closed_as, answer.by if answer else None, answer.option if answer else None
    )


def _flaw(
    turn: Turn, approval: Approval, command: AnswerApproval, now: int
) -> Decided[Answered] | None:
    asked = approval.asked
    if now >= asked.expires_at:
        return refused(
            "expired",
            "this prompt is closed: its time is over",
            hint="ask again if it is still wanted",
        )
    if isinstance(turn.context, LostContext):
        code = "expired" if turn.context.legacy else "no_authority"
        return refused(
            code, f"nothing can run for this prompt: {turn.context.reason}", hint="ask again"
        )
    if command.by not in asked.may_answer:
        return _wrong_approver(approval, command)
    if not counts(command.way, command.consent):
        return _wrong_way(approval, command)
    if command.digest is not None and command.digest != asked.digest:
        return refused(
            "plan_changed",
            "the answer speaks of another plan than the prompt's",
            hint="look at the prompt again, then answer it",
        )
    offered = tuple(each.option for each in asked.options)
    if command.option not in offered:
        return refused(
            "option_unavailable",
            f"{command.option!r} is not offered here",
            hint=f"offered: {', '.join(offered)}",
        )
    if (command.option == EDIT) != (command.arguments is not None):
        return refused(
            "option_unavailable",
            "new arguments go with `edit`, and `edit` with new arguments",
            hint="--arguments '{...}'",
        )
    if command.option in SCOPES and command.grant is None:
        return refused(
            "not_saved",
            "the grant of this answer was not kept, so the answer does not count",
            hint="try again, or approve_once",
        )
    if command.option == ANSWER and not (command.reason or "").strip():
        return refused(
            "option_unavailable", "`answer` needs the words", hint="--reason 'your answer'"
        )
    return _misfit(asked, command)


def _misfit(asked: ApprovalRequested, command: AnswerApproval) -> Decided[Answered] | None:
    """Refuse an answer that does not fit the server's form. The prompt stands."""
    if asked.form is None or command.option == DENY:
        return None
    try:
        values_of(asked.form, said_in(command.option, command.reason))
    except AnswerMisfit as exc:
        return refused(
            "malformed", f"the answer does not fit: {exc}", hint="the prompt stands; answer again"
        )
    return None


def _wrong_approver(approval: Approval, command: AnswerApproval) -> Decided[Answered]:
    """
    Refuse, and journal the refusal for the audit. The number of journalled refusals is bounded, or
    strangers could fill the journal.
    """
    asked = approval.asked
    who = " or ".join(
        map(repr, asked.may_answer)
    )  # quoted, as below: a person may be named "nobody"
    return _audited(
        approval,
        command,
        Refused(
            f"{command.by!r} may not answer this prompt",
            code="wrong_approver",
            hint=f"{who} may; it still stands",
        ),
    )


def _wrong_way(approval: Approval, command: AnswerApproval) -> Decided[Any]:
    """Refuse an answer from the right person that arrived in a way that does not prove consent."""
    came = _CAME[command.way or "script"]
    hint = f"it still stands; {' or '.join(_INSTEAD[way] for way in command.consent)}"
    text = (
        f"an answer {came} does not count here: approvals.consent is {', '.join(command.consent)}"
    )
    return _audited(approval, command, Refused(text, code="no_authority", hint=hint))


_CAME: Mapping[Way, str] = {
    "script": "without a person's terminal",
    "terminal": "from a terminal",
    "page": "from the page",
    "channels": "from a channel",
}
_INSTEAD: Mapping[Way, str] = {
    "script": "run `holdfast approvals answer`",
    "terminal": "answer it yourself, in the foreground of a terminal",
    "page": "answer it on the page: `holdfast serve code` gives the way in",
    "channels": "answer it in a channel",
}


def _audited(approval: Approval, command: AnswerApproval, refusal: Refused) -> Decided[Any]:
    asked = approval.asked
    if approval.refusals >= _REFUSALS_JOURNALLED_MAX:
        return Decided(refusal=refusal)
    audit = AnswerRefused(
        approval=asked.approval,
        turn=asked.turn,
        by=command.by,
        option=command.option,
        code=refusal.code,
    )
    return Decided((audit,), refusal=refusal)


_REFUSALS_JOURNALLED_MAX = 16  # per prompt


def _take(turn: Turn, call: Call, approval: Approval, command: AnswerApproval) -> Decided[Answered]:
    asked = approval.asked
    answered = ApprovalAnswered(
        approval=asked.approval,
        turn=turn.id,
        call=call.call,
        option=command.option,
        by=command.by,
        answer_id=command.answer_id,
        digest=asked.digest,
        reason=command.reason,
        arguments=command.arguments,
        grant=command.grant if command.option in SCOPES else None,
        asserted_by=command.asserted_by,
        way=command.way,
    )
    waiting = any(each.call != call.call for each in turn.waiting)
    outcome = Answered(turn.id, call.call, command.option, waiting=waiting)
    result = result_of_answer(call, asked.kind, answered)
    return Decided((answered,) if result is None else (answered, result), outcome=outcome)


def void_prompts(state: SessionState, command: VoidPrompts) -> Decided[None]:
    """Close the open prompts of tools that were withdrawn. Nothing more of them is sent."""
    events: list[SessionEvent] = []
    for turn in state.turns.values():
        if turn.cancelled_by is not None or turn.superseded_by is not None:
            continue
        for call in turn.waiting:
            if call.tool in command.tools and call.is_asking:
                events.extend(question_closed(turn, call, command.reason, "voided"))
            elif call.tool in command.tools:
                events.extend(drop_call(turn, call, f"Not run: {command.reason}.", "voided"))
    return Decided(tuple(events))


def expire(state: SessionState, now: int) -> Decided[None]:
    """
    Close every prompt whose time is over. Expiry always denies. End every turn that has waited too
    long for its external loop.
    """
    events: list[SessionEvent] = []
    for turn in state.turns.values():
        if turn.cancelled_by is not None or turn.superseded_by is not None:
            continue
        for call in turn.waiting:
            if call.approval is not None and now >= call.approval.asked.expires_at:
                approval = call.approval.asked.approval
                events.append(
                    ApprovalClosed(
                        approval=approval,
                        turn=turn.id,
                        call=call.call,
                        closed_as="expired",
                        reason="nobody answered in time",
                    )
                )
                if not call.is_asking:  # else the open call gives the result
                    events.append(result_of_closing(turn, call, "expired"))
        events.extend(loop_lost(turn, now))
    return Decided(tuple(events))
