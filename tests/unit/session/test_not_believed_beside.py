"""
T4, for what goes on beside turns (jobs, reminders, delegates, creations, imports, summaries): whoever
has the key may write anything; only what fits is believed.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from proof.scenarios.pure_session import INSTANCE, SESSION, PureSession
from proof.scenarios.teller import Teller
from tests.unit.session.test_jobs import digging, only_job
from tests.unit.session.test_reminders import MINUTE, R1, set_event, with_reminder

from holdfast.errors import BrokenChain
from holdfast.ids import CallId, InstanceId, JobId, SessionId, TurnId
from holdfast.session.authority.context import TurnContext
from holdfast.session.commands import EndJob
from holdfast.session.events import (
    CallFinished,
    Compacted,
    DelegateEnded,
    DelegateReported,
    InputAccepted,
    JobCancelled,
    JobEnded,
    JobSubmitted,
    ModelAnswered,
    ModelCallFailed,
    ModelCallStarted,
    ReminderCancelled,
    ReminderFired,
    SessionBorn,
    SessionEvent,
    TurnCancelled,
    TurnImported,
    TurnResumed,
)
from holdfast.session.evolve.turn import turn_cancelled, turn_resumed
from holdfast.session.features.reminders.schedule import Every
from holdfast.session.state import CallStatus
from holdfast.session.view.messages import AssistantMessage, ResultMessage, UserMessage

T1 = TurnId("t1")
Make = Callable[[PureSession], list[SessionEvent]]


def told(*steps: str) -> PureSession:
    teller = Teller()
    teller.tell(steps)
    return teller.pure


def submitted(pure: PureSession) -> JobSubmitted:
    return next(event for event in pure.events() if isinstance(event, JobSubmitted))


def ended(job: str | None = None, turn: str = "t1") -> Make:
    return lambda pure: [
        JobEnded(job=JobId(job or only_job(pure).job), turn=TurnId(turn), outcome="ok", text="dug")
    ]


def cancelled(job: str | None = None) -> Make:
    return lambda pure: [JobCancelled(job=JobId(job or only_job(pure).job), turn=T1, by="alice")]


def over(pure: PureSession) -> PureSession:
    """The job has ended, and could not be reported: it is still on the list."""
    pure.append(ended()(pure))
    return pure


def again_as(**changed: Any) -> Make:
    return lambda pure: [msgspec.structs.replace(submitted(pure), **changed)]


def fired(next_at: int | None, reminder: str = R1) -> Make:
    def make(pure: PureSession) -> list[SessionEvent]:
        due = set_event(pure).next_at
        return [
            ReminderFired(
                reminder=reminder,
                turn=T1,
                scheduled_at=due,
                fired_at=due,
                next_at=None if next_at is None else due + next_at,
            )
        ]

    return make


def replaces(*turns: str) -> Make:
    def make(pure: PureSession) -> list[SessionEvent]:
        (first,) = (event for event in pure.events() if isinstance(event, InputAccepted))
        return [
            msgspec.structs.replace(
                first,
                input="i2",
                turn=TurnId("t2"),
                dedup=None,
                supersedes=tuple(map(TurnId, turns)),
            )
        ]

    return make


def always(event: SessionEvent) -> Make:
    return lambda _: [event]


def imported(*messages: Any) -> Make:
    return always(TurnImported(turn=TurnId("old"), messages=messages, source="x"))


def summarised(turns: int) -> Make:
    return always(
        Compacted(summary="s", turns=turns, tokens_before=9, tokens_after=1, trigger="bound")
    )


HI = UserMessage("hi", "alice", ())
PARKED = ("submit x", "go", 'calls "delete b=1"', "go")


UNFIT: dict[str, tuple[Callable[[], PureSession], Make]] = {
    "a job submitted twice": (digging, again_as()),
    "a second job of one call": (digging, again_as(job=JobId("j-second"))),
    "a job of no call": (digging, again_as(job=JobId("j-second"), call=CallId("c-none"))),
    "a job that is none, cancelled": (digging, cancelled("j-none")),
    "a job that is over, cancelled": (lambda: over(digging()), cancelled()),
    "a job cancelled twice": (digging, lambda pure: [*cancelled()(pure), *cancelled()(pure)]),
    "a job that is none, ended": (digging, ended("j-none")),
    "a job ended in another turn": (digging, ended(turn="t9")),
    "a job ended twice": (lambda: over(digging()), ended()),
    "a reminder set twice": (with_reminder, lambda pure: [set_event(pure)]),
    "a reminder that is none, fired": (with_reminder, fired(None, "r-none")),
    "a reminder due again at once": (with_reminder, fired(0)),
    "a reminder due again before": (with_reminder, fired(-MINUTE)),
    "a reminder that is none, cancelled": (
        with_reminder,
        always(ReminderCancelled(reminder="r-none", by="alice")),
    ),
    "a report to nobody": (
        lambda: told("submit x"),
        always(DelegateReported(turn=T1, became="reported")),
    ),
    "a second creation": (
        lambda: told("submit x"),
        always(SessionBorn(session=SESSION, instance=INSTANCE, origin="created", by="alice")),
    ),
    "a summary of more than there is": (
        lambda: told("submit x", "go", "says hi"),
        summarised(2),
    ),
    "an import after a message": (lambda: told("submit x"), imported(HI)),
    "an import of a result": (
        PureSession,
        imported(ResultMessage(CallId("c"), "look", "ok", "x", None)),
    ),
    "a message in the place of no turn": (lambda: told(*PARKED), replaces("t9")),
    "a message in the place of a turn that runs": (lambda: told("submit x", "go"), replaces("t1")),
}


@pytest.mark.parametrize(("begin", "make"), UNFIT.values(), ids=UNFIT.keys())
def test_replay_refuses_an_event_that_does_not_fit_the_state(
    begin: Callable[[], PureSession], make: Make
) -> None:
    pure = begin()
    events = make(pure)
    with pytest.raises(BrokenChain):
        pure.append(events)


FIT: dict[str, tuple[Callable[[], PureSession], Make]] = {
    "a job cancelled": (digging, cancelled()),
    "a job ended": (digging, ended()),
    "a job cancelled and ended": (digging, lambda pure: [*cancelled()(pure), *ended()(pure)]),
    "a reminder fired": (with_reminder, fired(MINUTE)),
    "a reminder fired for the last time": (with_reminder, fired(None)),
    "a reminder cancelled": (with_reminder, always(ReminderCancelled(reminder=R1, by="alice"))),
    "a summary of what there is": (
        lambda: told("submit x", "go", "says hi"),
        summarised(1),
    ),
    "an import before anything else": (PureSession, imported(HI, AssistantMessage("hello"))),
    "a message in the place of a turn that waits": (lambda: told(*PARKED), replaces("t1")),
}


@pytest.mark.parametrize(("begin", "make"), FIT.values(), ids=FIT.keys())
def test_replay_accepts_an_event_that_fits_the_state(
    begin: Callable[[], PureSession], make: Make
) -> None:
    pure = begin()
    before, events = pure.state, make(pure)
    pure.append(events)
    assert pure.state != before


@pytest.mark.parametrize(("session", "instance"), [("ops/other", INSTANCE), (SESSION, "life-9")])
def test_replay_refuses_the_beginning_of_another_instance(session: str, instance: str) -> None:
    pure = PureSession()
    pure.records, pure.state = [], msgspec.structs.replace(pure.state, exists=False)
    with pytest.raises(BrokenChain):
        pure.append(
            [
                SessionBorn(
                    session=SessionId(session),
                    instance=InstanceId(instance),
                    origin="created",
                    by="alice",
                )
            ]
        )


def test_failures_are_counted_until_the_model_has_answered() -> None:
    """In a row: one answer in between, and the next overflow is the first again."""
    pure = told("submit x", "go")
    pure.append([ModelCallFailed(turn=T1, number=1, kind="overflow", message="", final=False)])
    assert (
        pure.state.turns[T1].model_failures,
        pure.state.turns[T1].overflows,
        pure.state.turns[T1].attempts,
    ) == (1, 1, 1)
    pure.append(
        [
            ModelCallStarted(turn=T1, number=2, epoch=1, model="demo"),
            ModelCallFailed(turn=T1, number=2, kind="server", message="", final=False),
        ]
    )
    assert (
        pure.state.turns[T1].model_failures,
        pure.state.turns[T1].overflows,
        pure.state.turns[T1].attempts,
    ) == (2, 1, 1)
    pure.append(
        [
            ModelCallStarted(turn=T1, number=3, epoch=1, model="demo"),
            ModelAnswered(turn=T1, number=3, text="hm"),
        ]
    )
    assert (
        pure.state.turns[T1].model_failures,
        pure.state.turns[T1].overflows,
        pure.state.turns[T1].attempts,
    ) == (0, 0, 1)


def test_the_list_of_jobs_says_when_each_began_and_ended() -> None:
    pure = digging()
    job = only_job(pure)
    pure.do(EndJob(job=job.job, outcome="ok", text="dug"))
    known = pure.state.ended_jobs.get(job.job)
    assert known is not None
    assert (known.turn, known.tool, known.outcome, known.submitted_seq, known.audience) == (
        "t1",
        "dig",
        "ok",
        job.submitted_seq,
        job.context.audience,
    )
    assert job.submitted_seq < known.ended_seq <= pure.state.seq
    assert pure.state.jobs == {}


def test_a_turn_that_goes_on_counts_its_attempts_and_one_that_is_cancelled_waits_for_nobody() -> (
    None
):
    pure = told(*PARKED)
    waiting = pure.state.turns[T1]
    stopped = turn_cancelled(waiting, TurnCancelled(turn=T1, by="alice"))
    assert (waiting.parked, stopped.parked, stopped.cancelled_by) == (True, False, "alice")
    driven = told("submit x", "begin").state.turns[T1]
    again = turn_resumed(driven, TurnResumed(turn=T1, epoch=driven.epoch + 1, after="crash"))
    assert again.attempts == driven.attempts + 1


def test_delegates_are_counted_as_they_start() -> None:
    pure = told(
        "submit x",
        "go",
        'calls "delegate_helper task=it" "delegate_helper task=that"',
        "decide",
        "start c1",
    )
    turn = pure.state.turns[T1]
    assert (turn.delegations, turn.calls[0].run) == (1, 1)


def test_a_job_is_known_by_its_id_also_when_its_call_has_forgotten_it() -> None:
    """A second wall: a call has one job, and a job's id is made from its call."""
    for pure, jobs in ((digging(), None), (over(digging()), {})):
        turn = pure.state.turns[T1]
        calls = tuple(
            msgspec.structs.replace(call, job=None, status=CallStatus.STARTED)
            for call in turn.calls
        )
        turns = {T1: msgspec.structs.replace(turn, calls=calls)}
        pure.state = msgspec.structs.replace(
            pure.state, turns=turns, jobs=pure.state.jobs if jobs is None else jobs
        )
        with pytest.raises(BrokenChain, match="submitted before"):
            pure.append([submitted(pure)])


def test_a_reminder_counts_how_often_it_has_fired_and_may_come_each_second() -> None:
    pure = with_reminder(schedule=Every(1, 0))
    for times in (1, 2):
        due = pure.state.reminders[R1].next_at
        pure.append(
            [
                ReminderFired(
                    reminder=R1, turn=T1, scheduled_at=due, fired_at=due, next_at=due + 1000
                )
            ]
        )
        assert (pure.state.reminders[R1].fired, pure.state.reminders[R1].fired_at) == (times, due)
    assert isinstance(pure.state.reminders[R1].context, TurnContext)


def test_a_delegate_that_has_ended_exists() -> None:
    pure = told("submit x", "go", 'calls "delegate_helper task=it"', "decide", "start c1")
    call = pure.state.turns[T1].calls[0].call
    pure.append(
        [
            CallFinished(turn=T1, call=call, outcome="ok", text="done"),
            DelegateEnded(turn=T1, call=call, outcome="completed", prompts=2),
        ]
    )
    known = pure.state.delegates_ended.get(call)
    assert known is not None
    assert (known.exists, known.ended, known.prompts, pure.state.delegates) == (
        True,
        "completed",
        2,
        {},
    )


@pytest.mark.parametrize(
    "changed",
    [{"status": CallStatus.STARTED}, {"status": CallStatus.ALLOWED, "job": None}],
    ids=["has one", "has not started"],
)
def test_only_a_call_that_has_just_started_becomes_a_job(changed: dict[str, Any]) -> None:
    pure = digging()
    turn = pure.state.turns[T1]
    calls = tuple(msgspec.structs.replace(call, **changed) for call in turn.calls)
    pure.state = msgspec.structs.replace(
        pure.state, turns={T1: msgspec.structs.replace(turn, calls=calls)}, jobs={}
    )
    with pytest.raises(BrokenChain, match="just started"):
        pure.append(again_as(job=JobId("j-second"))(pure))


def test_summaries_are_counted() -> None:
    pure = told("submit x", "go", "says hi")
    pure.append(summarised(1)(pure))
    assert (pure.state.compactions, pure.state.view.compactions) == (1, 1)
