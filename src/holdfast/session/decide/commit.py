"""
From a command to events: `decide(state, command, now)` gives the events to append, or refuses.

Pure and O(1) in the session's length. The events are legal by construction: `commit` folds each
into the state before it decides the next command of the same commit. An event that the transition
table does not list is a bug in Holdfast. The other modules of this folder do the work, one per kind
of command.
"""

from collections.abc import Sequence
from typing import TypeVar, assert_never, cast

import msgspec

from holdfast.errors import InvariantBroken, Refused
from holdfast.session.commands import (
    AcceptInput,
    AddItem,
    AnswerApproval,
    AskForInput,
    Cancel,
    CancelJob,
    CancelReminder,
    CloseInstance,
    Command,
    ContinueAsJob,
    DecideCalls,
    DropCall,
    EndJob,
    EndTurn,
    Expire,
    FailTurn,
    FinishCall,
    FireReminders,
    GiveModel,
    KeepPartialAnswer,
    KeepState,
    LeaveLoop,
    MarkDelivery,
    MarkReported,
    ParkTurn,
    ProposeCalls,
    QueueDelivery,
    RecordCompaction,
    RecordRecall,
    RecordTurnCompaction,
    Recover,
    RemoveItems,
    RenameSession,
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
    TakeUpLoop,
    VoidPrompts,
)
from holdfast.session.decide import answers as decide_answers
from holdfast.session.decide import calls as decide_calls
from holdfast.session.decide import external_loop as decide_loop
from holdfast.session.decide import inputs as decide_inputs
from holdfast.session.decide import lifecycle as decide_life
from holdfast.session.decide import model_failures as decide_failures
from holdfast.session.decide import starts as decide_starts
from holdfast.session.decide import turns as decide_turns
from holdfast.session.decide.decision import Decided
from holdfast.session.events import ModelGiven, SessionEvent
from holdfast.session.evolve.fold import evolve
from holdfast.session.features.delegates import decide as decide_delegates
from holdfast.session.features.forms import decide as decide_forms
from holdfast.session.features.jobs import decide as decide_jobs
from holdfast.session.features.memory import decide as decide_memory
from holdfast.session.features.reminders import decide as decide_reminders
from holdfast.session.next_steps import DriverFacts, bookkeeping_owed
from holdfast.session.state import SessionState
from holdfast.session.transitions import IllegalTransition

Result = TypeVar("Result")


def decide(  # noqa: C901, PLR0911, PLR0912  # one line per command
    state: SessionState, command: SessionCommand, *, now: int, floor: int | None = None
) -> Decided[object]:
    """
    Decide one command. `now` is never before the last record, even if the clock was set back. If
    that record's time is not believed, `now` is never before `floor` instead.
    """
    now = max(now, state.at if floor is None else floor)
    match command:  # the commands of every turn first
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
        case KeepPartialAnswer():
            return decide_turns.keep_partial_answer(state, command)
        case DecideCalls():
            return decide_calls.decide_calls(state, command, now)
        case StartTool():
            return decide_starts.start_tool(state, command, now)
        case ParkTurn():
            return decide_turns.park_turn(state, command)
        case FinishCall():
            return decide_starts.finish_call(state, command)
        case ContinueAsJob():
            return decide_jobs.continue_as_job(state, command)
        case AskForInput():
            return decide_forms.ask_for_input(state, command, now)
        case RecordRecall():
            return decide_memory.record_recall(state, command)
        case TakeFailure():
            return decide_failures.take_failure(state, command, now)
        case ResumeTurn():
            return decide_turns.resume_turn(state, command)
        case EndTurn():
            return decide_turns.end_turn(state, command)
        case FailTurn():
            return decide_turns.fail_turn(state, command)
        case ProposeCalls():
            return decide_loop.propose_calls(state, command)
        case KeepState():
            return decide_loop.keep_state(state, command)
        case AddItem():
            return decide_loop.add_item(command)
        case RemoveItems():
            return decide_loop.remove_items(command)
        case DropCall():
            return decide_loop.drop_one_call(state, command)
        case TakeUpLoop():
            return decide_loop.take_up_loop(state, command)
        case LeaveLoop():
            return decide_loop.leave_loop(state, command)
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
        case VoidPrompts():
            return decide_answers.void_prompts(state, command)
        case Cancel():
            return decide_turns.cancel(state, command)
        case Recover():
            return decide_life.recover(state, command, now)
        case GiveModel():
            return Decided((ModelGiven(model=command.model, by=command.by),))
        case RenameSession():
            return decide_life.rename_session(state, command)
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
        case CloseInstance():
            return decide_life.close_instance(state, command)
        case _:
            assert_never(command)


class Committed(msgspec.Struct, frozen=True):
    """
    A decided commit. `states` are the states after each event, `decided` the decisions on its
    commands.
    """

    before: SessionState
    commands: tuple[SessionCommand, ...]
    events: tuple[SessionEvent, ...]
    states: tuple[SessionState, ...]
    decided: tuple[Decided[object], ...]

    @property
    def state(self) -> SessionState:
        return self.states[-1] if self.states else self.before

    @property
    def refusal(self) -> Refused | None:
        return self.decided[-1].refusal if self.decided else None

    def of(self, command: Command[Result]) -> Result:
        """Return the result of one of its commands."""
        for known, decided in zip(self.commands, self.decided, strict=False):
            if known is command:
                return cast("Result", decided.outcome)
        raise InvariantBroken(f"{type(command).__name__} was not decided in this commit")


def commit(
    state: SessionState,
    commands: Sequence[SessionCommand],
    *,
    now: int,
    floor: int | None = None,
    driver: DriverFacts | None = None,
) -> Committed:
    """
    Decide commands one after another, each against the state that the ones before it lead to.

    A driver's commit that adds events ends with the bookkeeping that is owed after them. `floor`:
    see `decide`.
    """
    commit = _Commit(state, now, floor)
    decided = commit.decide(commands)
    if driver is not None and commit.events and decided[-1].refusal is None:
        while owed := bookkeeping_owed(commit.state, driver):
            before = len(commit.events)
            commit.decide(owed)
            if len(commit.events) == before:
                break  # a turn may not be parked on a delegate before its session exists
    return Committed(state, tuple(commands), tuple(commit.events), tuple(commit.states), decided)


class _Commit:
    """A commit while it is decided."""

    def __init__(self, state: SessionState, now: int, floor: int | None) -> None:
        self.state, self._floor = state, floor
        self._now = max(now, state.at if floor is None else floor)  # the time of its events
        self.events: list[SessionEvent] = []
        self.states: list[SessionState] = []

    def decide(self, commands: Sequence[SessionCommand]) -> tuple[Decided[object], ...]:
        """Return the decisions, up to the first refusal."""
        decided: list[Decided[object]] = []
        for command in commands:
            decided.append(outcome := decide(self.state, command, now=self._now, floor=self._floor))
            try:
                for event in outcome.events:
                    self.state = evolve(self.state, event, seq=self.state.seq + 1, at=self._now)
                    self.events.append(event)
                    self.states.append(self.state)
            except IllegalTransition as exc:
                raise InvariantBroken(
                    f"{type(command).__name__} decided on something illegal: {exc}"
                ) from exc
            if outcome.refusal is not None:
                break
        return tuple(decided)
