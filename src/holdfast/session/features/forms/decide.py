"""
Decide whether a person is asked to fill in a server's form.

The prompt is a question: its answer goes to the server and allows nothing. The people who may
answer are those who may approve the call. A form that cannot be asked ends the call as not
finished.
"""

import msgspec
from blake3 import blake3

from holdfast import limits
from holdfast.errors import InvariantBroken
from holdfast.ids import approval_id
from holdfast.session.authority.approvals import ANSWER, DENY, RESERVED, plan_digest, shown
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.authority.plan import Binding
from holdfast.session.authority.policy import Ask, BoundCall, may_answer, rule_for
from holdfast.session.call_results import unfinished
from holdfast.session.commands import AskForInput
from holdfast.session.decide.calls import allowed_digest, asking_path, prompts_max
from holdfast.session.decide.decision import Decided
from holdfast.session.decide.turns import cancelling
from holdfast.session.events import ApprovalRequested, OptionOffered
from holdfast.session.features.forms.form import CONTINUE, ServerForm, choices_of
from holdfast.session.state import Call, Phase, SessionState, Turn
from holdfast.session.view.safe_text import render_line


def ask_for_input(state: SessionState, command: AskForInput, now: int) -> Decided[str | None]:
    found = state.started_call(command.turn, command.call, command.run)
    if found is None:
        return Decided(outcome="the call is over")
    turn, call = found
    if command.form.is_inside:
        return _ask_inside(state, turn, call, command, now)
    if turn.cancelled_by is not None:
        ended = unfinished(turn.id, call, f"{turn.cancelled_by} had cancelled it", "cancelled")
        return Decided((ended, *cancelling(turn, turn.cancelled_by, ended=call.call)))
    context = turn.context
    if isinstance(context, LostContext):
        return Decided((unfinished(turn.id, call, context.reason, "no_authority"),))
    if flaw := _flaw(state, turn, context, call, command):
        return Decided((unfinished(turn.id, call, flaw[1], flaw[0]),))
    asked = _prompt(state, turn, context, call, command, now)
    if len(asked.display) > limits.DISPLAY_CHARS_MAX:
        why = f"it is longer than the {limits.DISPLAY_CHARS_MAX} characters that a person is shown"
        return Decided((unfinished(turn.id, call, why, "too_long"),))
    return Decided((asked,))


def _ask_inside(
    state: SessionState, turn: Turn, call: Call, command: AskForInput, now: int
) -> Decided[str | None]:
    """
    The call stays open, whether or not anybody is asked: its server hears of it, and gives the
    call's result.
    """
    context = turn.context
    if turn.cancelled_by is not None or call.is_asking:
        return Decided(outcome="another question is open" if call.is_asking else "it was cancelled")
    if isinstance(context, LostContext):
        return Decided(outcome=context.reason)
    if flaw := _flaw(state, turn, context, call, command):
        return Decided(outcome=flaw[1])
    asked = _prompt(state, turn, context, call, command, now)
    if len(asked.display) > limits.DISPLAY_CHARS_MAX:
        return Decided(outcome=f"it is longer than {limits.DISPLAY_CHARS_MAX} characters")
    return Decided((asked,))


def _flaw(
    state: SessionState, turn: Turn, context: TurnContext, call: Call, command: AskForInput
) -> tuple[str, str] | None:
    """Return the code and the reason why nobody is asked, or None."""
    bound, policy = command.bound, command.policy
    if bound.problem is not None:
        return bound.problem
    if _is_another_plan(context, call, bound):
        return ("plan_changed", "what would run is no longer what was allowed")
    if call.run > limits.MCP_INPUT_ROUNDS_MAX:
        return ("input_rounds", f"it asked {call.run} times, which is more than its bound")
    if turn.prompts >= prompts_max(state, policy):
        return ("prompt_budget", f"this turn has asked {turn.prompts} times, which is its bound")
    if sum(each.phase is Phase.PARKED for each in state.turns.values()) >= limits.PARKED_TURNS_MAX:
        return ("too_many_parked", "too many requests wait for answers in this session")
    if not _answerers(context, command):
        return ("approval_unattended", "nobody may answer here")
    return None


def _is_another_plan(context: TurnContext, call: Call, bound: BoundCall) -> bool:
    if bound.definition is None or bound.arguments is None or bound.binding is None:
        raise InvariantBroken("a look without a problem must have found the plan")
    if call.approval is None:
        return allowed_digest(context, call, bound) != call.digest
    asked = call.approval.asked
    return (bound.definition.digest(), bound.arguments, bound.binding.digest()) != (
        asked.definition,
        asked.arguments,
        asked.binding,
    )


def _answerers(context: TurnContext, command: AskForInput) -> tuple[str, ...]:
    definition, binding = command.bound.definition, command.bound.binding
    if definition is None or binding is None:
        return ()
    return may_answer(context, rule_for(context, definition, binding, command.policy))


def _prompt(
    state: SessionState,
    turn: Turn,
    context: TurnContext,
    call: Call,
    command: AskForInput,
    now: int,
) -> ApprovalRequested:
    bound, policy = command.bound, command.policy
    if bound.definition is None or bound.arguments is None or bound.binding is None:
        raise InvariantBroken("a look without a problem must have found the plan")
    rule = rule_for(context, bound.definition, bound.binding, policy)
    seconds = rule.expires_after_seconds or policy.expires_after_seconds
    if command.seconds_max is not None:
        seconds = min(seconds, command.seconds_max)
    ask = Ask(
        may_answer=_answerers(context, command),
        reason=f"The server of {call.tool} needs input to go on.",
        rule=f"form/{blake3(msgspec.json.encode(command.form)).hexdigest()}",
        expires_after_seconds=seconds,
    )
    said = Binding(display=command.display, warnings=command.warnings)
    display = shown(said, ask, asking_path(state, turn, call))
    return ApprovalRequested(
        approval=approval_id(context.instance, call.call, call.prompts + 1),
        turn=turn.id,
        call=call.call,
        tool=call.tool,
        definition=bound.definition.digest(),
        arguments=bound.arguments,
        binding=bound.binding.digest(),
        display=display,
        digest=plan_digest(
            context=context,
            call=call.call,
            definition=bound.definition,
            arguments=bound.arguments,
            binding=bound.binding,
            rule=ask.rule,
            display=display,
        ),
        options=_options(command.form),
        may_answer=ask.may_answer,
        expires_at=now + ask.expires_after_seconds * 1000,
        kind="question",
        reason=ask.reason,
        form=command.form,
    )


_ENDS = "Sends nothing to the server. The call ends."


def _options(form: ServerForm) -> tuple[OptionOffered, ...]:
    """A choice that looks like an option of ours, or hides a character, must be typed instead."""
    choices = choices_of(form)
    if any(each in RESERVED or render_line(each).text != each for each in choices):
        choices = ()
    ending = "Tells the server that you declined." if form.is_inside else _ENDS
    deny = OptionOffered(DENY, ending)
    if not any(form.labelled()):
        return (OptionOffered(CONTINUE, "Lets the call go on. It allows nothing else."), deny)
    if choices:
        return (*(OptionOffered(one, f"Answer: {one}") for one in choices), deny)
    return (OptionOffered(ANSWER, "Your values go to the server. They allow nothing."), deny)
