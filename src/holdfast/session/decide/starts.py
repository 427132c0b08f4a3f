"""Decide the start of a call, with the last check before it, and its end."""

from typing import Literal

from holdfast.errors import InvariantBroken
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.authority.plan import ToolDefinition
from holdfast.session.authority.policy import (
    Allow,
    Ask,
    Deny,
    Policy,
    counts,
)
from holdfast.session.call_results import question_closed, unfinished, with_edit
from holdfast.session.commands import FinishCall, StartTool
from holdfast.session.decide.calls import (
    S,
    allowed_digest,
    ask_person,
    bound_parts,
    delegate_bound,
    finished_as,
    is_still_entitled,
    judge_call,
)
from holdfast.session.decide.decision import NOTHING, Decided
from holdfast.session.decide.turns import (
    cancelling,
)
from holdfast.session.events import (
    ApprovalClosed,
    ApprovalRequested,
    CallFinished,
    SessionEvent,
    ToolStarted,
)
from holdfast.session.features.delegates import decide as decide_delegates
from holdfast.session.features.jobs.decide import no_job, submitting
from holdfast.session.state import Approval, Call, SessionState, Turn


def start_tool(state: SessionState, command: StartTool, now: int) -> Decided[int | None]:
    """
    Check the call a last time, in the lock section that makes the start durable: persisted
    authority and current policy together.

    Only allowed or approved calls get here. So a policy that was widened since cannot let a new
    call through, and a policy that was tightened stops it.
    """
    turn = state.turns.get(command.turn)
    call = state.open_call(command.turn, command.bound.call)
    if (
        turn is None
        or call is None
        or turn.cancelled_by is not None
        or turn.superseded_by is not None
        or turn.parked
        or call.owes_result
    ):
        return NOTHING
    again = call.status is S.STARTED and call.contract != "once" and call.epoch < command.epoch
    if not again and call.status not in (S.ALLOWED, S.APPROVED):
        return NOTHING
    needs_siblings = call.status is S.APPROVED and turn.loop != "foreign"
    if needs_siblings and any(each.status in (S.WAITING, S.PROPOSED) for each in turn.calls):
        return NOTHING
    if isinstance(turn.context, LostContext):
        return Decided(_voided(turn, call, f"Not run: {turn.context.reason}.", "no_authority"))
    if stopped := _stopped(state, turn, turn.context, call, command, now):
        return Decided(stopped)
    if command.job is not None and (over := no_job(state, command.policy)):
        return Decided(_voided(turn, call, f"Not run: {over[1]}.", over[0]))
    bound = command.bound
    definition, arguments, _ = bound_parts(bound)
    if definition.kind == "delegate":
        if command.delegate is None:
            raise InvariantBroken(f"{definition.name} was started as a tool")
        return Decided(
            (decide_delegates.started(turn, call, command.delegate, arguments, command.epoch),),
            outcome=1,
        )
    started = ToolStarted(
        turn=turn.id,
        call=call.call,
        tool=definition.name,
        arguments=arguments,
        digest=call.digest or "",
        contract=definition.contract,
        allowed_by=call.allowed_by or "",
        epoch=command.epoch,
        run=call.run + 1,
        process=command.process,
    )
    if command.job is None:
        return Decided((started,), outcome=started.run)
    return Decided(
        (started, *submitting(state, turn, turn.context, call, started, command.job)),
        outcome=started.run,
    )


def _stopped(
    state: SessionState, turn: Turn, context: TurnContext, call: Call, command: StartTool, now: int
) -> tuple[SessionEvent, ...]:
    """
    Return the events that stop a call which must not start after all, or no events if it may start.
    """
    bound, policy = command.bound, command.policy
    if bound.problem is not None:
        return _voided(turn, call, f"Not run: {bound.problem[1]}", bound.problem[0])
    if over := delegate_bound(state, turn, bound):
        return _voided(turn, call, f"Not run: {over[1]}.", over[0])
    if call.approval is not None and call.approval.asked.form is not None:
        return _form_stopped(state, turn, context, call, command, now)
    if call.approval is not None:
        return _approval_stopped(state, turn, context, call, command, now)
    if allowed_digest(context, call, bound) != call.digest:
        return _voided(
            turn, call, "Not run: what would run is no longer what was allowed.", "plan_changed"
        )
    verdict = judge_call(state, context, call, bound, policy, command.grants, now)
    match verdict:
        case Allow():
            return ()
        case Deny(code=code, text=text):
            return _voided(turn, call, f"Not run: {text}.", code)
        case Ask():
            if call.status is S.STARTED:
                return (
                    finished_as(
                        turn,
                        call,
                        "in_doubt",
                        "In doubt: it was started before, and running it again would need an "
                        "approval.",
                        "in_doubt",
                    ),
                )
            return (ask_person(state, turn, call, bound, verdict, policy, turn.prompts, now),)


def _approval_stopped(
    state: SessionState, turn: Turn, context: TurnContext, call: Call, command: StartTool, now: int
) -> tuple[SessionEvent, ...]:
    """
    Return the events that stop an approved call, or none. A repeatable call is checked again in the
    same way before it runs again: the approval was for exactly this call.
    """
    definition, arguments, binding = bound_parts(command.bound)
    approval = call.approval
    if approval is None or approval.answer is None:
        raise InvariantBroken("an approved call has no answer")
    asked = approval.asked
    if definition.digest() != asked.definition:
        return _voided(
            turn,
            call,
            f"Not run: {definition.name} is no longer the tool that was approved.",
            "plan_changed",
        )
    if arguments != asked.arguments or binding.digest() != asked.binding:
        return _voided(
            turn,
            call,
            "Not run: what would run is no longer what was shown and approved.",
            "plan_changed",
        )
    verdict = judge_call(state, context, call, command.bound, command.policy, (), now)
    if isinstance(verdict, Deny):
        return _voided(turn, call, f"Not run: {verdict.text}.", "policy_tightened")
    if lost := _consent_lost(context, definition, approval, command.policy):
        return _voided(turn, call, f"Not run: {lost[1]}.", lost[0])
    if isinstance(verdict, Ask) and _has_new_doubt(verdict, asked):
        # An equal call became in doubt since. The approver did not know that, and is asked again.
        return (
            ask_person(
                state, turn, call, command.bound, verdict, command.policy, turn.prompts, now
            ),
        )
    return ()


def _form_stopped(
    state: SessionState, turn: Turn, context: TurnContext, call: Call, command: StartTool, now: int
) -> tuple[SessionEvent, ...]:
    """
    Return the events that stop a call whose server's form was filled in, or none. The answer to a
    form is not consent: whatever allowed the first start must still allow the call.
    """
    definition, arguments, binding = bound_parts(command.bound)
    approval = call.approval
    if approval is None or approval.answer is None:
        raise InvariantBroken("a form without an answer")
    asked = approval.asked
    if (definition.digest(), arguments, binding.digest()) != (
        asked.definition,
        asked.arguments,
        asked.binding,
    ):
        return _voided(
            turn, call, "Not run: what would run is no longer what was allowed.", "plan_changed"
        )
    verdict = judge_call(state, context, call, command.bound, command.policy, command.grants, now)
    if isinstance(verdict, Deny):
        return _voided(turn, call, f"Not run: {verdict.text}.", "policy_tightened")
    consent = call.consent
    if isinstance(verdict, Ask) and (consent is None or _has_new_doubt(verdict, consent.asked)):
        return _voided(turn, call, "Not run: it would need an approval now.", "policy_tightened")
    for each in (consent, approval):
        if each is not None and (lost := _consent_lost(context, definition, each, command.policy)):
            return _voided(turn, call, f"Not run: {lost[1]}.", lost[0])
    return ()


def _has_new_doubt(verdict: Ask, asked: ApprovalRequested) -> bool:
    """Whether an equal call became in doubt after the approver was asked."""
    return not set(verdict.doubts) <= set(asked.doubts)


def _consent_lost(
    context: TurnContext, definition: ToolDefinition, approval: Approval, policy: Policy
) -> tuple[str, str] | None:
    """Return the code and the reason why an answer no longer counts, or None."""
    answer = approval.answer
    if answer is None:
        raise InvariantBroken("an approved call has no answer")
    if not is_still_entitled(context, definition, answer.by, policy, approval.asked.may_answer):
        return ("approver_removed", f"{answer.by} may no longer approve this")
    if not counts(answer.way, policy.consent):
        return ("policy_tightened", "the answer came in a way that no longer counts as consent")
    return None


def _voided(turn: Turn, call: Call, text: str, code: str) -> tuple[SessionEvent, ...]:
    if call.status is S.STARTED:
        return (
            finished_as(
                turn,
                call,
                "in_doubt",
                f"In doubt: it was started before and could not be run again. {text}",
                code,
            ),
        )
    events: list[SessionEvent] = []
    if call.approval is not None and call.approval.closed_as is None:
        events.append(
            ApprovalClosed(
                approval=call.approval.asked.approval,
                turn=turn.id,
                call=call.call,
                closed_as="voided",
                reason=text,
            )
        )
    if call.run:
        why = text.removeprefix("Not run: ").removesuffix(".")
        return (*events, unfinished(turn.id, call, why, code))
    return (*events, finished_as(turn, call, "voided", text, code))


def finish_call(state: SessionState, command: FinishCall) -> Decided[Literal["dropped"] | None]:
    """
    Record the real outcome of a started call. Drop an outcome that comes after recovery has
    recorded the call as in doubt.
    """
    turn = state.turns.get(command.turn)
    call = state.open_call(command.turn, command.call)
    if turn is None or call is None or call.status is not S.STARTED or call.run != command.run:
        return Decided(outcome="dropped")
    text = with_edit(call, command.text)
    finished = CallFinished(
        turn=turn.id,
        call=call.call,
        outcome=command.outcome,
        text=text,
        code=command.code,
        output=command.output,
        result=command.result,
    )
    closed = question_closed(turn, call, "the call ended before an answer came")
    if turn.cancelled_by is None:
        return Decided((*closed, finished))
    return Decided((*closed, finished, *cancelling(turn, turn.cancelled_by, ended=call.call)))
