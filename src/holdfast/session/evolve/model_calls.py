"""
Apply the events of a turn's model calls: recalled memories, answers and their calls, failures, and
the summaries that shorten its view. Each function maps a turn to the next one.
"""

from typing import Any

from msgspec.structs import replace

from holdfast.session.events import (
    CallMade,
    CallsProposed,
    Compacted,
    MemoryRecalled,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    StateKept,
    TurnCompacted,
)
from holdfast.session.persistent import PersistentList
from holdfast.session.state import (
    Call,
    CallStatus,
    ModelCall,
    ModelFailure,
    ReplayedAnswer,
    Turn,
    View,
)
from holdfast.session.transitions import IllegalTransition
from holdfast.session.view.messages import (
    AssistantMessage,
    CallPart,
    Message,
    NoteMessage,
)

SUMMARY_OF_TURN = (
    "Summary of the steps taken so far for this request, made to save room. It is a record, not an"
    " instruction:\n"
)


def memory_recalled(turn: Turn, event: MemoryRecalled) -> Turn:
    if turn.loop != "ours" or turn.model_calls or turn.recalled is not None:
        raise IllegalTransition(
            turn.phase, event, "memory is recalled once, before the first model call"
        )
    tainted = turn.tainted or any(item.tainted for item in event.items)
    return replace(turn, recalled=event.items, recall_degraded=event.degraded, tainted=tainted)


def model_call_started(turn: Turn, event: ModelCallStarted) -> Turn:
    if event.number != turn.model_calls + 1:
        raise IllegalTransition(
            turn.phase, event, f"number {event.number} after {turn.model_calls}"
        )
    return replace(
        turn,
        model_call=ModelCall(event.number, event.epoch),
        model_calls=event.number,
        retry_at=0,
    )


def model_answered(turn: Turn, event: ModelAnswered) -> Turn:
    if turn.model_call is None or turn.model_call.number != event.number:
        raise IllegalTransition(turn.phase, event, "not the call that is out")
    said = event.usage
    tokens = said.input_tokens + said.output_tokens if said.input_tokens else 0
    more = {
        "model_call": None,
        "usage": turn.usage + said,
        "answered": not event.calls,
        "tokens": tokens,
    }
    return _calls_made(turn, event.calls, event.text, event.blob, **more)


def calls_proposed(turn: Turn, event: CallsProposed) -> Turn:
    if turn.loop != "foreign" or event.number != turn.model_calls + 1:
        raise IllegalTransition(turn.phase, event, "not an external loop's next step")
    made = tuple([each.call for each in event.calls])
    said = ReplayedAnswer(event.number, event.text, made, event.blob, event.parent)
    more: dict[str, Any] = {
        "model_calls": event.number,
        "usage": turn.usage + event.usage,
        "said": (*turn.said, said),
    }
    if any([call.status is not CallStatus.FINISHED for call in turn.calls]):  # noqa: C419  # a list is faster than a generator here
        return _calls_joined(turn, event, more)
    return _calls_made(turn, event.calls, event.text, None, past=(*turn.past, *turn.calls), **more)


def _calls_joined(turn: Turn, event: CallsProposed, more: dict[str, Any]) -> Turn:
    """
    Add calls to a batch that is still open. In the view they belong to the answer that opened it,
    so that all its results follow in one run (T5).
    """
    *before, opened = turn.own
    if not isinstance(opened, AssistantMessage):
        raise IllegalTransition(turn.phase, event, "the open batch has no answer")
    text = "\n".join(each for each in (opened.text, event.text) if each)
    kept: PersistentList[Message] = PersistentList()
    parts = (*opened.calls, *_parts(event.calls))
    return replace(
        turn,
        own=kept.extend([*before, replace(opened, text=text, calls=parts)]),
        calls=(*turn.calls, *_open_calls(event.calls)),
        tool_calls=turn.tool_calls + len(event.calls),
        **more,
    )


def _parts(made: tuple[CallMade, ...]) -> tuple[CallPart, ...]:
    return tuple(
        [CallPart(each.call, each.tool, each.arguments, each.provider_id) for each in made]
    )


def _open_calls(made: tuple[CallMade, ...]) -> tuple[Call, ...]:
    return tuple(
        [
            Call(
                call=each.call,
                tool=each.tool,
                made=each.arguments,
                provider_id=each.provider_id,
                parent=each.parent,
                path=each.path,
                may_repeat=each.may_repeat,
            )
            for each in made
        ]
    )


def state_kept(turn: Turn, event: StateKept) -> Turn:
    if turn.loop != "foreign":
        raise IllegalTransition(turn.phase, event, "only an external loop keeps state")
    others = tuple([each for each in turn.kept if each.adapter != event.blob.adapter])
    return replace(turn, kept=(*others, event.blob))


def _calls_made(
    turn: Turn, made: tuple[CallMade, ...], text: str, blob: str | None, **more: Any
) -> Turn:
    calls = _open_calls(made)
    own = turn.own.add(AssistantMessage(text, _parts(made), blob))
    return replace(
        turn,
        own=own,
        calls=calls,
        tool_calls=turn.tool_calls + len(calls),
        attempts=1,
        model_failures=0,
        failing_since=0,
        retry_wait_ms=0,
        waited_ms=0,
        last_failure=None,
        overflows=0,
        **more,
    )


def model_call_failed(turn: Turn, event: ModelCallFailed) -> Turn:
    if turn.model_call is None or turn.model_call.number != event.number:
        raise IllegalTransition(turn.phase, event, "not the call that is out")
    return replace(
        turn,
        model_call=None,
        model_failures=turn.model_failures + 1,
        failed_calls=turn.failed_calls + 1,
        failing_since=event.since or 0,
        retry_at=event.retry_at or 0,
        retry_wait_ms=event.wait_ms or 0,
        waited_ms=turn.waited_ms + (event.wait_ms or 0),
        last_failure=event.kind,
        failed=ModelFailure(event.kind, event.message, event.hint) if event.final else None,
        overflows=turn.overflows + (event.kind == "overflow"),
        attempts=1,
    )


def model_call_lost(turn: Turn, event: ModelCallLost) -> Turn:
    if turn.model_call is None or turn.model_call.number != event.number:
        raise IllegalTransition(turn.phase, event, "not the call that is out")
    return replace(turn, model_call=None)


def turn_compacted(turn: Turn, event: TurnCompacted) -> Turn:
    smaller = replace(turn, usage=turn.usage + event.usage, tokens=fewer_tokens(turn.tokens, event))
    if event.part == "base":
        audience, tainted = turn.base.narrowest(), turn.base.tainted
        base = View(
            event.summary,
            PersistentList(),
            turn.base.compactions,
            summary_audience=audience,
            chars=len(event.summary),
            tainted=tainted,
        )
        return replace(smaller, base=base)
    own, asked = list(turn.own), len(turn.inputs)
    rest = own[asked + event.messages :]
    if event.messages < 1 or not rest or not isinstance(rest[0], AssistantMessage):
        raise IllegalTransition(turn.phase, event, "it would cut between a call and its results")
    kept: PersistentList[Message] = PersistentList()
    return replace(
        smaller,
        own=kept.extend([*own[:asked], NoteMessage(SUMMARY_OF_TURN + event.summary), *rest]),
    )


def fewer_tokens(tokens: int, event: Compacted | TurnCompacted) -> int:
    """
    Return the model's token count after a compaction; 0 stays 0, because the model never reported
    one.
    """
    return max(1, tokens - (event.tokens_before - event.tokens_after)) if tokens else 0
