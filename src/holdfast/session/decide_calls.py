"""What may run, must ask or is denied; the last look before a start; and how a call ended."""

import msgspec

from holdfast import limits
from holdfast.errors import InvariantBroken
from holdfast.session import approvals
from holdfast.session.authority import LostContext, TurnContext
from holdfast.session.commands import DecideCalls, FinishCall, ProposeCalls, StartTool
from holdfast.session.decide_turns import calls_made, drop_call, settle_calls, too_many_calls
from holdfast.session.decided import NOTHING, Decided
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
from holdfast.session.evolve import call_key
from holdfast.session.home_events import GrantProposed
from holdfast.session.plan import Binding, ToolDefinition
from holdfast.session.policy import Allow, Ask, Deny, Looked, Policy, Rule, Verdict, judge, may_answer
from holdfast.session.state import Call, CallStatus, Phase, SessionState, Turn

S = CallStatus

_NOT_EVEN_WRONG = frozenset({"unknown_tool", "invalid_arguments", "cannot_bind"})
"""Problems of the call itself: the model can mend them. Anything else is a denial."""


def propose_calls(state: SessionState, command: ProposeCalls) -> Decided:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase is not Phase.READY or turn.loop != "foreign":
        return NOTHING
    number = turn.model_calls + 1
    calls = calls_made(state, turn, number, command.calls)
    proposed = CallsProposed(turn=turn.turn, number=number, calls=calls, text=command.text)
    return Decided((proposed, *too_many_calls(turn, calls, command.policy)), outcome=tuple(each.call for each in calls))


def decide_calls(state: SessionState, command: DecideCalls, now: int) -> Decided:
    turn = state.turns.get(command.turn)
    if turn is None or turn.phase is not Phase.DECIDING:
        return NOTHING
    events: list[SessionEvent] = []
    prompts = turn.prompts
    for looked in command.looked:
        call = state.open_call(turn.turn, looked.call)
        if call is None or call.status is not S.PROPOSED:
            continue
        if (stuck := _stuck(turn, call)) is not None:
            if stuck == "end":
                return Decided((*settle_calls(turn, "Not run: the same call again and again."), _repeating(turn, call)))
            decided: SessionEvent = _finished(turn, call, "error", _CORRECTION, "repeated")
        else:
            decided = _decide_one(state, turn, call, looked, command, prompts, now)
        prompts += isinstance(decided, ApprovalRequested)
        events.append(decided)
    return Decided(tuple(events))


_CORRECTION = "Not run: this is the same call with the same result as before. Use the result you have, do something else, or answer the person."


def _stuck(turn: Turn, call: Call) -> str | None:
    """The third identical call in a row with identical results is corrected; a fourth ends the turn."""
    if call.edited_by is not None or turn.repeats.key != call_key(call.tool, call.arguments or call.made):
        return None
    if turn.repeats.count >= limits.EQUAL_CALLS_IN_A_ROW:
        return "end"
    return "correct" if turn.repeats.count == limits.EQUAL_CALLS_IN_A_ROW - 1 else None


def _repeating(turn: Turn, call: Call) -> TurnEnded:
    message = f"the model called {call.tool} with the same arguments and got the same result, again and again"
    return TurnEnded(turn=turn.turn, outcome="failed", code="repeating", message=message)


def _finished(turn: Turn, call: Call, outcome: CallOutcome, text: str, code: str) -> CallFinished:
    return CallFinished(turn=turn.turn, call=call.call, outcome=outcome, text=text, code=code)


def _decide_one(state: SessionState, turn: Turn, call: Call, looked: Looked, command: DecideCalls, prompts: int, now: int) -> SessionEvent:
    if isinstance(turn.context, LostContext):
        return _finished(turn, call, "denied", f"Not run: {turn.context.reason}.", "no_authority")
    if looked.problem is not None:
        return _problem(turn, call, looked.problem)
    context, (definition, arguments, binding) = turn.context, _found(looked)
    verdict = _judge(state, context, call, looked, command.policy, command.grants)
    match verdict:
        case Allow(by=by):
            digest = approvals.plan_digest(
                context=context, call=call.call, definition=definition, arguments=arguments, binding=binding, rule="allow", display=binding.display
            )
            return CallAllowed(turn=turn.turn, call=call.call, by=by, arguments=arguments, digest=digest)
        case Deny(code=code, text=text):
            return _finished(turn, call, "unattended" if code == "approval_unattended" else "denied", f"Not run: {text}.", code)
        case Ask():
            return _ask(state, turn, call, looked, verdict, command.policy, prompts, now)


def _judge(state: SessionState, context: TurnContext, call: Call, looked: Looked, policy: Policy, grants: tuple[GrantProposed, ...]) -> Verdict:
    definition, arguments, binding = _found(looked)
    twin = call_key(definition.name, arguments) in state.in_doubt or call_key(definition.name, call.made) in state.in_doubt
    verdict = judge(
        context=context,
        definition=definition,
        arguments=arguments,
        binding=binding,
        policy=policy,
        grants=grants,
        in_doubt_twin=twin and definition.contract == "once",
    )
    if call.edited_by is None or isinstance(verdict, Deny):
        return verdict
    # What a person changed is shown to that person again, whatever policy and grants would have allowed.
    expires = verdict.expires_after_seconds if isinstance(verdict, Ask) else policy.expires_after_seconds
    rule = f"{context.audience.value}:edited"
    return Ask(may_answer=(call.edited_by,), reason="you changed the arguments", rule=rule, expires_after_seconds=expires)


def _found(looked: Looked) -> tuple[ToolDefinition, str, Binding]:
    if looked.definition is None or looked.arguments is None or looked.binding is None:
        raise InvariantBroken("a look without a problem must have found a definition, arguments and a binding")
    return looked.definition, looked.arguments, looked.binding


def _problem(turn: Turn, call: Call, problem: tuple[str, str]) -> CallFinished:
    code, text = problem
    return _finished(turn, call, "error" if code in _NOT_EVEN_WRONG else "denied", f"Not run: {text}", code)


def _ask(state: SessionState, turn: Turn, call: Call, looked: Looked, ask: Ask, policy: Policy, prompts: int, now: int) -> SessionEvent:
    definition, arguments, binding = _found(looked)
    if prompts >= policy.prompts_per_turn_max:
        text = f"Not run: this turn has asked {prompts} times, which is its bound."
        return _finished(turn, call, "denied", text, "prompt_budget")
    if sum(each.phase is Phase.PARKED for each in state.turns.values()) >= limits.PARKED_TURNS_MAX:
        return _finished(turn, call, "denied", "Not run: too many requests wait for answers in this session.", "too_many_parked")
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
    )
    if asked is None:
        text = f"Not run: what would run is longer than the {limits.DISPLAY_CHARS_MAX} characters a person can be shown."
        return _finished(turn, call, "denied", text, "too_long")
    return asked


class _Question(msgspec.Struct):
    choices: list[str] | None = None


def _choices(arguments: str) -> tuple[str, ...]:
    reserved = {approvals.ANSWER, approvals.DENY}
    return tuple(choice for choice in msgspec.json.decode(arguments, type=_Question).choices or () if choice not in reserved)


def start_tool(state: SessionState, command: StartTool, now: int) -> Decided:
    """
    The last look, in the lock section that makes the start durable: persisted authority and current policy together.

    Only what was allowed or approved gets here, so policy that was widened since can't let anything new through; policy that was tightened stops it.
    """
    turn = state.turns.get(command.turn)
    call = state.open_call(command.turn, command.looked.call)
    if turn is None or call is None or turn.cancelled_by is not None or turn.parked:
        return NOTHING
    again = call.status is S.STARTED and call.contract != "once" and call.epoch < command.epoch
    if not again and call.status not in (S.ALLOWED, S.APPROVED):
        return NOTHING
    if call.status is S.APPROVED and turn.waiting:
        return NOTHING
    if isinstance(turn.context, LostContext):
        return Decided(tuple(drop_call(turn, call, f"Not run: {turn.context.reason}.", closed_as="voided")))
    if stopped := _stopped(state, turn, turn.context, call, command, now):
        return Decided(stopped)
    looked = command.looked
    definition, arguments, _ = _found(looked)
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
    return Decided((started,), outcome=started.run)


def _stopped(state: SessionState, turn: Turn, context: TurnContext, call: Call, command: StartTool, now: int) -> tuple[SessionEvent, ...]:
    """Why it must not start after all, as events; nothing when it may."""
    looked, policy = command.looked, command.policy
    if looked.problem is not None:
        return _voided(turn, call, f"Not run: {looked.problem[1]}", looked.problem[0])
    _, arguments, _ = _found(looked)
    if call.approval is not None and call.status is S.APPROVED:
        return _approval_stopped(state, turn, context, call, command)
    if call.arguments is not None and arguments != call.arguments:
        return _voided(turn, call, "Not run: its arguments are no longer what was allowed.", "plan_changed")
    verdict = _judge(state, context, call, looked, policy, command.grants)
    match verdict:
        case Allow():
            return ()
        case Deny(code=code, text=text):
            return _voided(turn, call, f"Not run: {text}.", code)
        case Ask():
            if call.status is S.STARTED:
                return (
                    _finished(turn, call, "in_doubt", "In doubt: it was started before, and running it again would need an approval.", "in_doubt"),
                )
            return (_ask(state, turn, call, looked, verdict, policy, turn.prompts, now),)


def _approval_stopped(state: SessionState, turn: Turn, context: TurnContext, call: Call, command: StartTool) -> tuple[SessionEvent, ...]:
    definition, arguments, binding = _found(command.looked)
    approval = call.approval
    if approval is None or approval.answer is None:
        raise InvariantBroken("an approved call has no answer")
    asked = approval.asked
    if definition.digest() != asked.definition:
        return _voided(turn, call, f"Not run: {definition.name} is no longer the tool that was approved.", "plan_changed")
    if arguments != asked.arguments or binding.digest() != asked.binding:
        return _voided(turn, call, "Not run: what would run is no longer what was shown and approved.", "plan_changed")
    verdict = _judge(state, context, call, command.looked, command.policy, ())
    if isinstance(verdict, Deny):
        return _voided(turn, call, f"Not run: {verdict.text}.", "policy_tightened")
    if not _still_entitled(context, definition, approval.answer.by, command.policy, asked.may_answer):
        return _voided(turn, call, f"Not run: {approval.answer.by} may no longer approve this.", "approver_removed")
    return ()


def _still_entitled(context: TurnContext, definition: ToolDefinition, by: str, policy: Policy, asked_of: tuple[str, ...]) -> bool:
    rule = policy.rule(context.audience, definition.name) or Rule(mode="ask")
    return by in asked_of and by in may_answer(context, rule)


def _voided(turn: Turn, call: Call, text: str, code: str) -> tuple[SessionEvent, ...]:
    if call.status is S.STARTED:
        return (_finished(turn, call, "in_doubt", f"In doubt: it was started before and could not be run again. {text}", code),)
    events: list[SessionEvent] = []
    if call.approval is not None and call.approval.closed_as is None:
        events.append(ApprovalClosed(approval=call.approval.asked.approval, turn=turn.turn, call=call.call, closed_as="voided", reason=text))
    return (*events, _finished(turn, call, "voided", text, code))


def finish_call(state: SessionState, command: FinishCall) -> Decided:
    """The real outcome of a started call. One that recovery has already called in doubt comes too late, and is dropped."""
    turn = state.turns.get(command.turn)
    call = state.open_call(command.turn, command.call)
    if turn is None or call is None or call.status is not S.STARTED or call.run != command.run:
        return Decided(outcome="dropped")
    text = command.text
    if call.edited_by is not None:
        text = f"({call.edited_by} changed the arguments to {call.arguments} before approving.)\n{text}"
    finished = CallFinished(turn=turn.turn, call=call.call, outcome=command.outcome, text=text, code=command.code, output=command.output)
    others = [each for each in turn.calls if each.call != call.call and each.status is S.STARTED]
    if turn.cancelled_by is None or others:
        return Decided((finished,))
    return Decided((finished, TurnEnded(turn=turn.turn, outcome="cancelled", code="cancelled", message=f"cancelled by {turn.cancelled_by}")))
