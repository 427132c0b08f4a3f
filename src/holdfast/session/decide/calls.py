"""Decide the calls that a model made: which may run, must ask or are denied."""

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
    BoundCall,
    Deny,
    Policy,
    Rule,
    Verdict,
    denied_unseen,
    judge,
    may_answer,
    rule_for,
)
from holdfast.session.commands import DecideCalls
from holdfast.session.decide.decision import NOTHING, Decided
from holdfast.session.decide.turns import (
    calls_bound,
    settle_calls,
)
from holdfast.session.events import (
    ApprovalRequested,
    CallAllowed,
    CallFinished,
    CallOutcome,
    SessionEvent,
    TurnEnded,
)
from holdfast.session.features.delegates import decide as decide_delegates
from holdfast.session.features.jobs.decide import no_job
from holdfast.session.features.jobs.evolve import call_key, exact_key
from holdfast.session.features.reminders.decide import no_reminder
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import Call, CallStatus, Phase, SessionState, Turn

S = CallStatus
_NOT_EVEN_WRONG = frozenset({"unknown_tool", "invalid_arguments", "cannot_bind"})
"""Problems of the call itself, which the model can correct. Any other problem is a denial."""


def decide_calls(state: SessionState, command: DecideCalls, now: int) -> Decided[None]:
    turn = state.turns.get(command.turn)
    edited = turn is not None and turn.loop == "foreign" and turn.phase is Phase.PARKED
    if turn is None or not (turn.phase is Phase.DECIDING or edited):
        return NOTHING
    # Apply a bound that the batch passed when it was proposed, if a crash cut the record off.
    if (over := calls_bound(turn, command.policy)) and not any(
        call.status is S.STARTED for call in turn.calls
    ):
        return Decided((*settle_calls(turn, f"Not run: {over[1]}."), _given_up(turn, over)))
    events: list[SessionEvent] = []
    prompts = turn.prompts
    decided_now: set[str] = set()
    for bound in command.bound:
        call = state.open_call(turn.id, bound.call)
        if (
            call is None
            or call.status is not S.PROPOSED
            or call.owes_result
            or bound.call in decided_now
            or (edited and call.edited_by is None)
        ):
            continue
        decided_now.add(bound.call)
        if (stuck := _stuck(turn, call, bound)) is not None:
            if stuck == "end":
                return Decided(_repeating(turn, call))
            decided: SessionEvent = finished_as(turn, call, "error", _CORRECTION, "repeated")
        else:
            decided = _decide_one(state, turn, call, bound, command, prompts, now)
        prompts += isinstance(decided, ApprovalRequested)
        events.append(decided)
    return Decided(tuple(events))


_CORRECTION = (
    "Not run: this is the same call with the same result as before. Use the result you have, do"
    " something else, or answer the person."
)


def _stuck(turn: Turn, call: Call, bound: BoundCall) -> str | None:
    """Correct the third identical call in a row with identical results. A fourth ends the turn."""
    same = ((call.tool, call.made), (call.tool, bound.arguments or call.made))
    if call.edited_by is not None or turn.repeats.key not in same:
        return None
    if call.may_repeat and bound.definition is not None and bound.definition.contract == "pure":
        return None
    if turn.repeats.count >= limits.EQUAL_CALLS_IN_A_ROW:
        return "end"
    return "correct" if turn.repeats.count == limits.EQUAL_CALLS_IN_A_ROW - 1 else None


def _repeating(turn: Turn, call: Call) -> tuple[SessionEvent, ...]:
    """
    Give every call its result before the turn ends. The repeated call's own result comes last and
    keeps the count, in case a crash cuts off the end.
    """
    message = (
        f"the model called {call.tool} with the same arguments and got the same result, again and"
        " again"
    )
    settled = [
        event
        for event in settle_calls(turn, f"Not run: {message}.")
        if not (isinstance(event, CallFinished) and event.call == call.call)
    ]
    return (
        *settled,
        finished_as(turn, call, "error", f"Not run: {message}.", "repeated"),
        _given_up(turn, ("repeating", message)),
    )


def _given_up(turn: Turn, why: tuple[str, str]) -> TurnEnded:
    return TurnEnded(turn=turn.id, outcome="failed", code=why[0], message=why[1])


def finished_as(turn: Turn, call: Call, outcome: CallOutcome, text: str, code: str) -> CallFinished:
    return CallFinished(turn=turn.id, call=call.call, outcome=outcome, text=text, code=code)


def _decide_one(
    state: SessionState,
    turn: Turn,
    call: Call,
    bound: BoundCall,
    command: DecideCalls,
    prompts: int,
    now: int,
) -> SessionEvent:
    if isinstance(turn.context, LostContext):
        return finished_as(turn, call, "denied", f"Not run: {turn.context.reason}.", "no_authority")
    if bound.problem is not None:
        unseen = denied_unseen(turn.context, bound, command.policy)
        return (
            _denied(turn, call, unseen)
            if unseen is not None
            else _problem(turn, call, bound.problem)
        )
    if (
        over := delegate_bound(state, turn, bound)
        or _job_bound(state, turn, bound, command.policy)
        or _reminder_bound(state, bound)
    ):
        return finished_as(turn, call, "denied", f"Not run: {over[1]}.", over[0])
    context = turn.context
    verdict = judge_call(state, context, call, bound, command.policy, command.grants, now)
    match verdict:
        case Allow(by=by):
            return CallAllowed(
                turn=turn.id,
                call=call.call,
                by=by,
                arguments=bound_parts(bound)[1],
                digest=allowed_digest(context, call, bound),
            )
        case Deny():
            return _denied(turn, call, verdict)
        case Ask():
            return ask_person(state, turn, call, bound, verdict, command.policy, prompts, now)


def _denied(turn: Turn, call: Call, deny: Deny) -> CallFinished:
    return finished_as(
        turn,
        call,
        "unattended" if deny.code == "approval_unattended" else "denied",
        f"Not run: {deny.text}.",
        deny.code,
    )


def judge_call(
    state: SessionState,
    context: TurnContext,
    call: Call,
    bound: BoundCall,
    policy: Policy,
    grants: tuple[GrantProposed, ...],
    now: int,
) -> Verdict:
    definition, arguments, binding = bound_parts(bound)
    doubts = _doubts(state, definition, arguments, call.made)
    verdict = judge(
        context=context,
        definition=definition,
        arguments=arguments,
        binding=binding,
        policy=policy,
        grants=grants,
        in_doubt_twin=bool(doubts),
        now=now,
    )
    if isinstance(verdict, Ask):
        verdict = msgspec.structs.replace(verdict, doubts=doubts)
    if call.edited_by is None or isinstance(verdict, Deny):
        return verdict
    # Arguments that a person changed are shown to that person again, even if policy or a grant
    # would allow them.
    if not is_still_entitled(context, definition, call.edited_by, policy, (call.edited_by,)):
        return Deny(
            "approver_removed",
            f"{call.edited_by} changed the arguments, and may no longer approve this",
        )
    expires = (
        verdict.expires_after_seconds if isinstance(verdict, Ask) else policy.expires_after_seconds
    )
    return Ask(
        may_answer=(call.edited_by,),
        reason=f"{call.edited_by} changed the values.",
        rule=f"{context.audience.value}:edited",
        expires_after_seconds=expires,
        in_doubt_twin=bool(doubts),
        doubts=doubts,
        remember=rule_for(context, definition, binding, policy).remembers,
        remember_for_seconds=policy.remember_for_seconds,
    )


def _doubts(state: SessionState, definition: ToolDefinition, *arguments: str) -> tuple[CallId, ...]:
    """Return the newest equal calls in doubt. Only a call that must not run twice has any."""
    if definition.contract != "once":
        return ()
    keys = [key(definition.name, each) for each in arguments for key in (call_key, exact_key)]
    found = (state.in_doubt.get(key) for key in keys)
    return tuple(sorted({each for each in found if each is not None}))


def delegate_bound(state: SessionState, turn: Turn, bound: BoundCall) -> tuple[str, str] | None:
    is_delegate = bound.definition is not None and bound.definition.kind == "delegate"
    return decide_delegates.bound_reached(state, turn) if is_delegate else None


def _job_bound(
    state: SessionState, turn: Turn, bound: BoundCall, policy: Policy
) -> tuple[str, str] | None:
    """Check the job bound before anyone is asked; the start checks it again."""
    return no_job(state, policy) if bound.background and turn.loop == "ours" else None


def _reminder_bound(state: SessionState, bound: BoundCall) -> tuple[str, str] | None:
    """Check the reminder bound before anyone is asked."""
    sets_one = bound.definition is not None and (
        bound.definition.kind,
        bound.definition.name,
    ) == ("reminder", "set_reminder")
    return no_reminder(state) if sets_one else None


def bound_parts(bound: BoundCall) -> tuple[ToolDefinition, str, Binding]:
    if bound.definition is None or bound.arguments is None or bound.binding is None:
        raise InvariantBroken(
            "a look without a problem must have found a definition, arguments and a binding"
        )
    return bound.definition, bound.arguments, bound.binding


def _problem(turn: Turn, call: Call, problem: tuple[str, str]) -> CallFinished:
    code, text = problem
    return finished_as(
        turn, call, "error" if code in _NOT_EVEN_WRONG else "denied", f"Not run: {text}", code
    )


def ask_person(
    state: SessionState,
    turn: Turn,
    call: Call,
    bound: BoundCall,
    ask: Ask,
    policy: Policy,
    prompts: int,
    now: int,
) -> SessionEvent:
    definition, arguments, binding = bound_parts(bound)
    if prompts >= prompts_max(state, policy):
        text = f"Not run: this turn has asked {prompts} times, which is its bound."
        return finished_as(turn, call, "denied", text, "prompt_budget")
    if sum(each.phase is Phase.PARKED for each in state.turns.values()) >= limits.PARKED_TURNS_MAX:
        return finished_as(
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
        turn=turn.id,
        call=call.call,
        definition=definition,
        arguments=arguments,
        binding=binding,
        ask=ask,
        prompt=call.prompts + 1,
        now=now,
        choices=_choices(arguments) if definition.kind == "question" else (),
        path=asking_path(state, turn, call),
    )
    if asked is None:
        most = approvals.display_chars_max(definition)
        text = f"Not run: it is longer than the {most} characters that a person can be shown."
        return finished_as(turn, call, "denied", text, "too_long")
    return asked


def asking_path(state: SessionState, turn: Turn, call: Call) -> tuple[str, ...]:
    """The agents from the one that a person asked to the one that asks, if that is another one."""
    above = state.parent.path if state.parent is not None else ()
    return (*(above or (turn.agent,)), *call.path) if call.path else above


def prompts_max(state: SessionState, policy: Policy) -> int:
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


def allowed_digest(context: TurnContext, call: Call, bound: BoundCall) -> str:
    definition, arguments, binding = bound_parts(bound)
    return approvals.plan_digest(
        context=context,
        call=call.call,
        definition=definition,
        arguments=arguments,
        binding=binding,
        rule="allow",
        display=binding.display,
    )


def is_still_entitled(
    context: TurnContext,
    definition: ToolDefinition,
    by: str,
    policy: Policy,
    asked_of: tuple[str, ...],
) -> bool:
    rule = policy.rule(context.audience, definition.name) or Rule(mode="ask")
    return by in asked_of and by in may_answer(context, rule)
