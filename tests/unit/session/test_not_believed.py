"""
T4: a genuine record that can't follow the ones before it is not believed, and what can is folded to
what it says.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from proof.scenarios.teller import Teller

from holdfast.ids import CallId, InputId, InstanceId, SessionId, TurnId
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    CallAllowed,
    CallFinished,
    DelegateOf,
    DelegateStarted,
    Event,
    MemoryRecalled,
    ModelAnswered,
    ModelCallStarted,
    SessionEvent,
    ToolStarted,
    TurnCompacted,
    TurnEnded,
    TurnParked,
    TurnResumed,
    TurnStarted,
)
from holdfast.session.evolve.fold import evolve
from holdfast.session.evolve.model_calls import fewer_tokens
from holdfast.session.evolve.running_turn import _closing_messages, _one_line, _speaker
from holdfast.session.evolve.turn import _repeats
from holdfast.session.features.jobs.evolve import call_key
from holdfast.session.state import Call, CallStatus, Repeats, SessionState
from holdfast.session.transitions import IllegalTransition
from holdfast.session.view.messages import AssistantMessage, Usage

T1 = TurnId("t1")
ASKED = ("submit x", "go")
GATED = (*ASKED, 'calls "delete b=1"', "go")
APPROVED = (*ASKED, 'calls "delete b=1"', "decide", "answer a1 approve_once")
FREE = (*ASKED, 'calls "tidy b=1"', "decide")
AGAIN = (*ASKED, 'calls "charge b=1"', "decide", "answer a1 approve_once", "start c1")
HANDED = (*ASKED, 'calls "delegate_helper task=it"', "decide")
TWICE = (*FREE, "start c1", "finish c1", "think", 'calls "look"', "decide", "start c2", "finish c2")
Make = Callable[[SessionState], SessionEvent]


def told(steps: Sequence[str]) -> Teller:
    teller = Teller()
    teller.tell(steps)
    return teller


def after(state: SessionState, event: SessionEvent) -> SessionState:
    return evolve(state, event, seq=state.seq + 1, at=state.at + 1)


def first(state: SessionState) -> Call:
    return state.turns[T1].calls[0]


def starts(**changed: Any) -> Make:
    """The first call begins as it was allowed, but for what is changed."""

    def make(state: SessionState) -> ToolStarted:
        call = first(state)
        facts = {
            "turn": T1,
            "call": call.call,
            "tool": call.tool,
            "arguments": call.made,
            "digest": call.digest,
            "contract": "once",
        }
        return ToolStarted(
            **{**facts, "allowed_by": call.allowed_by, "epoch": 2, "run": call.run + 1, **changed}
        )

    return make


def hands_on(**changed: Any) -> Make:
    def make(state: SessionState) -> DelegateStarted:
        call = first(state)
        facts = {
            "turn": T1,
            "call": call.call,
            "agent": "helper",
            "session": SessionId("d/x"),
            "instance": InstanceId("l"),
            "arguments": call.made,
        }
        return DelegateStarted(
            **{**facts, "digest": call.digest, "allowed_by": call.allowed_by, "epoch": 2, **changed}
        )

    return make


def ends(outcome: Any, call: str | None = None) -> Make:
    return lambda state: CallFinished(
        turn=T1, call=CallId(call or first(state).call), outcome=outcome, text=""
    )


def answers(state: SessionState) -> ApprovalAnswered:
    call = first(state)
    assert call.approval is not None
    asked = call.approval.asked
    return ApprovalAnswered(
        approval=asked.approval,
        turn=T1,
        call=call.call,
        option="approve_once",
        by="alice",
        answer_id="another",
        digest=asked.digest,
    )


def closes(state: SessionState) -> ApprovalClosed:
    call = first(state)
    assert call.approval is not None
    return ApprovalClosed(
        approval=call.approval.asked.approval, turn=T1, call=call.call, closed_as="voided"
    )


def summary(messages: int, tokens_after: int = 1) -> Make:
    return lambda _: TurnCompacted(
        turn=T1,
        summary="s",
        part="own",
        messages=messages,
        tokens_before=9,
        tokens_after=tokens_after,
        trigger="bound",
    )


def always(event: SessionEvent) -> Make:
    return lambda _: event


def started(turn: str, *inputs: str) -> Make:
    return always(TurnStarted(turn=TurnId(turn), inputs=tuple(map(InputId, inputs)), epoch=1))


NEXT = "its inputs are not the next ones"
OTHER = "it is not what was allowed"
CUTS = "it would cut between a call and its results"


@pytest.mark.parametrize(
    ("steps", "make", "reason"),
    [
        (("submit x",), started("t1", "i9"), NEXT),
        (("submit x",), started("t9", "i1"), NEXT),
        ((), started("t1"), NEXT),
        ((*ASKED, "submit y"), started("t2", "i2"), NEXT),
        ((), always(TurnEnded(turn=TurnId("t9"), outcome="completed")), "no open turn"),
        (ASKED, always(MemoryRecalled(turn=T1)), "once, before the first model call"),
        (
            ("submit x", "begin"),
            always(ModelCallStarted(turn=T1, number=2, epoch=1, model="m")),
            "number 2 after 0",
        ),
        (FREE, always(TurnParked(turn=T1)), "something can still be done"),
        (
            GATED,
            always(TurnResumed(turn=T1, epoch=2, after="pause")),
            "not all of its answers are in",
        ),
        (APPROVED, answers, "the call is approved"),
        (
            FREE,
            lambda state: CallAllowed(
                turn=T1, call=first(state).call, by="policy", arguments="{}", digest="d"
            ),
            "the call is allowed",
        ),
        (FREE, starts(digest="another"), OTHER),
        (FREE, starts(allowed_by="g-another"), OTHER),
        (FREE, starts(run=2), OTHER),
        (HANDED, hands_on(digest="another"), OTHER),
        (HANDED, hands_on(allowed_by="g-another"), OTHER),
        (AGAIN, hands_on(), "it was started as a tool"),
        (AGAIN, starts(epoch=1), "it runs already"),
        (FREE, ends("ok"), "it never started"),
        (FREE, ends("in_doubt", call="c-none"), "no such call"),
        (TWICE, summary(0), CUTS),
        (TWICE, summary(1), CUTS),
        (TWICE, summary(9), CUTS),
    ],
)
def test_a_record_that_can_not_follow_is_not_believed(
    steps: Sequence[str], make: Make, reason: str
) -> None:
    state = told(steps).pure.state
    with pytest.raises(IllegalTransition, match=reason):
        after(state, make(state))


@pytest.mark.parametrize(
    ("steps", "make"),
    [
        (("submit x",), started("t1", "i1")),
        (("submit x", "begin"), always(MemoryRecalled(turn=T1))),
        (("submit x", "begin"), always(ModelCallStarted(turn=T1, number=1, epoch=1, model="m"))),
        (FREE, starts()),
        (APPROVED, starts()),
        (AGAIN, starts(epoch=2)),  # it may be repeated, by whoever drives next
        (HANDED, hands_on()),
        ((*FREE, "start c1"), ends("ok")),
        (TWICE, summary(2)),
    ],
)
def test_a_record_that_follows_is_believed(steps: Sequence[str], make: Make) -> None:
    state = told(steps).pure.state
    assert after(state, make(state)) != state


def test_a_call_whose_prompt_was_closed_never_starts() -> None:
    """P5: however it came to be closed after its answer."""
    state = told(APPROVED).pure.state
    closed = after(state, closes(state))
    with pytest.raises(IllegalTransition, match="its prompt was closed"):
        after(closed, starts()(closed))


def test_memory_is_recalled_once() -> None:
    state = told(("submit x", "begin")).pure.state
    recalled = after(state, MemoryRecalled(turn=T1))
    with pytest.raises(IllegalTransition, match="once"):
        after(recalled, MemoryRecalled(turn=T1))


def test_a_call_in_doubt_is_remembered_by_the_arguments_that_ran() -> None:
    """T2: an edited call is remembered by the words that ran."""
    state = told((*ASKED, 'calls "tidy b=1"')).pure.state
    ran = '{"b":"2"}'
    for event in (
        CallAllowed(turn=T1, call=first(state).call, by="policy", arguments=ran, digest="d"),
        starts(arguments=ran, digest="d"),
        ends("in_doubt"),
    ):
        state = after(state, event if isinstance(event, Event) else event(state))
    assert call_key("tidy", ran) in dict(state.in_doubt.items())
    assert call_key("tidy", '{"b":"1"}') not in dict(state.in_doubt.items())


def test_turns_are_counted_as_they_end() -> None:
    state = told((*ASKED, "says one", "submit y", "go", "says two")).pure.state
    assert (state.turns_ended, state.running) == (2, None)


def test_the_first_line_of_a_script_is_used_by_the_first_answer_and_tokens_are_what_the_model_counted() -> (
    None
):
    state = told(ASKED).pure.state
    said = after(
        state,
        ModelAnswered(
            turn=T1, number=1, text="hm", line=0, usage=Usage(input_tokens=7, output_tokens=2)
        ),
    )
    assert list(said.scripts.values()) == [1]
    assert said.turns[T1].tokens == 9
    silent = after(state, ModelAnswered(turn=T1, number=1, text="hm", usage=Usage(output_tokens=2)))
    assert silent.turns[T1].tokens == 0


@pytest.mark.parametrize(
    ("changed", "then"),
    [
        ({}, Repeats(("look", "{}"), "seen", 3)),
        ({"text": "other"}, Repeats(("look", "{}"), "other", 1)),
        ({"made": '{"a":1}'}, Repeats(("look", '{"a":1}'), "seen", 1)),
        ({"arguments": '{"a":1}'}, Repeats(("look", '{"a":1}'), "seen", 1)),
        ({"code": "repeated", "text": "stop"}, Repeats(("look", "{}"), "seen", 3)),
        ({"outcome": "cancelled", "text": ""}, Repeats(("look", "{}"), "seen", 2)),
        ({"outcome": "superseded", "text": ""}, Repeats(("look", "{}"), "seen", 2)),
    ],
)
def test_equal_calls_with_equal_results_are_counted_in_a_row(
    changed: dict[str, Any], then: Repeats
) -> None:
    """Case 46: whatever else is between them begins anew, and what never ran counts for nothing."""
    call = Call(
        call=CallId("c-1"),
        tool="look",
        made="{}",
        provider_id=None,
        status=CallStatus.FINISHED,
        outcome="ok",
        text="seen",
    )
    assert (
        _repeats(Repeats(("look", "{}"), "seen", 2), msgspec.structs.replace(call, **changed))
        == then
    )


@pytest.mark.parametrize(("tokens", "left"), [(0, 0), (100, 92), (5, 1)])
def test_a_summary_takes_from_what_a_model_counted_and_from_nothing_else(
    tokens: int, left: int
) -> None:
    event = summary(1)(told(ASKED).pure.state)
    assert isinstance(event, TurnCompacted)
    assert fewer_tokens(tokens, event) == left


@pytest.mark.parametrize(
    ("path", "speaker"),
    [(("ops", "helper"), "the agent ops"), (("helper",), None), (None, "alice")],
)
def test_a_task_is_shown_as_the_text_of_the_agent_that_gave_it(
    path: tuple[str, ...] | None, speaker: str | None
) -> None:
    """
    And never as its requester's, whoever's request it serves; what is not a delegate's task is its
    requester's.
    """
    state = told(("submit x",)).pure.state
    parent = (
        None
        if path is None
        else DelegateOf(
            session=SessionId("ops/up"),
            instance=InstanceId("l"),
            turn=T1,
            call=CallId("c"),
            path=path,
            tools=(),
            prompts_max=1,
        )
    )
    given = msgspec.structs.replace(
        state.queued[0], kind="delegate" if path is not None else "message"
    )
    assert _speaker(msgspec.structs.replace(state, parent=parent), given) == speaker
    assert _speaker(msgspec.structs.replace(state, parent=parent), state.queued[0]) == "alice"


def test_only_behind_the_same_boundary_a_turn_sees_whose_request_waits() -> None:
    parked = told(GATED).pure.state.turns[T1]
    assert isinstance(parked.context, TurnContext)
    elsewhere = msgspec.structs.replace(parked.context, boundary="team:dev")
    lost = LostContext("no audience", "audience")
    assert " of alice " in _one_line(parked, parked.context)
    assert " of " not in _one_line(parked, elsewhere).replace("of a person", "")
    assert " of alice" not in _one_line(parked, lost) + _one_line(
        msgspec.structs.replace(parked, context=lost), parked.context
    )
    assert " of alice" not in _one_line(msgspec.structs.replace(parked, context=lost), lost)


@pytest.mark.parametrize(
    ("loop", "reply", "said"),
    [("foreign", "done", [AssistantMessage("done")]), ("foreign", None, []), ("ours", "done", [])],
)
def test_a_foreign_loops_reply_joins_the_view_and_ours_is_there_already(
    loop: Any, reply: str | None, said: list[AssistantMessage]
) -> None:
    turn = msgspec.structs.replace(told(ASKED).pure.state.turns[T1], loop=loop)
    assert _closing_messages(turn, TurnEnded(turn=T1, outcome="completed", reply=reply)) == said


@pytest.mark.parametrize(
    ("steps", "tainted"),
    [(("answer a1 deny",), False), (("answer a1 approve_once", "start c1", "finish c1"), True)],
)
def test_only_what_ran_brings_something_from_elsewhere(steps: Sequence[str], tainted: bool) -> None:
    """M2: a call that was denied has returned nothing."""
    turn = told((*ASKED, 'calls "delete b=1"', "decide", *steps)).pure.state.turns[T1]
    assert (turn.calls[0].status, turn.tainted) == (CallStatus.FINISHED, tainted)


def test_a_summary_may_be_summarised_again() -> None:
    """It replaces one message then, and no call is cut from its results."""
    state = told(TWICE).pure.state
    once = after(state, summary(2)(state))
    assert len(list(after(once, summary(1)(once)).turns[T1].own)) == len(list(once.turns[T1].own))


@pytest.mark.parametrize(("outcome", "attempts"), [("ok", 1), ("in_doubt", 3)])
def test_a_finished_step_begins_the_count_of_attempts_anew_and_one_in_doubt_does_not(
    outcome: Any, attempts: int
) -> None:
    """
    T7: three attempts in a row that finish nothing are a crash loop, and saying that an outcome is
    unknown finishes nothing.
    """
    state = told((*FREE, "start c1")).pure.state
    turn = msgspec.structs.replace(state.turns[T1], attempts=3)
    state = after(msgspec.structs.replace(state, turns={T1: turn}), ends(outcome)(state))
    assert (state.turns[T1].attempts, state.turns[T1].tool_calls) == (attempts, 1)


def test_waiting_for_a_person_does_not_count_as_an_attempt() -> None:
    assert told(GATED).pure.state.turns[T1].attempts == 0
