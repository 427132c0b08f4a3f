"""
Random wishes of several people, a driver that may die after any record, and the promises T, A, P as
invariants.

Every rule is one command, or one step that a driver owes. `Watcher` keeps a model of its own; here,
A3 is tried as well: the machine is forked, one fork crashes and recovers, and what may be done next
must be the same in both.
"""

from datetime import UTC

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from proof.checkers.promises import Watcher
from proof.checkers.states import check_shared_view, hold, permitted, startable
from proof.scenarios.pure_session import INSTANCE, SESSION, PureSession, replay

from holdfast.ids import reminder_id
from holdfast.session.authority.context import Audience, MessageSource
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.commands import (
    AcceptInput,
    Cancel,
    CancelReminder,
    EndTurn,
    Expire,
    FailTurn,
    FireReminders,
    ParkTurn,
    ProposeCalls,
    Recover,
    ResumeTurn,
    SessionCommand,
    SetReminder,
    StartModelCall,
    StartTool,
    StartTurn,
    TakeAnswer,
    TakeFailure,
)
from holdfast.session.decide.commit import commit
from holdfast.session.effects import (
    AwaitModel,
    AwaitTool,
    BeginTurn,
    CallModel,
    Finish,
    LookAtCalls,
    Park,
    Resume,
    RunTools,
)
from holdfast.session.events import CallFinished, TurnEnded
from holdfast.session.evolve.fold import fold, initial
from holdfast.session.features.reminders.schedule import Cron, Every, Once, Schedule
from holdfast.session.react import react
from holdfast.session.state import CallStatus, Phase
from holdfast.session.view.messages import ModelAnswer, ProposedCall, Quote

PEOPLE = st.sampled_from(["alice", "bob", "carol"])
EVERYBODY = ("alice", "bob", "carol", "mallory")
DAY_MS = 86_400_000

SOURCES = st.one_of(
    st.none(),
    PEOPLE.map(MessageSource.local),
    PEOPLE.map(
        lambda name: MessageSource.local(name, quotes=(Quote("dave", "approve everything"),))
    ),
    PEOPLE.map(lambda name: MessageSource.team(name, "ops")),
    PEOPLE.map(lambda name: MessageSource.automation(name, channel="webhook")),
)
CALLS = st.lists(
    st.builds(
        lambda tool, branch: ProposedCall(tool, msgspec.json.encode({"branch": branch}).decode()),
        st.sampled_from(
            ["look", "delete", "delete", "tidy", "charge", "shell", "peek", "ask_person", "nosuch"]
        ),
        st.sampled_from(["a", "b"]),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
SCHEDULES: st.SearchStrategy[Schedule] = st.sampled_from(
    [Once(0), Every(3600, 0), Cron("0 */6 * * *", "UTC")]
)
RULES = st.builds(
    Rule,
    mode=st.sampled_from(["auto", "ask", "deny"]),
    approvers=st.sampled_from([None, ("bob",), ("bob", "carol"), ()]),
    requester_may_answer=st.sampled_from([None, False]),
)
POLICIES = st.builds(
    Policy,
    rules=st.dictionaries(
        st.sampled_from(list(Audience)),
        st.dictionaries(
            st.sampled_from(["delete", "look", "tidy", "charge", "*"]), RULES, max_size=2
        ),
        max_size=2,
    ),
    on_message=st.sampled_from(["supersede", "wait"]),
    prompts_per_turn_max=st.sampled_from([1, 20]),
    turn_tool_calls_max=st.sampled_from([2, 200]),
)


class SessionMachine(RuleBasedStateMachine):
    """One session, several people, a driver that dies."""

    def __init__(self) -> None:
        super().__init__()
        self.pure = PureSession()
        self.watcher = Watcher()
        self.watched = 0
        self.last_commit = 0  # records there before it

    def do(self, *commands: SessionCommand) -> None:
        self.last_commit = len(self.pure.records)
        self.pure.do(*commands)

    # --- people

    @rule(
        source=SOURCES,
        text=st.sampled_from(["do it", "and more", "yes", "no"]),
        dedup=st.sampled_from([None, None, "k"]),
        foreign=st.integers(0, 9),
    )
    def submit(
        self, source: MessageSource | None, text: str, dedup: str | None, foreign: int
    ) -> None:
        loop = "foreign" if foreign == 0 else "ours"
        self.do(
            AcceptInput(
                text=text,
                source=source,
                agent="ops",
                model="demo",
                policy=self.pure.policy,
                dedup=dedup,
                loop=loop,
            )
        )

    @precondition(lambda self: self.watcher.asked)
    @rule(
        pick=st.integers(0, 5),
        past=st.booleans(),
        option=st.sampled_from(
            [
                "approve_once",
                "approve_once",
                "approve_session",
                "approve_everywhere",
                "edit",
                "deny",
                "answer",
                "yes",
            ]
        ),
        by=st.sampled_from(EVERYBODY),
        answer_id=st.sampled_from(["same", "other", None]),
    )
    def answer(self, pick: int, past: bool, option: str, by: str, answer_id: str | None) -> None:
        known = (
            list(self.watcher.asked)
            if past or not self.pure.state.approvals
            else list(self.pure.state.approvals)
        )
        self.last_commit = len(self.pure.records)
        self.pure.answer(
            known[-1 - pick % len(known)],
            option,
            by,
            answer_id=answer_id or f"x{len(self.pure.records)}",
            arguments='{"branch":"b"}' if option == "edit" else None,
            reason="because",
        )

    @precondition(lambda self: self.pure.state.turns)
    @rule(by=PEOPLE, every=st.booleans(), pick=st.integers(0, 3))
    def cancel(self, by: str, every: bool, pick: int) -> None:
        turns = [*self.pure.state.turns, *(each.turn for each in self.pure.state.queued)]
        self.do(Cancel(by=by, turn=None if every else turns[pick % len(turns)], may_all=pick == 3))

    @precondition(lambda self: self.pure.grants)
    @rule()
    def revoke(self) -> None:
        self.pure.grants.popitem()

    # --- reminders

    @precondition(lambda self: len(self.pure.state.reminders) < 4)
    @rule(source=SOURCES, schedule=SCHEDULES, may_prompt=st.booleans())
    def remind(self, source: MessageSource | None, schedule: Schedule, may_prompt: bool) -> None:
        if isinstance(schedule, Once):
            schedule = Once(max(self.pure.now, self.pure.state.at) + DAY_MS)
        name = reminder_id(INSTANCE, f"{len(self.pure.records)}")
        self.do(
            SetReminder(
                reminder=name,
                text="do it",
                schedule=schedule,
                zone=UTC,
                may_prompt=may_prompt,
                source=source,
                agent="ops",
                model="demo",
            )
        )

    @precondition(lambda self: self.watcher.made and len(self.pure.state.reminders) < 4)
    @rule(pick=st.integers(0, 3), may_prompt=st.booleans())
    def remind_by_call(self, pick: int, may_prompt: bool) -> None:
        """Any call that ever was: only one that runs may, and only once."""
        call, (turn, _) = list(self.watcher.made.items())[-1 - pick % len(self.watcher.made)]
        self.do(
            SetReminder(
                reminder=reminder_id(INSTANCE, call),
                text="do it",
                schedule=Every(3600, 0),
                may_prompt=may_prompt,
                turn=turn,
                call=call,
            )
        )

    @precondition(lambda self: self.pure.state.reminders and len(self.pure.state.queued) < 8)
    @rule(hours=st.sampled_from([-30, 0, 1, 30]))
    def look_for_what_is_due(self, hours: int) -> None:
        self.pure.now += hours * 3_600_000
        self.do(FireReminders(zones={"UTC": UTC}))
        hold(
            "T7",
            not any(
                each.next_at <= self.pure.state.at for each in self.pure.state.reminders.values()
            ),
            "something due was not fired",
        )

    @precondition(lambda self: self.pure.state.reminders)
    @rule(by=st.sampled_from(EVERYBODY))
    def cancel_a_reminder(self, by: str) -> None:
        self.do(CancelReminder(reminder=next(iter(self.pure.state.reminders)), by=by))

    # --- settings, time, the world

    @rule(policy=POLICIES)
    def change_policy(self, policy: Policy) -> None:
        self.pure.policy = policy

    @rule(days=st.sampled_from([-1, 1, 8]))
    def time_passes(self, days: int) -> None:
        self.pure.now += days * DAY_MS
        self.do(Expire())

    @rule(identity=st.sampled_from(["1:1", "2:2"]))
    def the_world_moves(self, identity: str) -> None:
        self.pure.identity = identity

    # --- the driver

    @precondition(
        lambda self: any(
            not isinstance(effect, AwaitModel | AwaitTool) for effect in react(self.pure.state)
        )
    )
    @rule(pick=st.integers(0, 3))
    def drive(self, pick: int) -> None:
        pure, owed = (
            self.pure,
            [
                effect
                for effect in react(self.pure.state)
                if not isinstance(effect, AwaitModel | AwaitTool)
            ],
        )
        self.last_commit = before = len(pure.records)
        match owed[pick % len(owed)]:
            case BeginTurn():
                self.do(StartTurn(epoch=pure.epoch))
            case Resume(turn=turn):
                self.do(ResumeTurn(turn=turn, epoch=pure.epoch))
            case CallModel(turn=turn):
                self.do(StartModelCall(turn=turn, epoch=pure.epoch, policy=pure.policy))
            case LookAtCalls(turn=turn):
                pure.decide_calls(turn)
            case RunTools(turn=turn, calls=calls):
                pure.start(turn, calls[pick % len(calls)])
            case Park(turn=turn):
                self.do(ParkTurn(turn=turn))
            case Finish(turn=turn):
                self.do(EndTurn(turn=turn, policy=pure.policy))
        hold("T7", len(pure.records) > before, "something is owed, and doing it changes nothing")

    @precondition(
        lambda self: any(isinstance(effect, AwaitModel) for effect in react(self.pure.state))
    )
    @rule(calls=st.one_of(st.just(()), CALLS, CALLS), stale=st.integers(0, 9))
    def model_answers(self, calls: tuple[ProposedCall, ...], stale: int) -> None:
        out = next(effect for effect in react(self.pure.state) if isinstance(effect, AwaitModel))
        if out.epoch == self.pure.epoch:
            self.do(
                TakeAnswer(
                    turn=out.turn,
                    number=out.number - (stale == 0),
                    answer=ModelAnswer(text="hm", calls=calls),
                    policy=self.pure.policy,
                )
            )

    @precondition(
        lambda self: any(isinstance(effect, AwaitModel) for effect in react(self.pure.state))
    )
    @rule(kind=st.sampled_from(["server", "overflow"]), final=st.booleans())
    def model_fails(self, kind: str, final: bool) -> None:
        out = next(effect for effect in react(self.pure.state) if isinstance(effect, AwaitModel))
        if out.epoch == self.pure.epoch:
            self.do(
                TakeFailure(turn=out.turn, number=out.number, kind=kind, message=kind, final=final)
            )

    @precondition(
        lambda self: any(isinstance(effect, AwaitTool) for effect in react(self.pure.state))
    )
    @rule(outcome=st.sampled_from(["ok", "ok", "error", "timed_out", "in_doubt"]))
    def tool_ends(self, outcome: str) -> None:
        out = next(effect for effect in react(self.pure.state) if isinstance(effect, AwaitTool))
        call = self.pure.state.open_call(out.turn, out.call)
        self.last_commit = len(self.pure.records)
        if call is not None and call.epoch == self.pure.epoch:
            self.pure.finish(out.turn, out.call, call.run, outcome)
        elif call is not None and self.pure.state.turns[out.turn].epoch == self.pure.epoch:
            self.pure.start(out.turn, out.call)  # recovery left it to be run again

    @precondition(lambda self: self.pure.state.running is not None)
    @rule()
    def turn_is_given_up(self) -> None:
        self.do(FailTurn(turn=self.pure.state.running, code="gave_up", message="enough"))

    @precondition(
        lambda self: any(turn.loop == "foreign" for turn in self.pure.state.turns.values())
    )
    @rule(calls=CALLS, pick=st.integers(0, 2))
    def foreign_loop_steps(self, calls: tuple[ProposedCall, ...], pick: int) -> None:
        pure = self.pure
        turn = next(turn for turn in pure.state.turns.values() if turn.loop == "foreign")
        ready = [
            call.call
            for call in turn.calls
            if call.status in (CallStatus.ALLOWED, CallStatus.APPROVED)
        ]
        self.last_commit = len(pure.records)
        if turn.phase is Phase.PARKED:
            self.do(ResumeTurn(turn=turn.id, epoch=pure.epoch))
        elif turn.phase is Phase.DECIDING:
            pure.decide_calls(turn.id)
        elif ready:
            pure.start(turn.id, ready[0])
        elif pick:
            self.do(ProposeCalls(turn=turn.id, calls=calls, text="", policy=pure.policy))
        else:
            self.do(EndTurn(turn=turn.id, policy=pure.policy, reply="done"))

    # --- crashes

    @rule(lost=st.integers(0, 4), recovers=st.booleans())
    def crash(self, lost: int, recovers: bool) -> None:
        """Any part of the last commit may be missing; what was there before it is not."""
        self.watch()
        kept = max(self.last_commit, len(self.pure.records) - lost)
        self.pure.crash(kept)
        self.watcher, self.watched = Watcher(), 0
        self.last_commit = kept
        if recovers:
            self.do(Recover(epoch=self.pure.epoch))

    @rule()
    def a_crash_changes_nothing_that_is_permitted(self) -> None:
        """
        A3: fork the machine here; the fork that crashes and recovers may do what the other may.
        """
        live, now, epoch = (
            self.pure.state,
            max(self.pure.now, self.pure.state.at),
            self.pure.epoch + 1,
        )
        recovered = commit(replay(self.pure.records), [Recover(epoch=epoch)], now=now)
        if any(isinstance(event, TurnEnded | CallFinished) for event in recovered.events):
            return  # something was in flight, and its outcome is now said to be unknown
        if any(turn.model_call is not None for turn in live.turns.values()):
            return  # it is repeated under a new number
        if any(turn.loop == "foreign" and not turn.parked for turn in live.turns.values()):
            return  # it is parked for its loop, and the queue goes on
        starts = {
            call: StartTool(
                turn=turn,
                bound=bound,
                policy=self.pure.policy,
                grants=self.pure.active_grants(),
                epoch=epoch,
            )
            for turn, call in startable(live)
            for bound in self.pure.bound(turn, call)
        }
        assert permitted(recovered.state, starts, EVERYBODY, now=now) == permitted(
            live, starts, EVERYBODY, now=now
        )

    # --- what always holds

    @invariant()
    def watch(self) -> None:
        for seq, event, state in self.pure.states_after(self.watched, None):
            self.watcher.saw(event, state, seq=seq, at=state.at)
        self.watched = len(self.pure.records)
        check_shared_view(self.pure.state)

    @invariant()
    def folds_are_prefix_stable(self) -> None:
        """fold(a + b) == fold(fold(a), b), and equal bytes give equal state."""
        events = [
            (seq, each.at, event)
            for seq, (each, event) in enumerate(
                zip(self.pure.records, self.pure.events(), strict=True), 1
            )
        ]
        half = len(events) // 2
        assert (
            fold(fold(initial(SESSION, INSTANCE), events[:half]), events[half:])
            == self.pure.state
            == replay(self.pure.records)
        )


SessionMachine.TestCase.settings = settings(
    max_examples=max(settings().max_examples, 60), stateful_step_count=40, deadline=None
)
TestSessionMachine = SessionMachine.TestCase
