"""
The pure core under the simulator: one session without adapters. Dice choose the actions of its
model, tools, jobs and delegates. A crash loses records.

`Watcher` checks every record as it is made.
"""

import random

import msgspec

from holdfast.ids import ApprovalId, CallId, TurnId
from holdfast.session.authority.context import Audience, MessageSource
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import (
    AcceptInput,
    Cancel,
    CancelJob,
    EndJob,
    EndTurn,
    Expire,
    KeepState,
    LeaveLoop,
    ParkTurn,
    ProposeCalls,
    RecordCompaction,
    Recover,
    ReportEndedJob,
    ResumeTurn,
    StartModelCall,
    StartTurn,
    TakeAnswer,
    TakeFailure,
    TakeUpLoop,
)
from holdfast.session.effects import (
    AwaitModel,
    AwaitTool,
    BeginTurn,
    CallModel,
    CreateDelegate,
    Deliver,
    Finish,
    LookAtCalls,
    Park,
    ReportJob,
    ReportToParent,
    Resume,
    RunTools,
    SessionEffect,
    StopDelegate,
)
from holdfast.session.events import Blob, CallOutcome, Loop
from holdfast.session.react import react
from holdfast.session.state import CallStatus, Phase, SessionState
from holdfast.session.view.messages import ModelAnswer, Usage
from proof.checkers.promises import Watcher
from proof.checkers.states import PromiseBroken, check_shared_view, hold
from proof.scenarios.pure_session import PureSession, replay
from proof.simulation.dice import random_calls, random_policy
from proof.simulation.simulator import PEOPLE, Lived

OPTIONS = (
    "approve_once",
    "approve_once",
    "approve_session",
    "approve_folder",
    "edit",
    "deny",
    "answer",
    "yes",
)
_DAY_MS = 86_400_000


class PureSubject:
    """The pure core, with a random model, tools and people."""

    def __init__(self) -> None:
        self.pure = PureSession()
        self.watcher = Watcher()
        self.crashes = 0
        self.calls_left = 12  # the model ends even before faults stop
        self._watched = 0
        self._before = self.pure.state
        self._prefix = 0  # number of records before the last commit
        self.check()

    # --- people

    def submit(self, person: str, text: str, dice: random.Random) -> None:
        roll = dice.random()
        source: MessageSource | None = MessageSource.local(person)
        if roll < 0.3:
            source = MessageSource.team(person, "ops")
        elif roll < 0.4:
            source = MessageSource.automation(person, channel="webhook")
        elif roll < 0.45:
            source = None
        loop: Loop = "foreign" if dice.random() < 0.08 else "ours"
        policy = msgspec.structs.replace(
            self.pure.policy, on_message=dice.choice(("supersede", "wait"))
        )
        dedup = dice.choice((None, "k1", "k2"))
        self._do(
            AcceptInput(
                text=text,
                source=source,
                agent="ops",
                model="demo",
                policy=policy,
                dedup=dedup,
                loop=loop,
            )
        )

    def answer(self, person: str, dice: random.Random) -> None:
        known = list(self.watcher.asked)
        if not known:
            return
        open_ones = list(self.pure.state.approvals)
        approval = (
            dice.choice(open_ones) if open_ones and dice.random() < 0.8 else dice.choice(known)
        )
        option = dice.choice(OPTIONS)
        arguments = '{"branch":"edited"}' if option == "edit" else None
        self._prefix = len(self.pure.records)
        answer_id = dice.choice(("x1", f"x{len(self.pure.records)}"))
        self.pure.answer(
            approval,
            option,
            person,
            arguments=arguments,
            answer_id=answer_id,
            reason=dice.choice((None, "because")),
        )

    def cancel(self, person: str, dice: random.Random) -> None:
        turns = [None, *self.pure.state.turns, *(each.turn for each in self.pure.state.queued)]
        self._do(Cancel(by=person, turn=dice.choice(turns), may_all=dice.random() < 0.3))

    # --- the world

    def disturb(self, dice: random.Random) -> None:
        pure, roll = self.pure, dice.random()
        if dice.random() < 0.3 and self._job_moves(dice):
            return
        if roll < 0.25:
            pure.now += dice.choice((1_000, _DAY_MS, 8 * _DAY_MS))
            self._do(Expire())
        elif roll < 0.35:
            pure.now -= _DAY_MS  # a clock set back
        elif roll < 0.75:
            pure.policy = random_policy(dice)
        elif roll < 0.85 and pure.grants:
            del pure.grants[dice.choice(list(pure.grants))]
        elif roll < 0.92:
            pure.identity = dice.choice(("1:1", "2:2"))
        elif len(pure.state.view.entries) > 1:
            state = pure.state
            command = RecordCompaction(
                summary="so far",
                turns=1,
                compactions=state.compactions,
                tokens_before=9,
                tokens_after=1,
                trigger="dice",
            )
            self._do(command)

    def _job_moves(self, dice: random.Random) -> bool:
        """End a job, or let somebody cancel it. Return False if no job runs."""
        running = [job for job in self.pure.state.jobs.values() if job.ended is None]
        if not running:
            return False
        job = dice.choice(running)
        if dice.random() < 0.3:
            self._do(
                CancelJob(
                    job=job.job,
                    by=dice.choice(PEOPLE),
                    audience=Audience.PERSONAL,
                    boundary=f"personal:{dice.choice(PEOPLE)}",
                )
            )
        else:
            self._do(
                EndJob(
                    job=job.job,
                    outcome=dice.choice(("ok", "error", "timed_out", "in_doubt")),
                    text="dug",
                )
            )
        return True

    def crash(self, dice: random.Random) -> None:
        """
        The next driver finds the records from before the last commit, and any part of that commit.
        """
        self.crashes += 1
        self.check()
        kept = dice.randint(self._prefix, len(self.pure.records))
        if kept < len(self.pure.records):
            self._forget(kept)
        self.pure.crash(kept)
        if self.pure.state != replay(self.pure.records):
            raise PromiseBroken("D7: equal bytes gave another state")
        if dice.random() < 0.9:
            self._do(Recover(epoch=self.pure.epoch))

    def _forget(self, kept: int) -> None:
        """Records that were never durable were never promised, so start a new watcher."""
        del self.pure.records[kept:]
        self.pure.state = replay(self.pure.records)
        self.watcher = Watcher()
        self._watched = 0
        self.check()

    # --- the driver

    def step(self, dice: random.Random) -> bool:
        owed = react(self.pure.state)
        at_work = list(self.pure.state.delegates)
        if at_work and dice.random() < (0.2 if owed else 1.0):
            self._report(dice.choice(at_work), dice)
            return True
        effect = dice.choice(owed) if owed else None
        if effect is None:
            return self._foreign_step(dice)
        self._perform(effect, dice)
        return True

    def _foreign_step(self, dice: random.Random) -> bool:
        """An external loop makes its next step."""
        pure = self.pure
        movable = [
            each
            for each in pure.state.turns.values()
            if each.loop == "foreign" and not each.waiting
        ]
        turn = next((each for each in movable if pure.state.running in (None, each.id)), None)
        if turn is None:
            return False
        if turn.phase is Phase.PARKED:
            self._do(TakeUpLoop(turn=turn.id, epoch=pure.epoch))
        elif dice.random() < 0.1:
            self._do(LeaveLoop(turn=turn.id))
        elif dice.random() < 0.1:
            blob = Blob(adapter="simulation/1", size=1, text="x")
            self._do(KeepState(turn=turn.id, blob=blob))
        elif turn.phase is Phase.READY and self.calls_left > 0 and dice.random() < 0.6:
            self.calls_left -= 1
            self._do(
                ProposeCalls(turn=turn.id, calls=random_calls(dice), text="", policy=pure.policy)
            )
        elif turn.phase is Phase.READY:
            self._do(EndTurn(turn=turn.id, policy=pure.policy, reply="done"))
        elif turn.phase is Phase.DECIDING:
            self._decide(turn.id)
        else:
            ready = [
                call.call
                for call in turn.calls
                if call.status in (CallStatus.ALLOWED, CallStatus.APPROVED)
            ]
            if not ready:
                return False
            self._run(turn.id, RunTools(turn.id, tuple(ready)))
        return True

    def _perform(self, effect: SessionEffect, dice: random.Random) -> None:
        pure = self.pure
        match effect:
            case BeginTurn():
                self._do(StartTurn(epoch=pure.epoch))
            case Resume(turn=turn):
                self._do(ResumeTurn(turn=turn, epoch=pure.epoch))
            case CallModel(turn=turn):
                self._do(StartModelCall(turn=turn, epoch=pure.epoch, policy=pure.policy))
            case AwaitModel():
                self._model(effect, dice)
            case LookAtCalls(turn=turn):
                self._decide(turn)
            case RunTools(turn=turn):
                self._run(turn, effect)
            case AwaitTool():
                self._tool(effect, dice)
            case Park(turn=turn):
                self._do(
                    ParkTurn(
                        turn=turn,
                        existing=tuple(call.call for call in pure.state.turns[turn].delegated),
                    )
                )
            case Finish(turn=turn):
                before = len(pure.records)
                self._do(EndTurn(turn=turn, policy=pure.policy))
                hold("T7", len(pure.records) > before, "a Finish is owed, and nothing comes of it")
            case StopDelegate(call=call):
                self._report(call, dice)
            case ReportJob(job=job):
                self._do(ReportEndedJob(job=job))
            case CreateDelegate() | ReportToParent() | Deliver():
                pass

    def _model(self, effect: AwaitModel, dice: random.Random) -> None:
        if effect.epoch < self.pure.epoch:
            self._do(Recover(epoch=self.pure.epoch))
            return
        roll = dice.random()
        if roll < 0.1:
            kind = dice.choice(("server", "overflow", "timeout"))
            self._do(
                TakeFailure(
                    turn=effect.turn,
                    number=effect.number,
                    kind=kind,
                    message=kind,
                    final=dice.random() < 0.3,
                )
            )
            return
        calls = random_calls(dice) if roll < 0.75 and self.calls_left > 0 else ()
        self.calls_left -= bool(calls)
        answer = ModelAnswer(
            text="so be it", calls=calls, usage=Usage(input_tokens=10, output_tokens=1)
        )
        number = effect.number - 1 if roll > 0.98 else effect.number  # sometimes a stale one
        self._do(
            TakeAnswer(turn=effect.turn, number=number, answer=answer, policy=self.pure.policy)
        )

    def _decide(self, turn: TurnId) -> None:
        self._prefix = len(self.pure.records)
        self.pure.decide_calls(turn)

    def _run(self, turn: TurnId, effect: RunTools) -> None:
        self._prefix = len(self.pure.records)
        self.pure.start(turn, effect.calls[0])

    def _report(self, call: CallId, dice: random.Random) -> None:
        """A delegate ends and reports it, sometimes twice."""
        self._prefix = len(self.pure.records)
        outcome: CallOutcome = dice.choice(("ok", "ok", "error", "in_doubt"))
        for _ in range(dice.choice((1, 1, 2))):
            self.pure.report(call, outcome=outcome, doubts=dice.choice(((), ("some call",))))

    def _tool(self, effect: AwaitTool, dice: random.Random) -> None:
        call = self.pure.state.open_call(effect.turn, effect.call)
        self._prefix = len(self.pure.records)
        if call is None:
            return
        if effect.epoch < self.pure.epoch:
            before = len(self.pure.records)
            self._do(Recover(epoch=self.pure.epoch))
            if len(self.pure.records) == before:
                self.pure.start(effect.turn, effect.call)
            return
        outcome: CallOutcome = dice.choice(("ok", "ok", "ok", "error", "timed_out", "in_doubt"))
        self.pure.finish(effect.turn, effect.call, call.run, outcome, dice.choice(("done", "fine")))

    def _do(self, *commands: object) -> None:
        self._prefix = len(self.pure.records)
        self.pure.do(*commands)  # type: ignore[arg-type]  # every caller gives commands

    # --- after the faults

    def calm(self) -> None:
        self.pure.policy = Policy()
        self.pure.identity = "1:1"
        self.calls_left = 0
        self._do(Recover(epoch=self.pure.epoch))

    def settle_one(self, dice: random.Random) -> bool:
        if self.step(dice):
            return True
        for approval, (turn, call_id, _) in self.pure.state.approvals.items():
            call = self.pure.state.open_call(turn, call_id)
            if call is not None and call.approval is not None and call.approval.is_open:
                self._answer_calmly(approval, call.approval.asked.may_answer[0])
                return True
        if self._job_moves(dice):
            return True
        hold(
            "T7",
            not self.pure.state.turns and not self.pure.state.queued,
            f"left over: {list(self.pure.state.turns)}",
        )
        hold(
            "T7", self.watcher.jobs_reported == self.watcher.jobs.keys(), "a job was never reported"
        )
        return False

    def _answer_calmly(self, approval: ApprovalId, by: str) -> None:
        self._prefix = len(self.pure.records)
        refusal = (
            self.pure.answer(approval, "deny", by, answer_id=f"calm-{approval}").decided[-1].refusal
        )
        if refusal is not None:
            hold(
                "P5",
                refusal.code == "expired",
                f"an open prompt refuses its approver: {refusal.code}",
            )
            self._do(Expire())

    # --- checks

    def check(self) -> None:
        state: SessionState | None = None
        for seq, event, state in self.pure.states_after(
            self._watched, self._before if self._watched else None
        ):
            self.watcher.saw(event, state, seq=seq, at=state.at)
        if state is not None:
            self._before = state
        self._watched = len(self.pure.records)
        check_shared_view(self.pure.state)

    def lived(self, seed: int) -> Lived:
        starts = sum(len(runs) for runs in self.watcher.started.values())
        return Lived(
            seed, len(self.pure.records), self.pure.state.turns_ended, starts, self.crashes
        )
