"""Accept messages, and turn the queue into turns."""

import re
from collections.abc import Mapping
from itertools import takewhile

import msgspec

from holdfast import limits
from holdfast.errors import Refused
from holdfast.ids import DELEGATE_CHANNEL, ApprovalId, InputId, TurnId, turn_id
from holdfast.session.authority.context import (
    LostContext,
    TurnContext,
    context_from_source,
    may_supersede,
    same_authority,
)
from holdfast.session.call_results import superseding
from holdfast.session.commands import AcceptInput, StartTurn
from holdfast.session.decide.decision import NOTHING, Decided, refused
from holdfast.session.events import InputAccepted, TurnEnded, TurnStarted
from holdfast.session.evolve.inputs import dedup_key, text_digest
from holdfast.session.results import Accepted, Duplicate, OnlyAnAnswerWord
from holdfast.session.state import Approval, Deduplicated, Input, SessionState, Turn

DELEGATE_HINT = (
    "write to the session it works for; its prompts can be answered, and it can be cancelled"
)


_YES = (
    "y",
    "yes",
    "yep",
    "yeah",
    "ok",
    "okay",
    "k",
    "sure",
    "go",
    "go ahead",
    "do it",
    "proceed",
    "approve",
    "approved",
    "approve once",
)
_YES_TOO = ("approve_once", "allow", "allowed", "accept", "confirm", "confirmed", "yes please")
_NO = (
    "n",
    "no",
    "nope",
    "nah",
    "no thanks",
    "deny",
    "denied",
    "decline",
    "reject",
    "rejected",
    "stop",
)
_ANSWER_WORDS = frozenset((*_YES, *_YES_TOO, *_NO))


def is_answer_word(text: str) -> bool:
    """
    Check whether a message is only a word that people use to answer a prompt.

    >>> is_answer_word("Yes!"), is_answer_word("yes, and restart the other one too")
    (True, False)
    """
    return re.sub(r"[\s.!?,'\"`*]+", " ", text.casefold()).strip() in _ANSWER_WORDS


def accept_input(
    state: SessionState, command: AcceptInput, now: int
) -> Decided[Accepted | Duplicate | OnlyAnAnswerWord]:
    ordinal = state.inputs + 1
    turn = turn_id(ordinal)
    if (flaw := _not_for_people(state, command)) is not None:
        return flaw
    if command.context is None:
        context = _own_context(state, command)
    elif (command.context.session, command.context.instance) != (state.session, state.instance):
        return refused(
            "no_authority",
            f"the authority handed on belongs to {command.context.session}, not to this instance "
            f"of {state.session}",
        )
    else:
        context = msgspec.structs.replace(command.context, turn=turn)
    if (repeat := _repeat(state, command, context)) is not None:
        return repeat
    if problem := _too_much(state, command):
        return problem
    replaced = _replaced(state, command, context, now)
    # Only a person's message can be an answer word. A webhook that posts "ok" does not answer a
    # prompt; its message is an ordinary one.
    is_word = command.kind == "message" and context.interactive and is_answer_word(command.text)
    if is_word and (
        asked := _asked_of(state, context.requester, replaced, now, command.asked_below)
    ):
        return Decided(outcome=asked)
    if command.policy.on_message != "supersede":
        replaced = ()
    accepted = InputAccepted(
        input=InputId(f"i{ordinal}"),
        turn=turn,
        text=command.text,
        context=msgspec.Raw(msgspec.json.encode(context)),
        agent=command.agent,
        model=command.model,
        kind=command.kind,
        loop=command.loop,
        quotes=command.source.quotes if command.source else (),
        dedup=command.dedup,
        aliases=command.aliases,
        asserted_by=command.source.asserted_by if command.source else None,
        supersedes=tuple(each.id for each in replaced),
    )
    closing = [event for each in replaced for event in superseding(each, accepted.input)]
    superseded = _prompts_of(replaced, command)
    return Decided((accepted, *closing), outcome=Accepted(accepted.input, turn, superseded))


def _own_context(state: SessionState, command: AcceptInput) -> TurnContext:
    """Return the context that the message gets from its source."""
    return context_from_source(
        command.source,
        session=state.session,
        instance=state.instance,
        turn=turn_id(state.inputs + 1),
        workspace=command.workspace,
    )


def is_repeat(state: SessionState, command: AcceptInput) -> bool:
    """Return whether a message with one of these keys was accepted before, from this sender."""
    return bool(_seen(state, command, _own_context(state, command)))


def _repeat(
    state: SessionState, command: AcceptInput, context: TurnContext
) -> Decided[Accepted | Duplicate | OnlyAnAnswerWord] | None:
    """
    Return the turn of a message that was accepted before under any of its keys. Refuse a key that
    was used with another text.
    """
    seen = _seen(state, command, context)
    text = text_digest(command.text)
    conflict = next((key for key, each in seen if each.text != text), None)
    if conflict is not None:
        return refused(
            "dedup_conflict",
            f"the key {conflict!r} was used before with another text",
            hint="use a new key for a new message",
        )
    return Decided(outcome=Duplicate(seen[0][1].turn)) if seen else None


def _seen(
    state: SessionState, command: AcceptInput, context: TurnContext
) -> list[tuple[str, Deduplicated]]:
    """Return the keys of this message that the session knows."""
    keys = command.aliases if command.dedup is None else (command.dedup, *command.aliases)
    found = ((key, state.dedup.get(dedup_key(context, key))) for key in keys)
    return [(key, each) for key, each in found if each is not None]


def prompts_superseded_by(
    state: SessionState, command: AcceptInput, now: int
) -> tuple[ApprovalId, ...]:
    """Return the prompts that this message would close, for a person who has not sent it yet."""
    context = _own_context(state, command)
    if command.policy.on_message != "supersede" or _seen(state, command, context):
        return ()
    return _prompts_of(_replaced(state, command, context, now), command)


def _prompts_of(replaced: tuple[Turn, ...], command: AcceptInput) -> tuple[ApprovalId, ...]:
    """Return the open prompts of these turns and of the delegates that work for them."""
    return tuple(
        approval
        for turn in replaced
        for approval in (
            *(each.asked.approval for each in turn.open_approvals),
            *command.asked_below.get(turn.id, ()),
        )
    )


def _not_for_people(
    state: SessionState, command: AcceptInput
) -> Decided[Accepted | Duplicate | OnlyAnAnswerWord] | None:
    """
    Refuse messages to a delegate's session. It takes only its one task, handed down with its
    authority. People answer its prompts or cancel it.
    """
    handed_down = command.kind == "delegate" and command.context is not None
    is_delegates = state.parent is not None or state.session.startswith(f"{DELEGATE_CHANNEL}/")
    if handed_down and state.parent is not None and state.inputs == 0:
        return None
    if not (handed_down or is_delegates):
        return None
    # Use the same text whether or not the session exists: a caller who may not see it learns
    # nothing.
    return refused(
        "delegate",
        f"{state.session} is the name of a delegate's session, which takes no messages",
        hint=DELEGATE_HINT,
    )


def flaw_of_text(text: str) -> Refused | None:
    """Return the reason why no session takes this text, from any sender and over any channel."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        hint = (
            "send well-formed Unicode text; a terminal needs a UTF-8 locale, such as LANG=C.UTF-8"
        )
        return Refused(
            "the message holds half a character (a lone surrogate)", code="malformed", hint=hint
        )
    if not text.strip():
        return Refused(
            "the message is empty", code="malformed", hint="say what the turn should be about"
        )
    if size > limits.INPUT_TEXT_BYTES_MAX:
        most = limits.INPUT_TEXT_BYTES_MAX
        return Refused(
            f"the message has {size} bytes; {most} are the most",
            code="too_large",
            hint="put it into a file and name the file",
        )
    return None


def _too_much(
    state: SessionState, command: AcceptInput
) -> Decided[Accepted | Duplicate | OnlyAnAnswerWord] | None:
    if flaw := flaw_of_text(command.text):
        return Decided(refusal=flaw)
    if command.source is not None and len(command.source.quotes) > limits.QUOTES_MAX:
        return refused(
            "too_large",
            f"{len(command.source.quotes)} quotes; {limits.QUOTES_MAX} are the most",
            hint="quote less",
        )
    if len(state.queued) >= limits.QUEUED_INPUTS_MAX:
        return refused(
            "too_many",
            f"{len(state.queued)} messages wait in this session already",
            hint="wait until some were answered",
        )
    return None


def _asked_of(
    state: SessionState,
    person: str | None,
    replaced: tuple[Turn, ...],
    now: int,
    below: Mapping[TurnId, tuple[ApprovalId, ...]],
) -> OnlyAnAnswerWord | None:
    """
    Return the prompts that the answer word may be meant for: prompts that the person may answer,
    and prompts of a request that the person made.
    """
    for turn in state.turns.values():
        if turn in replaced and (asked := below.get(turn.id)):
            return OnlyAnAnswerWord(asked, turn.id, person)
        stands = [
            each.asked
            for each in _standing(turn, now)
            if turn in replaced or person in each.asked.may_answer
        ]
        if stands:
            return OnlyAnAnswerWord(tuple(each.approval for each in stands), turn.id, person)
    return None


def _standing(turn: Turn, now: int) -> list[Approval]:
    """Return prompts that can still be answered. Only expiry closes a prompt past its time."""
    if turn.cancelled_by is not None or turn.superseded_by is not None:
        return []
    return [each for each in turn.open_approvals if now < each.asked.expires_at]


def _replaced(
    state: SessionState, command: AcceptInput, context: TurnContext, now: int
) -> tuple[Turn, ...]:
    """Return the waiting requests that this message replaces."""
    if command.kind != "message":
        return ()
    return tuple(
        turn
        for turn in state.turns.values()
        if (turn.is_left or turn.only_waits)
        and (turn.is_left or _standing(turn, now) or command.asked_below.get(turn.id))
        and isinstance(turn.context, TurnContext)
        and may_supersede(context, turn.context)
    )


def start_turn(state: SessionState, command: StartTurn) -> Decided[TurnId | None]:
    """
    Start the next turn with the longest prefix of the queue that has equal authority. A message
    never runs under another requester's authority.
    """
    if state.running is not None or not state.queued or state.carrying:
        return NOTHING
    taken = next_inputs(state)
    first = taken[0]
    if first.loop == "ours" and any(turn.may_go_on for turn in state.turns.values()):
        return NOTHING  # answered turns go first, as in `react`
    started = TurnStarted(
        turn=first.turn, inputs=tuple(each.input for each in taken), epoch=command.epoch
    )
    if isinstance(first.context, LostContext):
        ended = TurnEnded(
            turn=first.turn,
            outcome="failed",
            code="no_authority",
            message=first.context.reason,
            hint="send the message again; its context can't be restored, and nothing "
            "runs without it",
        )
        return Decided((started, ended), outcome=first.turn)
    return Decided((started,), outcome=first.turn)


def next_inputs(state: SessionState) -> list[Input]:
    """Return the messages that the next turn takes from a queue that is not empty."""
    first, *later = state.queued
    return [first, *takewhile(lambda each: _may_join(first, each), later)]


def _may_join(first: Input, other: Input) -> bool:
    return (
        isinstance(first.context, TurnContext)
        and isinstance(other.context, TurnContext)
        and first.kind == other.kind == "message"
        and first.loop == other.loop == "ours"
        and (first.agent, first.model) == (other.agent, other.model)
        and same_authority(first.context, other.context)
    )
