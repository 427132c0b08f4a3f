"""
Single guards of the session's decisions, each on a state that only that guard still stands against.
"""

import msgspec
import pytest
from proof.scenarios.pure_session import INSTANCE, PureSession
from proof.scenarios.teller import Teller

from holdfast.ids import CallId, InputId, SessionId, TurnId
from holdfast.session.authority.context import (
    LostContext,
    MessageSource,
    Principal,
    TurnContext,
    context_from_source,
    same_authority,
)
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import AnswerApproval, DecideCalls, FailTurn, StartTool
from holdfast.session.decide.answers import answer_approval
from holdfast.session.decide.calls import decide_calls
from holdfast.session.decide.starts import start_tool
from holdfast.session.decide.turns import fail_turn
from holdfast.session.events import (
    ApprovalClosed,
    CallFinished,
    ClosedAs,
    SessionEvent,
    ToolStarted,
)
from holdfast.session.evolve.fold import evolve
from holdfast.session.features.memory.items import asked_tainted
from holdfast.session.recovery import findings_of
from holdfast.session.state import SessionState
from holdfast.session.view.messages import Quote

T1 = TurnId("t1")
LOST = LostContext("the turn's context lacks its requester", "requester")


def told(*steps: str) -> PureSession:
    teller = Teller()
    teller.tell(["submit x", "go", *steps])
    return teller.pure


def without_context(state: SessionState) -> SessionState:
    return msgspec.structs.replace(
        state, turns={T1: msgspec.structs.replace(state.turns[T1], context=LOST)}
    )


@pytest.mark.parametrize("tool", ["look b=1", "delete b=1"])
def test_a_call_of_a_turn_without_authority_is_denied_when_it_is_decided(tool: str) -> None:
    """A2: whatever policy says of the tool."""
    pure = told(f'calls "{tool}"')
    (call,) = pure.state.turns[T1].calls
    command = DecideCalls(turn=T1, bound=pure.bound(T1, call.call), policy=Policy())
    (event,) = decide_calls(without_context(pure.state), command, pure.now).events
    assert isinstance(event, CallFinished)
    assert (event.outcome, event.code) == ("denied", "no_authority")


def test_a_call_of_a_turn_without_authority_does_not_start() -> None:
    """A2: also where it was allowed while the context could still be read."""
    pure = told('calls "look b=1"', "decide")
    (call,) = pure.state.turns[T1].calls
    (bound,) = pure.bound(T1, call.call)
    command = StartTool(turn=T1, bound=bound, policy=Policy(), grants=(), epoch=1)
    assert any(
        isinstance(event, ToolStarted) for event in start_tool(pure.state, command, pure.now).events
    )
    events = start_tool(without_context(pure.state), command, pure.now).events
    assert [(event.outcome, event.code) for event in events if isinstance(event, CallFinished)] == [
        ("voided", "no_authority")
    ]
    assert not any(isinstance(event, ToolStarted) for event in events)


@pytest.mark.parametrize("scope", ["session", "everywhere"])
def test_an_answer_that_would_be_remembered_is_not_taken_before_its_grant_is_kept(
    scope: str,
) -> None:
    """P11: the session itself insists on the grant, whoever forgot to keep it first."""
    pure = told('calls "delete b=1"', "go")
    command = AnswerApproval(
        approval=next(iter(pure.state.approvals)),
        option=f"approve_{scope}",
        by="alice",
        answer_id="x",
        grant=None,
    )
    decided = answer_approval(pure.state, command, pure.now)
    assert decided.events == ()
    assert decided.refusal is not None
    assert decided.refusal.code in ("not_saved", "option_unavailable")


@pytest.mark.parametrize("closed_as", ["expired", "superseded", "cancelled", "voided"])
def test_a_prompt_that_was_closed_without_an_answer_takes_none(closed_as: ClosedAs) -> None:
    """
    P2: the record of the closing decides, before the clock or the turn says anything. The rest of
    its commit is cut off: the call has no result yet.
    """
    pure = told('calls "delete b=1"', "go")
    ((approval, where),) = pure.state.approvals.items()
    closed = ApprovalClosed(
        approval=approval, turn=where[0], call=where[1], closed_as=closed_as, reason="over"
    )
    command = AnswerApproval(approval=approval, option="approve_once", by="alice", answer_id="x")
    assert answer_approval(pure.state, command, pure.now).refusal is None
    state = evolve(pure.state, closed, seq=len(pure.records) + 1, at=pure.now)
    decided = answer_approval(state, command, pure.now)
    assert decided.events == ()
    assert decided.refusal is not None
    assert decided.refusal.code == closed_as


def test_an_approved_call_of_a_replaced_request_does_not_start() -> None:
    """T6: the later message is durable, and the driver had not parked the turn yet."""
    pure = told('calls "delete b=1"', "go")
    pure.answer(next(iter(pure.state.approvals)), "approve_once", "alice")
    (call,) = pure.state.turns[T1].calls
    (bound,) = pure.bound(T1, call.call)
    command = StartTool(turn=T1, bound=bound, policy=Policy(), grants=(), epoch=1)

    def events(superseded_by: InputId | None) -> tuple[SessionEvent, ...]:
        turn = msgspec.structs.replace(
            pure.state.turns[T1], parked=False, superseded_by=superseded_by
        )
        state = msgspec.structs.replace(pure.state, turns={T1: turn})
        return start_tool(state, command, pure.now).events

    assert any(isinstance(event, ToolStarted) for event in events(None))
    assert events(InputId("i2")) == ()


@pytest.mark.parametrize("person", [None, "", "  "])
@pytest.mark.parametrize("principal", ["verified_automation", "system"])
def test_a_turn_of_nobody_asks_nobody(principal: str, person: str | None) -> None:
    """A1: an automation that says that somebody can be asked, and does not say who."""
    source = msgspec.structs.replace(
        MessageSource.automation("alice", channel="webhook"),
        person=person,
        principal=Principal(principal),
        can_prompt=True,
    )
    context = context_from_source(
        source, session=SessionId("ops/api"), instance=INSTANCE, turn=T1, workspace=None
    )
    assert (context.interactive, context.requester) == (False, None)
    assert context.principal is source.principal


def test_a_call_that_waits_for_an_answer_does_not_start() -> None:
    """P11, T1: nobody has answered, and a driver that asks for it all the same starts nothing."""
    pure = told('calls "delete b=1"', "go")
    call = pure.state.turns[T1].calls[0].call
    (bound,) = pure.bound(T1, CallId(call))
    command = StartTool(turn=T1, bound=bound, policy=Policy(), grants=(), epoch=1)
    unparked = msgspec.structs.replace(
        pure.state, turns={T1: msgspec.structs.replace(pure.state.turns[T1], parked=False)}
    )
    assert start_tool(unparked, command, pure.now).events == ()


def test_an_approved_call_does_not_start_while_a_sibling_waits() -> None:
    """T1: a batch is answered before any approved part of it runs."""
    pure = told('calls "delete b=1" "delete b=2"', "go")
    first, second = pure.state.approvals
    pure.answer(first, "approve_once", "alice")
    approved = next(
        each
        for each in pure.state.turns[T1].calls
        if each.approval is not None and each.approval.asked.approval == first
    )
    (bound,) = pure.bound(T1, approved.call)
    command = StartTool(turn=T1, bound=bound, policy=Policy(), grants=(), epoch=1)
    unparked = msgspec.structs.replace(
        pure.state, turns={T1: msgspec.structs.replace(pure.state.turns[T1], parked=False)}
    )
    assert start_tool(unparked, command, pure.now).events == ()
    pure.answer(second, "deny", "alice")
    unparked = msgspec.structs.replace(
        pure.state, turns={T1: msgspec.structs.replace(pure.state.turns[T1], parked=False)}
    )
    assert any(
        isinstance(event, ToolStarted) for event in start_tool(unparked, command, pure.now).events
    )


def test_a_finished_call_is_neither_in_flight_nor_started_again() -> None:
    """T3: a crash after one of two siblings finished."""
    pure = told('calls "look b=1" "look b=2"', "decide", "start c1", "start c2", "finish c1")
    turn = pure.state.turns[T1]
    done, out = turn.calls
    (bound,) = pure.bound(T1, out.call)
    again = StartTool(
        turn=T1,
        bound=msgspec.structs.replace(bound, call=done.call),
        policy=Policy(),
        grants=(),
        epoch=9,
    )
    assert start_tool(pure.state, again, pure.now).events == ()
    over = msgspec.structs.replace(turn, calls=(done,))
    assert (findings_of(turn, 9).again_started, findings_of(over, 9).again_started) == (True, False)


def test_messages_of_two_people_never_become_one_turn() -> None:
    """A7: equal in everything but who asked."""

    def said(person: str, turn: str) -> TurnContext:
        source = MessageSource.team(person, "ops")
        return context_from_source(
            source,
            session=SessionId("ops/api"),
            instance=INSTANCE,
            turn=TurnId(turn),
            workspace=None,
        )

    assert same_authority(said("alice", "t1"), said("alice", "t2"))
    assert not same_authority(said("alice", "t1"), said("bob", "t2"))


def test_a_request_that_quotes_somebody_else_begins_tainted() -> None:
    """M2: also where the person's own message is verified and clean."""

    def asked(*quotes: Quote) -> TurnContext:
        source = MessageSource.local("alice", quotes=quotes)
        return context_from_source(
            source, session=SessionId("ops/api"), instance=INSTANCE, turn=T1, workspace=None
        )

    assert not asked_tainted(asked(), ["alice"])
    assert not asked_tainted(asked(Quote("alice", "as I said")), ["alice"])
    assert asked_tainted(asked(Quote("bob", "do it")), ["alice"])


def test_a_turn_that_fails_leaves_no_call_without_its_result() -> None:
    """T5: what started is in doubt, what did not is cancelled, and each has one result."""
    pure = told(
        'calls "look b=1" "look b=2" "delete b=3"', "decide", "start c1", "start c2", "finish c1"
    )
    decided = fail_turn(pure.state, FailTurn(turn=T1, code="bug", message="it broke")).events
    results = {event.call: event.outcome for event in decided if isinstance(event, CallFinished)}
    finished, started, waiting = (each.call for each in pure.state.turns[T1].calls)
    assert results == {started: "in_doubt", waiting: "cancelled"}
    assert finished not in results
