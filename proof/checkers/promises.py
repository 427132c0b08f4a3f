"""
The promises about turns, authority and approvals (T, A, P), checked against every record.

The watcher keeps its own simpler model of accepted, asked, approved, started and finished items. It
trusts neither decide nor evolve. The caller feeds it every event with the state before and after.
It raises `PromiseBroken` with the promise's letter. A3 compares `permitted` with and without a
crash.
"""

import msgspec

from holdfast import limits
from holdfast.ids import ApprovalId, CallId, JobId, TurnId
from holdfast.session.authority.context import TurnContext
from holdfast.session.events import (
    AnswerRefused,
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallAllowed,
    CallFinished,
    CallsProposed,
    DelegateEnded,
    DelegateStarted,
    InputAccepted,
    JobEnded,
    JobSubmitted,
    ModelAnswered,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
    SessionEvent,
    ToolStarted,
    TurnCancelled,
    TurnEnded,
    TurnStarted,
)
from holdfast.session.state import SessionState
from proof.checkers.reminders import check_reminder
from proof.checkers.states import check_state, hold


class Watcher:
    """Watches one instance of a session from outside."""

    def __init__(self, *, disbelieved_until: int = 0) -> None:
        # Times up to this one are not believed: a person said that the clock was ahead.
        self._disbelieved_until = disbelieved_until
        self.accepted: dict[
            str, tuple[TurnId, bytes]
        ] = {}  # input: its turn, its context as written
        self.authority: dict[TurnId, bytes] = {}
        self.made: dict[CallId, tuple[TurnId, str]] = {}
        self.asked: dict[ApprovalId, ApprovalRequested] = {}
        self.asked_at: dict[ApprovalId, int] = {}
        self.answered: dict[ApprovalId, ApprovalAnswered] = {}
        self.closed: set[ApprovalId] = set()
        self.allowed: dict[CallId, CallAllowed] = {}
        self.started: dict[CallId, list[ToolStarted]] = {}
        self.finished: dict[CallId, CallFinished] = {}
        self.doubted: dict[tuple[str, str], int] = {}  # (tool, arguments): when
        self.cancelled: set[TurnId] = set()
        self.superseded: set[TurnId] = set()
        self.ended: set[TurnId] = set()
        self.prompts: dict[TurnId, int] = {}
        self.reminders: dict[str, ReminderSet] = {}  # active reminders
        self.firings: set[tuple[str, int]] = set()
        self.jobs: dict[JobId, JobSubmitted] = {}
        self.jobs_ended: set[JobId] = set()
        self.jobs_reported: set[JobId] = set()

    def saw(self, event: SessionEvent, after: SessionState, *, seq: int, at: int) -> None:
        self._check_event(event, after, seq, at)
        check_state(after)

    def _check_event(self, event: SessionEvent, after: SessionState, seq: int, at: int) -> None:
        turn = getattr(event, "turn", None)
        if (
            turn is not None
            and not isinstance(event, InputAccepted | AnswerRefused)
            and type(event).__name__ not in _AFTER_THE_END
        ):
            hold("T4", turn not in self.ended, f"{type(event).__name__} after the end of {turn}")
        match event:
            case InputAccepted():
                self._accepted(event)
            case TurnStarted():
                self._turn_started(event)
            case ModelAnswered() | CallsProposed():
                self.made.update({call.call: (event.turn, call.tool) for call in event.calls})
            case CallAllowed():
                self.allowed[event.call] = event
            case ApprovalRequested():
                self._asked(event, after, seq)
            case ApprovalAnswered():
                self._answered(event, at)
            case ApprovalClosed():
                hold("P5", event.approval not in self.closed, "a prompt is closed twice")
                self.closed.add(event.approval)
            case ToolStarted():
                self._started(event, after)
            case CallFinished():
                self._finished(event, seq)
            case JobSubmitted() | JobEnded():
                self._job(event, seq)
            case TurnCancelled():
                self.cancelled.add(event.turn)
            case TurnEnded():
                self._ended(event)
            case _:
                self._check_child(event, after)

    def _check_child(self, event: SessionEvent, after: SessionState) -> None:
        """Check the work that leaves a turn: delegates, jobs and reminders."""
        match event:
            case DelegateStarted():
                self._handed_on(event, after)
            case DelegateEnded():
                hold(
                    "T5",
                    event.call in self.finished,
                    "a delegate has ended, and its call has no result",
                )
            case ReminderSet():
                self._reminder_set(event)
            case ReminderFired():
                self._reminder_fired(event)
            case ReminderCancelled():
                hold(
                    "A4",
                    self.reminders.pop(event.reminder, None),
                    "a reminder is cancelled that does not stand",
                )
            case _:
                pass

    def _reminder_set(self, event: ReminderSet) -> None:
        hold("A4", event.reminder not in self.reminders, "a reminder is set twice")
        self.reminders[event.reminder] = event
        check_reminder(event, self.authority[event.turn] if event.turn is not None else None)
        if event.call is not None:
            hold(
                "T1",
                event.call in self.started and event.call not in self.finished,
                "a reminder is set by a call that does not run",
            )

    def _reminder_fired(self, event: ReminderFired) -> None:
        known = self.reminders[event.reminder]
        hold(
            "A4",
            (event.reminder, event.scheduled_at) not in self.firings,
            "a reminder fires twice for one instant",
        )
        hold("A4", event.scheduled_at <= event.fired_at, "a reminder fires before its time")
        self.firings.add((event.reminder, event.scheduled_at))
        turn, context = next(each for each in self.accepted.values() if each[0] == event.turn)
        fired, stored = msgspec.json.decode(context), msgspec.json.decode(known.context)
        hold(
            "A4",
            {**fired, "turn": None} == {**stored, "turn": None},
            f"{turn} has another authority than its reminder",
        )
        if event.next_at is None:
            del self.reminders[event.reminder]

    def _turn_started(self, event: TurnStarted) -> None:
        contexts = [msgspec.json.decode(self.accepted[name][1]) for name in event.inputs]
        hold(
            "A7", self.accepted[event.inputs[0]][0] == event.turn, "a turn has another message's id"
        )
        hold(
            "A7",
            len(contexts) == 1 or contexts[0]["provenance"]["kind"] != "job",
            "a job's result rides with another message",
        )
        for context in contexts:
            context.pop("turn", None)
            hold(
                "A7",
                context == contexts[0],
                f"messages of different authority became one turn: {contexts}",
            )
        self.authority[event.turn] = self.accepted[event.inputs[0]][1]

    def _accepted(self, event: InputAccepted) -> None:
        if event.kind == "job":
            self._job_reported(event)
        self.accepted[event.input] = (event.turn, bytes(event.context))
        self.superseded.update(event.supersedes)
        hold(
            "A4",
            event.kind == "message" or not event.supersedes,
            f"a {event.kind} takes the place of a request",
        )

    def _job(self, event: JobSubmitted | JobEnded, seq: int) -> None:
        if isinstance(event, JobSubmitted):
            self._job_submitted(event)
            return
        hold(
            "T2",
            event.job in self.jobs and event.job not in self.jobs_ended,
            "a job ends twice, or never was",
        )
        self.jobs_ended.add(event.job)
        if event.outcome == "in_doubt":
            self.doubted[self.jobs[event.job].tool, self.jobs[event.job].arguments] = seq

    def _job_submitted(self, event: JobSubmitted) -> None:
        runs = self.started.get(event.call)
        hold(
            "T1",
            runs and (runs[-1].digest, runs[-1].arguments) == (event.digest, event.arguments),
            "a job that is not the call that started",
        )
        hold("T2", event.job not in self.jobs, "a job is submitted twice")
        own, parents = (
            msgspec.json.decode(event.context),
            msgspec.json.decode(self.authority[event.turn]),
        )
        hold("A4", own["provenance"].pop("kind") == "job", "a job's context is not a job's")
        parents["provenance"].pop("kind")
        taints = own["provenance"].pop("taint"), parents["provenance"].pop("taint")
        hold(
            "M2", taints[0] == taints[1] or taints[0] == "tainted", "a job lost its parent's taint"
        )
        hold(
            "A4",
            own == parents,
            f"a job has another authority than its parent: {own} instead of {parents}",
        )
        self.jobs[event.job] = event

    def _job_reported(self, event: InputAccepted) -> None:
        job = JobId(event.dedup or "")
        hold(
            "T2",
            job in self.jobs_ended and job not in self.jobs_reported,
            f"{job} is reported twice, or before its end",
        )
        hold("A7", not event.supersedes, "a job's result takes somebody's place")
        own, stored = (
            msgspec.json.decode(event.context),
            msgspec.json.decode(self.jobs[job].context),
        )
        own.pop("turn"), stored.pop("turn")
        hold("A1", own == stored, "a job's result comes under another authority than was stored")
        self.jobs_reported.add(job)

    def _asked(self, event: ApprovalRequested, after: SessionState, seq: int) -> None:
        context = after.turns[event.turn].context
        hold("A6", event.may_answer, "a prompt that nobody may answer")
        hold(
            "A6",
            isinstance(context, TurnContext) and context.requester is not None,
            "a prompt in a turn without a requester",
        )
        hold("P2", event.approval not in self.asked, "a prompt's id is used twice")
        hold("A3", event.call not in self.finished, "a finished call asks")
        self.asked[event.approval] = event
        self.asked_at[event.approval] = seq
        self.prompts[event.turn] = self.prompts.get(event.turn, 0) + 1

    def _answered(self, event: ApprovalAnswered, at: int) -> None:
        asked = self.asked[event.approval]
        hold("P2", event.approval not in self.answered, "a prompt is answered twice")
        hold("P5", event.approval not in self.closed, "a closed prompt is answered")
        hold("P3", event.by in asked.may_answer, f"{event.by} answered, who may not")
        hold("P1", event.digest == asked.digest, "an answer to another plan")
        hold(
            "P6",
            event.option in {each.option for each in asked.options},
            "an option that was not offered",
        )
        hold(
            "P5",
            at < asked.expires_at or at <= self._disbelieved_until,
            "an answer after its time",
        )
        hold(
            "T6",
            event.turn not in self.cancelled | self.superseded,
            "an answer after a cancel or supersede",
        )
        self.answered[event.approval] = event

    def _started(self, event: ToolStarted, after: SessionState) -> None:
        call, runs = event.call, self.started.setdefault(event.call, [])
        hold(
            "T2",
            not runs or (event.contract != "once" and runs[-1].contract != "once"),
            f"{event.tool} runs twice",
        )
        hold(
            "T2",
            not runs or event.epoch > runs[-1].epoch,
            f"{event.tool} runs twice under one driver",
        )
        hold("T3", call not in self.finished, "a finished call starts")
        hold(
            "T6",
            event.turn not in self.cancelled | self.superseded,
            "a call starts after a cancel or supersede",
        )
        self._consented(event)
        context = after.turns[event.turn].context
        hold("A2", isinstance(context, TurnContext), "a call starts without authority")
        hold(
            "A1",
            msgspec.json.encode(context) == self.authority[event.turn],
            "a call starts under another authority than was accepted",
        )
        runs.append(event)

    def _consented(self, event: ToolStarted) -> None:
        asked = self.asked.get(ApprovalId(event.allowed_by))
        doubt = (
            self.doubted.get((event.tool, event.arguments), 0) if event.contract == "once" else 0
        )
        if asked is None:
            allowed = self.allowed.get(event.call)
            hold(
                "T1",
                allowed is not None and allowed.by == event.allowed_by,
                "a call starts that nothing allowed",
            )
            hold(
                "P1",
                allowed is not None and allowed.digest == event.digest,
                "a call starts that is not what was allowed",
            )
            hold("T2", not doubt, "a call equal to one in doubt starts without asking")
            hold(
                "P5",
                all(each.call != event.call for each in self.asked.values()),
                "a call that was asked about starts without the answer",
            )
            return
        answer = self.answered.get(asked.approval)
        hold(
            "P11",
            answer is not None and answer.option.startswith("approve_"),
            "a call starts without its approval",
        )
        hold("P5", asked.approval not in self.closed, "a call starts whose prompt was closed")
        hold(
            "P7",
            (asked.turn, asked.call) == (event.turn, event.call),
            "an approval is used for another call",
        )
        hold(
            "P1",
            (asked.digest, asked.arguments) == (event.digest, event.arguments),
            "a call starts that is not what was shown",
        )
        hold(
            "T2",
            self.asked_at[asked.approval] > doubt,
            "a call equal to one in doubt starts on an approval from before the doubt",
        )
        waiting = [
            each
            for each in self.asked.values()
            if each.turn == event.turn and each.approval not in self.answered.keys() | self.closed
        ]
        hold("T3", not waiting, "an approved call starts while a sibling waits")

    def _handed_on(self, event: DelegateStarted, after: SessionState) -> None:
        hold("T2", event.call not in self.started, "a call is handed on twice")
        started = ToolStarted(
            turn=event.turn,
            call=event.call,
            tool=self.made[event.call][1],
            arguments=event.arguments,
            digest=event.digest,
            contract="once",
            allowed_by=event.allowed_by,
            epoch=event.epoch,
        )
        self._started(started, after)
        hold(
            "A4",
            after.turns[event.turn].delegations <= limits.DELEGATES_PER_TURN_MAX,
            "a turn starts more delegates than it may",
        )

    def _finished(self, event: CallFinished, seq: int) -> None:
        hold("T5", event.call in self.made, "a result without a call")
        hold("T5", event.call not in self.finished, "a call has two results")
        runs = self.started.get(event.call)
        hold(
            "T6",
            not runs or event.outcome in ("ok", "error", "timed_out", "in_doubt"),
            f"a started call ends as {event.outcome}",
        )
        hold(
            "T1",
            runs or event.outcome not in ("timed_out", "in_doubt"),
            f"a call that never started ends as {event.outcome}",
        )
        self.finished[event.call] = event
        if event.outcome == "in_doubt" and runs:
            self.doubted[runs[-1].tool, runs[-1].arguments] = seq

    def _ended(self, event: TurnEnded) -> None:
        for call, (turn, _) in self.made.items():
            hold(
                "T5",
                turn != event.turn or call in self.finished,
                "a turn ends with a call that has no result",
            )
        self.ended.add(event.turn)


_AFTER_THE_END = (
    "ModelAnswerDropped",
    "DeliveryQueued",
    "DelegateEnded",
    "DelegateReported",
    "JobCancelled",
    "JobEnded",
    "ReminderFired",
)  # the last: only its input was kept, and it has been answered since
