"""A started call whose server wants a form, or goes on by itself: its guards, without a server."""

import msgspec
import pytest
from proof.scenarios.pure_session import PureSession
from proof.scenarios.teller import Teller

from holdfast.ids import CallId, TurnId
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import AskForInput, Cancel, ContinueAsJob, FinishCall, JobPlan
from holdfast.session.events import (
    ApprovalRequested,
    CallFinished,
    CallOutcome,
    JobSubmitted,
    ToolStarted,
)
from holdfast.session.evolve.fold import evolve
from holdfast.session.features.forms.form import (
    AnswerMisfit,
    FormField,
    FormRequest,
    ServerForm,
    values_of,
)
from holdfast.session.snapshots.session import decode_state, encode_state
from holdfast.session.state import Call, CallStatus, Phase
from holdfast.session.transitions import IllegalTransition

T1 = TurnId("t1")
FORM = ServerForm(requests=(FormRequest(key="q", fields=(FormField(name="name"),)),), state="s")


def started() -> tuple[PureSession, Call]:
    teller = Teller()
    teller.tell(["submit x", "go", 'calls "look b=1"', "decide"])
    pure = teller.pure
    (call,) = pure.state.turns[T1].calls
    assert pure.start(T1, call.call) == 1
    return pure, call


def ask(pure: PureSession, call: CallId, run: int = 1) -> None:
    (bound,) = pure.bound(T1, call)
    command = AskForInput(
        turn=T1, call=call, run=run, bound=bound, form=FORM, display="name?", policy=Policy()
    )
    pure.do(command)


def the_call(pure: PureSession) -> Call:
    (call,) = pure.state.turns[T1].calls
    return call


def test_a_form_waits_goes_on_and_keeps_what_allowed_the_call() -> None:
    pure, call = started()
    ask(pure, call.call)
    waiting = the_call(pure)
    assert (waiting.status, waiting.run) == (CallStatus.WAITING, 1)
    assert waiting.allowed_by == "policy"  # a form is not consent
    assert waiting.approval is not None
    assert decode_state(encode_state(pure.state)) == pure.state
    pure.answer(waiting.approval.asked.approval, "answer", "alice", reason="Ada")
    assert the_call(pure).status is CallStatus.APPROVED
    assert pure.start(T1, call.call) == 2
    assert [each.allowed_by for each in pure.events() if isinstance(each, ToolStarted)] == [
        "policy",
        "policy",
    ]


def test_a_form_of_another_run_or_of_a_finished_call_is_dropped() -> None:
    pure, call = started()
    ask(pure, call.call, run=2)
    assert the_call(pure).status is CallStatus.STARTED
    pure.do(FinishCall(turn=T1, call=call.call, run=1, outcome="in_doubt", text="?"))
    ask(pure, call.call)
    assert not any(isinstance(each, ApprovalRequested) for each in pure.events())


def test_only_a_started_call_can_have_a_form() -> None:
    pure, call = started()
    ask(pure, call.call)
    asked = next(each for each in pure.events() if isinstance(each, ApprovalRequested))
    again = Teller()
    again.tell(["submit x", "go", 'calls "look b=1"', "decide"])
    state = again.pure.state
    with pytest.raises(IllegalTransition):
        evolve(state, asked, seq=state.seq + 1, at=state.at)
    plain = msgspec.structs.replace(asked, form=None)
    running, _ = started()
    with pytest.raises(IllegalTransition):  # and a started call has no other prompt
        evolve(running.state, plain, seq=running.state.seq + 1, at=running.state.at)


@pytest.mark.parametrize(
    "outcome", ["ok", "timed_out", "in_doubt", "cancelled", "superseded", "denied", "voided"]
)
def test_a_call_that_waits_for_a_form_can_only_end_as_not_finished(outcome: CallOutcome) -> None:
    """T6: it started, so that it was not cancelled; it does not run, so that it has no result."""
    pure, call = started()
    ask(pure, call.call)
    ended = CallFinished(turn=T1, call=call.call, outcome=outcome, text="x")
    with pytest.raises(IllegalTransition):
        evolve(pure.state, ended, seq=pure.state.seq + 1, at=pure.state.at)


def test_a_crash_after_the_answer_was_denied_still_gives_the_call_its_result() -> None:
    pure, call = started()
    ask(pure, call.call)
    approval = the_call(pure).approval
    assert approval is not None
    before = len(pure.events())
    pure.answer(approval.asked.approval, "deny", "alice")
    pure.crash(keep=before + 1)  # the answer is durable, its result is not
    assert the_call(pure).owes_result
    assert pure.state.turns[T1].phase is Phase.RUNNING


@pytest.mark.parametrize("said", ["1", "true", '"x"', "{", "nan", "1.5"])
def test_a_list_of_choices_takes_nothing_else(said: str) -> None:
    field = FormField(name="days", kind="choices", choices=("mon",))
    form = ServerForm(requests=(FormRequest(key="q", fields=(field,)),))
    with pytest.raises(AnswerMisfit):
        values_of(form, said)
    assert values_of(form, '["mon"]') == {"q": {"days": ["mon"]}}


def test_two_requests_are_answered_by_their_keys() -> None:
    name = FormField(name="name", is_required=True)
    form = ServerForm(
        requests=(
            FormRequest(key="a", fields=(name,)),
            FormRequest(key="b", fields=(name,)),
            FormRequest(key="c", is_link=True),
        )
    )
    found = values_of(form, '{"a.name": "x", "b.name": "y"}')
    assert found == {"a": {"name": "x"}, "b": {"name": "y"}, "c": None}
    with pytest.raises(AnswerMisfit):
        values_of(form, '{"a.name": "x"}')


PLAN = JobPlan(host="server", process={"task": "x"}, seconds_max=1.0, bytes_max=1)


def test_a_started_call_goes_on_as_one_job_and_never_as_two() -> None:
    pure, call = started()
    command = ContinueAsJob(turn=T1, call=call.call, run=1, plan=PLAN)
    pure.do(command)
    (job,) = pure.state.jobs.values()
    assert (job.host, job.process, the_call(pure).outcome) == ("server", {"task": "x"}, "ok")
    pure.do(command)
    assert len([each for each in pure.events() if isinstance(each, JobSubmitted)]) == 1


def test_a_call_that_was_cancelled_meanwhile_is_in_doubt_and_not_a_job() -> None:
    """T6: its server goes on with it, and nobody follows."""
    pure, call = started()
    pure.do(Cancel(by="alice", may_all=True))
    pure.do(ContinueAsJob(turn=T1, call=call.call, run=1, plan=PLAN))
    assert not pure.state.jobs
    ended = [each for each in pure.events() if isinstance(each, CallFinished)]
    assert [each.outcome for each in ended] == ["in_doubt"]
