"""A question that a server asks inside of an open call: its guards, without a server."""

import msgspec
import pytest
from proof.scenarios.pure_session import PureSession
from proof.scenarios.teller import Teller

from holdfast.ids import CallId, TurnId
from holdfast.limits import MCP_OPEN_QUESTION_SECONDS
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import (
    AskForInput,
    Cancel,
    Expire,
    FinishCall,
    Recover,
    VoidPrompts,
)
from holdfast.session.effects import AwaitTool
from holdfast.session.events import (
    ApprovalClosed,
    CallFinished,
    ToolStarted,
)
from holdfast.session.evolve.fold import evolve
from holdfast.session.features.forms.form import FormField, FormRequest, ServerForm, values_of
from holdfast.session.react import react
from holdfast.session.snapshots.session import decode_state, encode_state
from holdfast.session.state import Approval, Call, CallStatus, Phase
from holdfast.session.transitions import IllegalTransition

T1 = TurnId("t1")
FIELDS = (FormField(name="name", default="Ada"),)
FORM = ServerForm(requests=(FormRequest(key="q", fields=FIELDS),), is_inside=True)


def asked() -> tuple[PureSession, Approval]:
    teller = Teller()
    teller.tell(["submit x", "go", 'calls "look b=1"', "decide"])
    pure = teller.pure
    (call,) = pure.state.turns[T1].calls
    assert pure.start(T1, call.call) == 1
    assert ask(pure, call.call) is None
    return pure, the_question(pure)


def ask(pure: PureSession, call: CallId, seconds_max: int | None = None) -> str | None:
    (bound,) = pure.bound(T1, call)
    command = AskForInput(
        turn=T1,
        call=call,
        run=1,
        bound=bound,
        form=FORM,
        display="name?",
        policy=Policy(),
        seconds_max=seconds_max,
    )
    return pure.do(command).of(command)


def the_call(pure: PureSession) -> Call:
    (call,) = pure.state.turns[T1].calls
    return call


def the_question(pure: PureSession) -> Approval:
    approval = the_call(pure).approval
    assert approval is not None
    return approval


def test_the_call_stays_open_while_its_question_stands() -> None:
    pure, question = asked()
    turn = pure.state.turns[T1]
    call = the_call(pure)
    assert (turn.phase, call.status, call.is_asking) == (Phase.RUNNING, CallStatus.STARTED, True)
    assert turn.open_approvals == (question,)
    assert react(pure.state) == (AwaitTool(T1, call.call, call.epoch),)  # it does not park
    assert call.allowed_by == "policy"  # a form is not consent
    assert call.contract == "once"
    assert decode_state(encode_state(pure.state)) == pure.state


@pytest.mark.parametrize("option", ["answer", "deny"])
def test_an_answer_moves_the_question_alone(option: str) -> None:
    """The result of the call is its server's own."""
    pure, question = asked()
    pure.answer(question.asked.approval, option, "alice", reason="Ada")
    call = the_call(pure)
    assert (call.status, call.is_asking, call.run) == (CallStatus.STARTED, False, 1)
    assert pure.state.turns[T1].open_approvals == ()
    assert not any(isinstance(each, CallFinished) for each in pure.events())
    assert ask(pure, call.call) is None  # and it may ask again
    assert the_question(pure).asked.approval != question.asked.approval


def test_it_asks_one_question_at_a_time() -> None:
    pure, question = asked()
    assert ask(pure, question.asked.call) == "another question is open"
    assert the_question(pure) == question


@pytest.mark.parametrize("seconds", [MCP_OPEN_QUESTION_SECONDS, 0])
def test_it_stands_no_longer_than_its_call_may_wait(seconds: int) -> None:
    pure, first = asked()
    pure.answer(first.asked.approval, "deny", "alice")
    assert ask(pure, first.asked.call, seconds) is None
    second = the_question(pure)
    assert second.asked.expires_at - second.requested_at == seconds * 1000


def closings(pure: PureSession) -> list[tuple[str, str]]:
    """How the question and the call ended, in order."""
    return [
        ("question", each.closed_as) if isinstance(each, ApprovalClosed) else ("call", each.outcome)
        for each in pure.events()
        if isinstance(each, ApprovalClosed | CallFinished)
    ]


def test_a_crash_leaves_the_call_in_doubt_and_closes_the_question() -> None:
    pure, _ = asked()
    call = the_call(pure)
    pure.do(Recover(epoch=call.epoch + 1))
    assert closings(pure) == [("question", "cancelled"), ("call", "in_doubt")]


def test_a_call_that_was_answered_is_not_run_again_after_a_crash() -> None:
    """The answer was for that one run, also if its server calls it idempotent."""
    pure, question = asked()
    pure.answer(question.asked.approval, "answer", "alice", reason="Ada")
    pure.do(Recover(epoch=the_call(pure).epoch + 1))
    assert closings(pure) == [("call", "in_doubt")]


def test_the_end_of_the_call_closes_the_question() -> None:
    pure, question = asked()
    pure.do(FinishCall(turn=T1, call=question.asked.call, run=1, outcome="ok", text="done"))
    assert closings(pure) == [("question", "cancelled"), ("call", "ok")]
    late = pure.answer(question.asked.approval, "answer", "alice", reason="Ada").refusal
    assert late is not None
    assert late.code == "cancelled"


def test_expiry_and_withdrawal_close_the_question_and_not_the_call() -> None:
    pure, question = asked()
    pure.do(VoidPrompts(tools=frozenset({question.asked.tool}), reason="it was withdrawn"))
    assert ask(pure, question.asked.call) is None
    pure.now = the_question(pure).asked.expires_at
    pure.do(Expire())
    assert closings(pure) == [("question", "voided"), ("question", "expired")]
    assert the_call(pure).status is CallStatus.STARTED


def test_a_cancel_closes_the_question_and_waits_for_the_call() -> None:
    pure, question = asked()
    pure.do(Cancel(by="alice", may_all=True))
    assert closings(pure) == [("question", "cancelled")]
    assert pure.state.turns[T1].phase is Phase.CANCELLING
    assert ask(pure, question.asked.call) == "it was cancelled"


def test_a_forged_end_start_or_closing_is_illegal() -> None:
    """A call that ends over its open question, starts again, or closes a question twice."""
    pure, question = asked()
    call = the_call(pure)
    start = next(each for each in pure.events() if isinstance(each, ToolStarted))
    ended = CallFinished(turn=T1, call=call.call, outcome="ok", text="x")
    again = msgspec.structs.replace(start, run=2, epoch=call.epoch + 1)
    for event in (ended, again):
        with pytest.raises(IllegalTransition):
            evolve(pure.state, event, seq=pure.state.seq + 1, at=pure.state.at)
    pure.answer(question.asked.approval, "answer", "alice", reason="Ada")
    closed = ApprovalClosed(
        approval=question.asked.approval,
        turn=T1,
        call=call.call,
        closed_as="expired",
        reason="x",
    )
    with pytest.raises(IllegalTransition):
        evolve(pure.state, closed, seq=pure.state.seq + 1, at=pure.state.at)


def test_a_field_that_is_left_out_has_its_default() -> None:
    two = (*FIELDS, FormField(name="age", kind="integer"))
    form = ServerForm(requests=(FormRequest(key="q", fields=two),))
    assert values_of(form, "{}") == {"q": {"name": "Ada"}}
    assert values_of(form, '{"name": "Eve"}') == {"q": {"name": "Eve"}}
