"""
From a wish to facts: `decide(state, command, now)` gives the events to append, or refuses.

Pure and O(1) in the session's length. The events it gives are legal by construction: `commit` folds each into the state before the next command of the same commit
is decided, and a move that the table does not list is a bug of ours. The work is in `decide_*.py`, one file per part of a turn's life.
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from holdfast.errors import InvariantBroken
from holdfast.session import (
    decide_answers,
    decide_calls,
    decide_delegates,
    decide_inputs,
    decide_jobs,
    decide_life,
    decide_memory,
    decide_reminders,
    decide_turns,
)
from holdfast.session.commands import (
    AcceptInput,
    AnswerApproval,
    Cancel,
    CancelJob,
    CancelReminder,
    CloseLife,
    DecideCalls,
    EndJob,
    EndTurn,
    Expire,
    FailTurn,
    FinishCall,
    FireReminders,
    GiveModel,
    MarkDelivery,
    MarkReported,
    ParkTurn,
    ProposeCalls,
    QueueDelivery,
    RecordCompaction,
    RecordRecall,
    RecordTurnCompaction,
    Recover,
    ReportDelegate,
    ReportEndedJob,
    ResumeTurn,
    SessionCommand,
    SetReminder,
    StartModelCall,
    StartTool,
    StartTurn,
    TakeAnswer,
    TakeFailure,
)
from holdfast.session.decided import Decided
from holdfast.session.events import ModelGiven, SessionEvent
from holdfast.session.evolve import evolve
from holdfast.session.state import SessionState
from holdfast.session.transitions import IllegalTransition


def decide(  # noqa: C901, PLR0911, PLR0912  # one line per command
    state: SessionState, command: SessionCommand, *, now: int, floor: int | None = None
) -> Decided:
    """`now` is never before the last record, whatever a clock that was set back says; or before `floor`, where that record's time is not believed."""
    now = max(now, state.at if floor is None else floor)
    match command:  # those of every turn first
        case Expire():
            return decide_answers.expire(state, now)
        case AcceptInput():
            return decide_inputs.accept_input(state, command, now)
        case StartTurn():
            return decide_inputs.start_turn(state, command)
        case StartModelCall():
            return decide_turns.start_model_call(state, command)
        case TakeAnswer():
            return decide_turns.take_answer(state, command)
        case DecideCalls():
            return decide_calls.decide_calls(state, command, now)
        case StartTool():
            return decide_calls.start_tool(state, command, now)
        case ParkTurn():
            return decide_turns.park_turn(state, command)
        case FinishCall():
            return decide_calls.finish_call(state, command)
        case RecordRecall():
            return decide_memory.record_recall(state, command)
        case TakeFailure():
            return decide_turns.take_failure(state, command)
        case ResumeTurn():
            return decide_turns.resume_turn(state, command)
        case EndTurn():
            return decide_turns.end_turn(state, command)
        case FailTurn():
            return decide_turns.fail_turn(state, command)
        case ProposeCalls():
            return decide_calls.propose_calls(state, command)
        case ReportDelegate():
            return decide_delegates.report_delegate(state, command)
        case MarkReported():
            return decide_delegates.mark_reported(state, command)
        case EndJob():
            return decide_jobs.end_job(state, command)
        case ReportEndedJob():
            return decide_jobs.report_job(state, command)
        case CancelJob():
            return decide_jobs.cancel_job(state, command)
        case AnswerApproval():
            return decide_answers.answer_approval(state, command, now)
        case Cancel():
            return decide_turns.cancel(state, command)
        case Recover():
            return decide_life.recover(state, command)
        case GiveModel():
            return Decided((ModelGiven(model=command.model, by=command.by),))
        case RecordCompaction():
            return decide_life.record_compaction(state, command)
        case RecordTurnCompaction():
            return decide_life.record_turn_compaction(state, command)
        case QueueDelivery():
            return decide_life.queue_delivery(state, command)
        case MarkDelivery():
            return decide_life.mark_delivery(state, command)
        case SetReminder():
            return decide_reminders.set_reminder(state, command, now)
        case FireReminders():
            return decide_reminders.fire_reminders(state, command, now)
        case CancelReminder():
            return decide_reminders.cancel_reminder(state, command)
        case CloseLife():
            return decide_life.close_life(state, command)
        case _:
            assert_never(command)


class Committed(msgspec.Struct, frozen=True):
    before: SessionState
    events: tuple[SessionEvent, ...]
    states: tuple[SessionState, ...]
    """After each of the events."""
    decided: tuple[Decided, ...]

    @property
    def state(self) -> SessionState:
        return self.states[-1] if self.states else self.before


def commit(state: SessionState, commands: Sequence[SessionCommand], *, now: int, floor: int | None = None) -> Committed:
    """Decide commands one after another, each against the state that the ones before it lead to. `floor`: see `decide`."""
    events: list[SessionEvent] = []
    states: list[SessionState] = []
    decided: list[Decided] = []
    before = state
    for command in commands:
        outcome = decide(state, command, now=now, floor=floor)
        decided.append(outcome)
        for event in outcome.events:
            try:
                state = evolve(state, event, seq=state.seq + 1, at=now)
            except IllegalTransition as exc:
                raise InvariantBroken(f"{type(command).__name__} decided on something illegal: {exc}") from exc
            states.append(state)
        events.extend(outcome.events)
        if outcome.refusal is not None:
            break
    return Committed(before, tuple(events), tuple(states), tuple(decided))
