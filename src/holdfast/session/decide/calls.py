"""
Decide calls: which may run, must ask or are denied; the last check before a start; the end of a
call.
"""

from typing import Literal

import msgspec

from holdfast import limits
from holdfast.errors import InvariantBroken
from holdfast.ids import CallId
from holdfast.session.authority import approvals
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.authority.plan import Binding, ToolDefinition
from holdfast.session.authority.policy import (
    Allow,
    Ask,
    Deny,
    Looked,
    Policy,
    Rule,
    Verdict,
    counts,
    denied_unseen,
    judge,
    may_answer,
    rule_for,
)
from holdfast.session.call_results import with_edit
from holdfast.session.commands import DecideCalls, FinishCall, ProposeCalls, StartTool
from holdfast.session.decide.decision import NOTHING, Decided
from holdfast.session.decide.turns import (
    calls_bound,
    calls_of_reply,
    cancelling,
    settle_calls,
    too_many_calls,
)
from holdfast.session.events import (
    ApprovalClosed,
    ApprovalRequested,
    CallAllowed,
    CallFinished,
    CallOutcome,
    CallsProposed,
    SessionEvent,
    ToolStarted,
    TurnEnded,
)
from holdfast.session.features.delegates import decide as decide_delegates
from holdfast.session.features.jobs.decide import no_job, submitting
from holdfast.session.features.jobs.evolve import call_key, exact_key
from holdfast.session.features.reminders.decide import no_reminder
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import Call, CallStatus, Phase, SessionState, Turn

S = CallStatus

_NOT_EVEN_WRONG = frozenset({"unknown_tool", "invalid_arguments", "cannot_bind"})
"""Problems of the call itself, which the model can correct. Any other problem is a denial."""


def propose_calls(state: SessionState, command: ProposeCalls) -> Decided[tuple[CallId, ...] | None]:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase is not Phase.READY or turn.loop != "foreign":
        return NOTHING
    number = turn.model_calls + 1
    calls = calls_of_reply(state, turn, number, command.calls)
    proposed = CallsProposed(turn=turn.turn, number=number, calls=calls, text=command.text)
    return Decided(
        (proposed, *too_many_calls(turn, calls, command.policy)),
        outcome=tuple(each.call for each in calls),
    )


def decide_calls(state: SessionState, command: DecideCalls, now: int) -> Decided[None]:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase is not Phase.DECIDING:
        return NOTHING
    # Apply a bound that the batch passed when it was proposed, if a crash cut the record off.
    if (over := calls_bound(turn, command.policy)) and not any(
        call.status is S.STARTED for call in turn.calls
    ):
        return Decided((*settle_calls(turn, f"Not run: {over[1]}."), _given_up(turn, over)))
    events: list[SessionEvent] = []
    prompts = turn.prompts
    decided_now: set[str] = set()
    for looked in command.looked:
        call = state.open_call(turn.turn, looked.call)
        if (
            call is None
            or call.status is not S.PROPOSED
            or call.owes_result
            or looked.call in decided_now
        ):
            continue
        decided_now.add(looked.call)
        if (stuck := _stuck(turn, call, looked)) is not None:
            if stuck == "end":
                return Decided(_repeating(turn, call))
            decided: SessionEvent = _finished(turn, call, "error", _CORRECTION, "repeated")
        else:
            decided = _decide_one(state, turn, call, looked, command, prompts, now)
        prompts += isinstance(decided, ApprovalRequested)
        events.append(decided)
    return Decided(tuple(events))


_CORRECTION = "Not run: this is the same call with the same result as before. Use the result you have, do something else, or answer the person."


def _stuck(turn: Turn, call: Call, looked: Looked) -> str | None:
    """Correct the third identical call in a row with identical results. A fourth ends the turn."""
    same = ((call.tool, call.made), (call.tool, looked.arguments or call.made))
    if call.edited_by is not None or turn.repeats.key not in same:
        return None
    if turn.repeats.count >= limits.EQUAL_CALLS_IN_A_ROW:
        return "end"
    return "correct" if turn.repeats.count == limits.EQUAL_CALLS_IN_A_ROW - 1 else None


def _repeating(turn: Turn, call: Call) -> tuple[SessionEvent, ...]:
    """
    Give every call its result before the turn ends. The repeated call's own result comes last and
    keeps the count, in case a crash cuts off the end.
    """
    message = f"the model called {call.tool} with the same arguments and got the same result, again and again"
    settled = [
        event
        for event in settle_calls(turn, f"Not run: {message}.")
        if not (isinstance(event, CallFinished) and event.call == call.call)
    ]
    return (
        *settled,
        _finished(turn, call, "error", f"Not run: {message}.", "repeated"),
        _given_up(turn, ("repeating", message)),
    )


def _given_up(turn: Turn, why: tuple[str, str]) -> TurnEnded:
    return TurnEnded(turn=turn.turn, outcome="failed", code=why[0], message=why[1])


def _finished(turn: Turn, call: Call, outcome: CallOutcome, text: str, code: str) -> CallFinished:
    return CallFinished(turn=turn.turn, call=call.call, outcome=outcome, text=text, code=code)


def _decide_one(
    state: SessionState,
    turn: Turn,
    call: Call,
    looked: Looked,
    command: DecideCalls,
    prompts: int,
    now: int,
) -> SessionEvent:
    if isinstance(turn.context, LostContext):
        return _finished(turn, call, "denied", f"Not run: {turn.context.reason}.", "no_authority")
    if looked.problem is not None:
        unseen = denied_unseen(turn.context, looked, command.policy)
        return (
            _denied(turn, call, unseen)
            if unseen is not None
            else _problem(turn, call, looked.problem)
        )
    if (
        over := _delegate_bound(state, turn, looked)
        or _job_bound(state, turn, looked, command.policy)
        or _reminder_bound(state, looked)
    ):
        return _finished(turn, call, "denied", f"Not run: {over[1]}.", over[0])
    context = turn.context
    verdict = _judge(state, context, call, looked, command.policy, command.grants, now)
    match verdict:
        case Allow(by=by):
            return CallAllowed(
                turn=turn.turn,
                call=call.call,
                by=by,
                arguments=_found(looked)[1],
                digest=_allowed_digest(context, call, looked),
            )
        case Deny():
            return _denied(turn, call, verdict)
        case Ask():
            return _ask(state, turn, call, looked, verdict, command.policy, prompts, now)


def _denied(turn: Turn, call: Call, deny: Deny) -> CallFinished:
    return _finished(
        turn,
        call,
        "unattended" if deny.code == "approval_unattended" else "denied",
        f"Not run: {deny.text}.",
        deny.code,
    )


def _judge(
    state: SessionState,
    context: TurnContext,
    call: Call,
    looked: Looked,
    policy: Policy,
    grants: tuple[GrantProposed, ...],
    now: int,
) -> Verdict:
    definition, arguments, binding = _found(looked)
    twin = definition.contract == "once" and any(
        _is_in_doubt(state, definition.name, each) for each in (arguments, call.made)
    )
    verdict = judge(
        context=context,
        definition=definition,
        arguments=arguments,
        binding=binding,
        policy=policy,
        grants=grants,
        in_doubt_twin=twin,
        now=now,
    )
    if call.edited_by is None or isinstance(verdict, Deny):
        return verdict
    # Arguments that a person changed are shown to that person again, even if policy or a grant
    # would allow them.
    if not _still_entitled(context, definition, call.edited_by, policy, (call.edited_by,)):
        return Deny(
            "approver_removed",
            f"{call.edited_by} changed the arguments, and may no longer approve this",
        )
    expires = (
        verdict.expires_after_seconds if isinstance(verdict, Ask) else policy.expires_after_seconds
    )
    return Ask(
        may_answer=(call.edited_by,),
        reason="you changed the arguments",
        rule=f"{context.audience.value}:edited",
        expires_after_seconds=expires,
        in_doubt_twin=twin,
        remember=rule_for(context, definition, binding, policy).remembers,
    )


def _is_in_doubt(state: SessionState, tool: str, arguments: str) -> bool:
    return (
        call_key(tool, arguments) in state.in_doubt or exact_key(tool, arguments) in state.in_doubt
    )


def _delegate_bound(state: SessionState, turn: Turn, looked: Looked) -> tuple[str, str] | None:
    is_delegate = looked.definition is not None and looked.definition.kind == "delegate"
    return decide_delegates.bound_reached(state, turn) if is_delegate else None


def _job_bound(
    state: SessionState, turn: Turn, looked: Looked, policy: Policy
) -> tuple[str, str] | None:
    """Check the job bound before anyone is asked; the start checks it again."""
    return no_job(state, policy) if looked.background and turn.loop == "ours" else None


def _reminder_bound(state: SessionState, looked: Looked) -> tuple[str, str] | None:
    """Check the reminder bound before anyone is asked."""
    sets_one = looked.definition is not None and (
        looked.definition.kind,
        looked.definition.name,
    ) == ("reminder", "set_reminder")
    return no_reminder(state) if sets_one else None


def _found(looked: Looked) -> tuple[ToolDefinition, str, Binding]:
    if looked.definition is None or looked.arguments is None or looked.binding is None:
        raise InvariantBroken(
            "a look without a problem must have found a definition, arguments and a binding"
        )
    return looked.definition, looked.arguments, looked.binding


def _problem(turn: Turn, call: Call, problem: tuple[str, str]) -> CallFinished:
    code, text = problem
    return _finished(
        turn, call, "error" if code in _NOT_EVEN_WRONG else "denied", f"Not run: {text}", code
    )


def _ask(
    state: SessionState,
    turn: Turn,
    call: Call,
    looked: Looked,
    ask: Ask,
    policy: Policy,
    prompts: int,
    now: int,
) -> SessionEvent:
    definition, arguments, binding = _found(looked)
    if prompts >= _prompts_max(state, policy):
        text = f"Not run: this turn has asked {prompts} times, which is its bound."
        return _finished(turn, call, "denied", text, "prompt_budget")
    if sum(each.phase is Phase.PARKED for each in state.turns.values()) >= limits.PARKED_TURNS_MAX:
        return _finished(
            turn,
            call,
            "denied",
            "Not run: too many requests wait for answers in this session.",
            "too_many_parked",
        )
    if isinstance(turn.context, LostContext):
        raise InvariantBroken("a turn without authority asks")
    asked = approvals.request(
        context=turn.context,
        turn=turn.turn,
        call=call.call,
        definition=definition,
        arguments=arguments,
        binding=binding,
        ask=ask,
        prompt=call.prompts + 1,
        now=now,
        choices=_choices(arguments) if definition.kind == "question" else (),
        path=state.parent.path if state.parent is not None else (),
    )
    if asked is None:
        text = f"Not run: what would run is longer than the {limits.DISPLAY_CHARS_MAX} characters a person can be shown."
        return _finished(turn, call, "denied", text, "too_long")
    return asked


def _prompts_max(state: SessionState, policy: Policy) -> int:
    """
    The largest number of prompts. A delegate asks out of the number that was left to its parent.
    """
    return (
        policy.prompts_per_turn_max
        if state.parent is None
        else min(policy.prompts_per_turn_max, state.parent.prompts_max)
    )


class _Question(msgspec.Struct):
    choices: list[str] | None = None


def _choices(arguments: str) -> tuple[str, ...]:
    """
    Return the model's choices. None of them may look like a built-in option: the answer to a
    question grants nothing.
    """
    choices = msgspec.json.decode(arguments, type=_Question).choices or ()
    return tuple(
        dict.fromkeys(
            choice for choice in choices if choice.strip() and choice not in approvals.RESERVED
        )
    )


def start_tool(state: SessionState, command: StartTool, now: int) -> Decided[int | None]:
    """
    Check the call a last time, in the lock section that makes the start durable: persisted
    authority and current policy together.

    Only allowed or approved calls get here. So a policy that was widened since cannot let a new
    call through, and a policy that was tightened stops it.
    """
    turn = state.turns.get(command.turn)
    call = state.open_call(command.turn, command.looked.call)
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
    if call.status is S.APPROVED and any(
        each.status in (S.WAITING, S.PROPOSED) for each in turn.calls
    ):
        return NOTHING
    if isinstance(turn.context, LostContext):
        return Decided(_voided(turn, call, f"Not run: {turn.context.reason}.", "no_authority"))
    if stopped := _stopped(state, turn, turn.context, call, command, now):
        return Decided(stopped)
    if command.job is not None and (over := no_job(state, command.policy)):
        return Decided(_voided(turn, call, f"Not run: {over[1]}.", over[0]))
    looked = command.looked
    definition, arguments, _ = _found(looked)
    if definition.kind == "delegate":
        if command.delegate is None:
            raise InvariantBroken(f"{definition.name} was started as a tool")
        return Decided(
            (decide_delegates.started(turn, call, command.delegate, arguments, command.epoch),),
            outcome=1,
        )
    started = ToolStarted(
        turn=turn.turn,
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
    looked, policy = command.looked, command.policy
    if looked.problem is not None:
        return _voided(turn, call, f"Not run: {looked.problem[1]}", looked.problem[0])
    if over := _delegate_bound(state, turn, looked):
        return _voided(turn, call, f"Not run: {over[1]}.", over[0])
    if call.approval is not None:
        return _approval_stopped(state, turn, context, call, command, now)
    if _allowed_digest(context, call, looked) != call.digest:
        return _voided(
            turn, call, "Not run: what would run is no longer what was allowed.", "plan_changed"
        )
    verdict = _judge(state, context, call, looked, policy, command.grants, now)
    match verdict:
        case Allow():
            return ()
        case Deny(code=code, text=text):
            return _voided(turn, call, f"Not run: {text}.", code)
        case Ask():
            if call.status is S.STARTED:
                return (
                    _finished(
                        turn,
                        call,
                        "in_doubt",
                        "In doubt: it was started before, and running it again would need an "
                        "approval.",
                        "in_doubt",
                    ),
                )
            return (_ask(state, turn, call, looked, verdict, policy, turn.prompts, now),)


def _allowed_digest(context: TurnContext, call: Call, looked: Looked) -> str:
    definition, arguments, binding = _found(looked)
    return approvals.plan_digest(
        context=context,
        call=call.call,
        definition=definition,
        arguments=arguments,
        binding=binding,
        rule="allow",
        display=binding.display,
    )


def _approval_stopped(
    state: SessionState, turn: Turn, context: TurnContext, call: Call, command: StartTool, now: int
) -> tuple[SessionEvent, ...]:
    """
    Return the events that stop an approved call, or none. A repeatable call is checked again in the
    same way before it runs again: the approval was for exactly this call.
    """
    definition, arguments, binding = _found(command.looked)
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
    verdict = _judge(state, context, call, command.looked, command.policy, (), now)
    if isinstance(verdict, Deny):
        return _voided(turn, call, f"Not run: {verdict.text}.", "policy_tightened")
    if not _still_entitled(
        context, definition, approval.answer.by, command.policy, asked.may_answer
    ):
        return _voided(
            turn,
            call,
            f"Not run: {approval.answer.by} may no longer approve this.",
            "approver_removed",
        )
    if not counts(approval.answer.way, command.policy.consent):
        return _voided(
            turn,
            call,
            "Not run: the answer came in a way that no longer counts as consent.",
            "policy_tightened",
        )
    if isinstance(verdict, Ask) and verdict.in_doubt_twin and not asked.in_doubt_twin:
        # An equal call became in doubt since. The approver did not know that, and is asked again.
        return (
            _ask(state, turn, call, command.looked, verdict, command.policy, turn.prompts, now),
        )
    return ()


def _still_entitled(
    context: TurnContext,
    definition: ToolDefinition,
    by: str,
    policy: Policy,
    asked_of: tuple[str, ...],
) -> bool:
    rule = policy.rule(context.audience, definition.name) or Rule(mode="ask")
    return by in asked_of and by in may_answer(context, rule)


def _voided(turn: Turn, call: Call, text: str, code: str) -> tuple[SessionEvent, ...]:
    if call.status is S.STARTED:
        return (
            _finished(
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
                turn=turn.turn,
                call=call.call,
                closed_as="voided",
                reason=text,
            )
        )
    return (*events, _finished(turn, call, "voided", text, code))


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
        turn=turn.turn,
        call=call.call,
        outcome=command.outcome,
        text=text,
        code=command.code,
        output=command.output,
    )
    if turn.cancelled_by is None:
        return Decided((finished,))
    return Decided((finished, *cancelling(turn, turn.cancelled_by, ended=call.call)))
