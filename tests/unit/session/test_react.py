"""Work that is owed, work that is settled, and the prompts that a fold keeps."""

from msgspec.structs import replace
from proof.scenarios.teller import Teller

from holdfast import limits
from holdfast.ids import ApprovalId, TurnId
from holdfast.session.commands import MarkDelivery, MarkReported, QueueDelivery
from holdfast.session.effects import (
    AwaitTool,
    BeginTurn,
    Deliver,
    Finish,
    ReportJob,
    ReportToParent,
)
from holdfast.session.events import AnswerRefused, JobEnded
from holdfast.session.evolve.fold import evolve
from holdfast.session.react import react, unsettled


def told(*steps: str) -> Teller:
    teller = Teller()
    teller.tell(steps)
    return teller


def test_react_owes_nothing_while_records_are_carried() -> None:
    state = told("submit x").pure.state
    assert react(state) == (BeginTurn(),)
    assert react(replace(state, carrying=1)) == ()


def test_a_delegates_end_is_owed_to_its_parent_until_it_is_reported() -> None:
    pure = told("as-delegate task", "begin", "think").pure
    assert ReportToParent() not in react(pure.state)
    teller = told("as-delegate task", "begin", "think", "says done")
    assert react(teller.pure.state) == (ReportToParent(),)
    teller.pure.do(MarkReported(became="reported"))
    assert react(teller.pure.state) == ()


def test_a_delivery_is_owed_until_it_is_sent_and_unsettled_until_it_is_confirmed() -> None:
    pure = told("submit x", "go", "says bye").pure
    delivery = (
        pure.do(
            QueueDelivery(turn=TurnId("t1"), channel="slack", part="1", kind="reply", text="bye")
        )
        .decided[-1]
        .outcome
    )
    assert (react(pure.state), unsettled(pure.state)) == ((Deliver(delivery),), ())
    pure.do(MarkDelivery(delivery=delivery, became="sent"))
    assert (react(pure.state), [each.delivery for each in unsettled(pure.state)]) == (
        (),
        [delivery],
    )
    pure.do(MarkDelivery(delivery=delivery, became="confirmed"))
    assert (react(pure.state), unsettled(pure.state)) == ((), ())


DUG = (
    "submit x",
    "go",
    'calls "dig place=garden"',
    "go",
    "answer a1 approve_once",
    "go",
    'says "it is being dug"',
)


def test_a_job_that_ended_is_reported_as_soon_as_the_queue_has_room() -> None:
    """
    The end is durable and the message is not: it is owed, but no queue grows beyond its bound for
    it.
    """
    state = told(*DUG).pure.state
    (job,) = state.jobs.values()
    ended = replace(
        state,
        jobs={
            job.job: replace(
                job, ended=JobEnded(job=job.job, turn=job.turn, outcome="ok", text="dug")
            )
        },
    )
    (waiting,) = told("submit y").pure.state.queued
    for room, owed in ((1, (ReportJob(job.job), BeginTurn())), (0, (BeginTurn(),))):
        assert react(replace(ended, queued=(waiting,) * (limits.QUEUED_INPUTS_MAX - room))) == owed


def test_word_of_a_refused_answer_to_a_prompt_that_is_gone_changes_nothing() -> None:
    state = told("submit x", "go", "says bye").pure.state
    refused = AnswerRefused(
        approval=ApprovalId("a-gone"),
        turn=TurnId("t1"),
        by="bob",
        option="approve_once",
        code="wrong_approver",
    )
    assert evolve(state, refused, seq=state.seq, at=state.at) == state


def test_prompts_of_a_turn_are_counted_and_refusals_with_the_prompt_they_were_for() -> None:
    """P10: what the budget and the bound of audited refusals are compared with."""
    teller = told(
        "submit x",
        "go",
        'calls "delete b=1" "delete b=2"',
        "decide",
        "answer a1 approve_once by=bob",
    )
    turn = teller.pure.state.turns[TurnId("t1")]
    assert (turn.prompts, turn.attempts) == (2, 1)
    assert [call.approval.refusals for call in turn.calls if call.approval is not None] == [1, 0]


def test_the_prompts_of_a_batch_are_settled_when_the_next_one_takes_its_place() -> None:
    """P2: an answer given again is told what came of it, and not that there is no such prompt."""
    teller = told("submit x", "go", 'calls "delete b=1"', "go")
    (first,) = teller.pure.state.approvals
    teller.tell(["answer a1 approve_once", "go", 'calls "delete b=2"', "go"])
    state = teller.pure.state
    assert first not in state.approvals
    assert len(state.approvals) == 1
    settled = state.settled.get(first)
    assert settled is not None
    assert settled.option == "approve_once"


def test_a_cancelled_turn_waits_for_what_this_attempt_started_and_for_nothing_of_a_dead_one() -> (
    None
):
    """T7: it would wait for ever."""
    state = told("submit x", "go", 'calls "tidy b=1"', "decide", "start c1", "cancel").pure.state
    turn = state.turns[TurnId("t1")]
    (call,) = turn.calls
    assert react(state) == (AwaitTool(turn.id, call.call, call.epoch),)
    later = replace(turn, epoch=turn.epoch + 1)
    assert react(replace(state, turns={turn.id: later})) == (Finish(turn.id),)
