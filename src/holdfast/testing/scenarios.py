"""
The story book of a session: text in, events, phase and what is owed out.

A file is blocks of steps, a line `----`, and what must be seen, up to an empty line; lines with `#` before the first block say which promise the story is about.
`retold` replays a file through the real decide, evolve, react and codec and writes it anew, so a test compares the two, and `pytest --rewrite` makes the diff to review.

    >>> print(retold('submit "hello"\\nbegin\\n----\\n'), end="")
    submit "hello"
    begin
    ----
    2 InputAccepted i1 alice                               phase=-               owes=BeginTurn
    3 TurnStarted t1                                       phase=ready           owes=CallModel t1

Steps are the methods of `Teller` named `step_*`; words after the step are its arguments, `key=value` its options.
"""

import shlex
from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Any, cast

import msgspec

from holdfast.ids import ApprovalId, CallId, InstanceId, JobId, ReminderId, SessionId, TurnId, reminder_id
from holdfast.session.authority import Audience, LostContext, MessageSource, Workspace, context_from_source, narrowed
from holdfast.session.commands import (
    AcceptInput,
    Cancel,
    CancelJob,
    CancelReminder,
    CloseLife,
    EndJob,
    EndTurn,
    Expire,
    FailTurn,
    FireReminders,
    MarkDelivery,
    MarkReported,
    ParkTurn,
    ProposeCalls,
    QueueDelivery,
    RecordCompaction,
    RecordRecall,
    Recover,
    ReportEndedJob,
    ResumeTurn,
    SessionCommand,
    SetReminder,
    StartModelCall,
    StartTurn,
    TakeAnswer,
    TakeFailure,
)
from holdfast.session.decide import Committed
from holdfast.session.decide_answers import Answered
from holdfast.session.decide_inputs import Duplicate, OnlyAnAnswerWord
from holdfast.session.decide_reminders import IsSet
from holdfast.session.effects import (
    AwaitTool,
    BeginTurn,
    CallModel,
    Finish,
    LookAtCalls,
    Park,
    ReportJob,
    Resume,
    RunTools,
    SessionEffect,
)
from holdfast.session.events import (
    CallOutcome,
    DelegateOf,
    InputKind,
    JobOutcome,
    Loop,
)
from holdfast.session.messages import ModelAnswer
from holdfast.session.policy import Policy, Rule
from holdfast.session.react import react
from holdfast.session.recovery import CASES
from holdfast.session.schedule import Cron, Every, Once, Schedule
from holdfast.session.view import view_of
from holdfast.testing.memory_items import item
from holdfast.testing.pure_session import BACKGROUND, LIFE, PureSession, Stored, replay
from holdfast.testing.story_reading import BOUNDS, proposed_call, rule_of, source_of, span_ms
from holdfast.testing.story_words import StoryWords

SEPARATOR = "----"


def retold(text: str) -> str:
    """The story with what is really seen now. Equal to `text` when nothing changed."""
    teller = Teller()
    out: list[str] = []
    for block in text.rstrip("\n").split("\n\n"):
        steps, separator, _ = block.partition(f"\n{SEPARATOR}")
        if separator:
            out.append("\n".join([steps, SEPARATOR, *teller.tell(steps.split("\n"))]))
        else:
            out.append(block)
    return "\n\n".join(out) + "\n"


class Teller:
    """One story in the telling."""

    def __init__(self) -> None:
        self.pure = PureSession()
        self._said: list[str] = []
        # Short names in order of appearance, so that stories can be read: c1 for a call, a1 for a prompt.
        self._names: dict[str, str] = {}
        self._words = StoryWords(self._names)

    def tell(self, steps: Iterable[str]) -> list[str]:
        self._said = []
        for step in steps:
            if step.strip() and not step.startswith("#"):
                self._step(shlex.split(step))
        return self._said

    def _step(self, words: list[str]) -> None:
        verb, *rest = words
        options = dict(word.split("=", 1) for word in rest if "=" in word and " " not in word.split("=", 1)[0])
        plain = [word for word in rest if "=" not in word or " " in word.split("=", 1)[0]]
        method: Callable[..., None] = getattr(self, f"step_{verb.replace('-', '_')}")
        method(*plain, **options)

    # --- what is said

    def _do(self, *commands: SessionCommand) -> Committed:
        before = len(self.pure.records)
        committed = self.pure.do(*commands)
        self._say_events(before)
        for decided in committed.decided:
            if decided.refusal is not None:
                self._said.append(f"refused: {decided.refusal.code}")
        return committed

    def _say_events(self, before: int) -> None:
        for seq, (event, state) in enumerate(self.pure.states(), 1):
            if seq > before:
                self._said.append(self._words.line(seq, event, state))

    # --- messages

    def step_submit(self, text: str, by: str = "alice", on: str = "", dedup: str | None = None, **more: str) -> None:
        """`by=alice`, `by=bob@ops` (a team), `by=webhook:alice`, `by=nobody`; `quote=bob:text`, `kind=`, `loop=`, `model=`, `workspace=`."""
        source = source_of(by, more.get("quote"))
        workspace = Workspace(more["workspace"], "1:1") if "workspace" in more else None
        policy = msgspec.structs.replace(self.pure.policy, on_message=on) if on else self.pure.policy
        command = AcceptInput(
            text=text,
            source=source,
            agent="ops",
            model=more.get("model", "demo"),
            policy=policy,
            workspace=workspace,
            dedup=dedup,
            kind=cast(InputKind, more.get("kind", "message")),
            loop=cast(Loop, more.get("loop", "ours")),
        )
        match self._do(command).decided[-1].outcome:
            case Duplicate(turn=turn):
                self._said.append(f"duplicate of {turn}")
            case OnlyAnAnswerWord(approvals=approvals):
                self._said.append(f"told how to answer {', '.join(self._words.name(each) for each in approvals)}")
            case _:
                pass

    def step_as_delegate(self, task: str, by: str = "alice", path: str = "ops,helper", prompts: str = "20", tools: str = "") -> None:
        """Begin the story anew, as the session of a delegate that was handed this task."""
        parent = DelegateOf(
            session=SessionId("ops/parent"),
            instance=InstanceId("life-0"),
            turn=TurnId("t1"),
            call=CallId("c-parent"),
            path=tuple(path.split(",")),
            tools=tuple(tools.split(",")) if tools else tuple(sorted(self.pure.tools)),
            prompts_max=int(prompts),
        )
        self.pure = PureSession(parent)
        above = context_from_source(source_of(by, None), session=parent.session, instance=parent.instance, turn=parent.turn, workspace=None)
        context = narrowed(above, session=self.pure.state.session, instance=self.pure.state.instance, turn=TurnId("t1"), kind="delegate")
        accept = AcceptInput(text=task, source=None, agent="helper", model="demo", policy=self.pure.policy, kind="delegate", context=context)
        self._do(accept)

    def step_reported(self, became: str = "reported") -> None:
        """The delegate's parent knows how it ended."""
        self._do(MarkReported(became="reported" if became == "reported" else "dropped"))

    def step_begin(self) -> None:
        self._do(StartTurn(epoch=self.pure.epoch))

    # --- reminders

    def step_remind(self, text: str, by: str = "alice", call: str = "", prompts: str = "no", **when: str) -> None:
        """`in=10m` once, `every=1h`, or `cron="0 9 * * *"` in UTC; `prompts=yes` lets them reach the creator; `call=c1`: a tool's call sets it."""
        if "in" in when:
            schedule: Schedule = Once(self.pure.now + span_ms(when["in"]))
        else:
            schedule = Every(span_ms(when["every"]) // 1000, 0) if "every" in when else Cron(when["cron"], "UTC")
        command = SetReminder(
            reminder=reminder_id(LIFE, self._words.real(call) if call else f"{len(self.pure.records)}"),
            text=text,
            schedule=schedule,
            zone=UTC,
            may_prompt=prompts == "yes",
            source=None if call else source_of(by, when.get("quote")),
            turn=self._turn_of(call) if call else None,
            call=CallId(self._words.real(call)) if call else None,
            agent="ops",
            model="demo",
        )
        outcome = self._do(command).decided[-1]
        if isinstance(outcome.outcome, IsSet) and not outcome.events:
            self._said.append(f"{self._words.name(outcome.outcome.reminder)} was set before")

    def step_fire(self) -> None:
        """Whoever looks: what is due becomes inputs."""
        before = len(self.pure.records)
        self._do(FireReminders(zones={"UTC": UTC}))
        if len(self.pure.records) == before:
            self._said.append("nothing is due")

    def step_unremind(self, reminder: str, by: str = "alice", circle: str = "") -> None:
        audience, _, boundary = circle.partition("/")
        command = CancelReminder(reminder=ReminderId(self._words.real(reminder)), by=by, circle=(audience, boundary) if circle else None)
        committed = self._do(command)
        if committed.decided[-1].outcome and not committed.events:
            self._said.append(f"{reminder} {committed.decided[-1].outcome}")

    def step_inputs(self) -> None:
        """What waits in the queue, word for word."""
        for each in self.pure.state.queued:
            self._said.extend(f"  {each.input}: {line}" for line in each.text.split("\n") if line)

    # --- the model

    @property
    def _running(self) -> TurnId:
        return self.pure.state.running or TurnId("t?")

    def step_think(self, turn: str = "") -> None:
        self._do(StartModelCall(turn=TurnId(turn) if turn else self._running, epoch=self.pure.epoch, policy=self.pure.policy))

    def step_recall(
        self, *texts: str, person: str = "alice", team: str = "", taint: str = "clean", degraded: str | None = None, turn: str = ""
    ) -> None:
        """`recall "the code is 1" person=alice`: a store found these for the turn, whoever's they are."""
        boundary = f"team:{team}" if team else f"personal:{person}"
        items = tuple(
            item(str(number), text, audience="team" if team else "personal", boundary=boundary, person=person, tainted=taint != "clean")
            for number, text in enumerate(texts, 1)
        )
        self._do(RecordRecall(turn=TurnId(turn) if turn else self._running, items=items, degraded=degraded))

    def step_says(self, text: str, turn: str = "", number: str = "") -> None:
        self._take(turn, number, ModelAnswer(text=text))

    def step_calls(self, *calls: str, turn: str = "", number: str = "") -> None:
        """`calls "delete branch=old" "look"`: the model's answer is these calls."""
        self._take(turn, number, ModelAnswer(text="", calls=tuple(proposed_call(call) for call in calls)))

    def _take(self, turn: str, number: str, answer: ModelAnswer) -> None:
        name, call = self._out(turn, number)
        self._do(TakeAnswer(turn=name, number=call, answer=answer, policy=self.pure.policy))

    def _out(self, turn: str, number: str) -> tuple[TurnId, int]:
        name = TurnId(turn) if turn else self._running
        open_turn = self.pure.state.turns.get(name)
        return name, int(number) if number else (open_turn.model_calls if open_turn else 0)

    def step_fails(self, kind: str, final: str = "no") -> None:
        name, number = self._out("", "")
        self._do(TakeFailure(turn=name, number=number, kind=kind, message=f"the model said {kind}", final=final == "yes"))

    def step_proposes(self, *calls: str, turn: str = "") -> None:
        """A foreign loop's model asks for these."""
        name = TurnId(turn) if turn else self._running
        self._do(ProposeCalls(turn=name, calls=tuple(proposed_call(call) for call in calls), text="", policy=self.pure.policy))

    def step_view(self, turn: str = "") -> None:
        for message in view_of(self.pure.state.turns[TurnId(turn) if turn else self._running]):
            self._said.append(f"  {self._words.message(message)}")

    # --- calls

    def step_decide(self, turn: str = "") -> None:
        before = len(self.pure.records)
        self.pure.decide_calls(TurnId(turn) if turn else self._running)
        self._say_events(before)

    def step_start(self, call: str) -> None:
        before = len(self.pure.records)
        run = self.pure.start(self._turn_of(call), CallId(self._words.real(call)))
        self._say_events(before)
        if run is None:
            self._said.append(f"{call} does not start")

    def step_finish(self, call: str, outcome: str = "ok", text: str | None = None) -> None:
        before = len(self.pure.records)
        open_call = self.pure.state.open_call(self._turn_of(call), CallId(self._words.real(call)))
        committed = self.pure.finish(
            self._turn_of(call), CallId(self._words.real(call)), open_call.run if open_call else 0, cast(CallOutcome, outcome), text
        )
        self._say_events(before)
        if committed.decided[-1].outcome == "dropped":
            self._said.append(f"the outcome of {call} comes too late, and is dropped")

    def step_report(self, call: str, outcome: str = "ok", ended: str = "completed", text: str = "helped") -> None:
        """The delegate of that call tells how it ended."""
        before = len(self.pure.records)
        committed = self.pure.report(CallId(self._words.real(call)), ended, cast(CallOutcome, outcome), text)
        self._say_events(before)
        if committed.decided[-1].outcome == "dropped":
            self._said.append(f"nobody waits for the delegate of {call}")

    def step_run(self, call: str) -> None:
        self.step_start(call)
        self.step_finish(call)

    def _goes_on_beside(self, turn: TurnId, call: CallId) -> bool:
        """Whether its start is all that this turn does for it: a job, or a delegate."""
        made = self.pure.state.open_call(turn, call)
        tool = self.pure.tools.get(made.tool) if made is not None else None
        return tool is not None and (tool.kind == "delegate" or tool.name in BACKGROUND)

    def _turn_of(self, call: str) -> TurnId:
        real = self._words.real(call)
        return next((turn.turn for turn in self.pure.state.turns.values() if any(each.call == real for each in turn.calls)), TurnId("t?"))

    def step_park(self, turn: str = "") -> None:
        name = TurnId(turn) if turn else self._running
        open_turn = self.pure.state.turns.get(name)
        self._do(ParkTurn(turn=name, born=tuple(call.call for call in open_turn.delegated) if open_turn is not None else ()))

    def step_resume(self, turn: str) -> None:
        self._do(ResumeTurn(turn=TurnId(turn), epoch=self.pure.epoch))

    def step_end(self, turn: str = "", reply: str | None = None) -> None:
        self._do(EndTurn(turn=TurnId(turn) if turn else self._running, policy=self.pure.policy, reply=reply))

    def step_fail(self, code: str, turn: str = "") -> None:
        self._do(FailTurn(turn=TurnId(turn) if turn else self._running, code=code, message=f"ended for {code}"))

    # --- jobs

    def step_job_ends(self, job: str, outcome: str = "ok", text: str = "dug") -> None:
        """Somebody found out how it ended."""
        committed = self._do(EndJob(job=JobId(self._words.real(job)), outcome=cast(JobOutcome, outcome), text=text))
        if committed.decided[-1].outcome == "dropped":
            self._said.append(f"the end of {job} is known, or nobody knows {job}")

    def step_report_job(self, job: str) -> None:
        self._do(ReportEndedJob(job=JobId(self._words.real(job))))

    def step_cancel_job(self, job: str, by: str = "alice") -> None:
        """In the circle that a message of theirs would be in."""
        source = source_of(by, None) or MessageSource.none()
        circle = {"audience": source.audience, "boundary": source.boundary}
        self._do(CancelJob(job=JobId(self._words.real(job)), by=source.person or "nobody", **circle))  # type: ignore[arg-type]  # as the fields are

    def step_jobs(self) -> None:
        for job in self.pure.state.jobs.values():
            context = job.context
            whose = f"lost: {context.reason}" if isinstance(context, LostContext) else f"{context.requester} {context.boundary} {context.interactive}"
            self._said.append(f"  {self._words.name(job.job)} {job.tool} {'ended' if job.ended else 'runs'}, for {whose}")
        for name, over in self.pure.state.ended_jobs.items():
            self._said.append(f"  {self._words.name(name)} is over: {over.outcome}" + (f" ({over.code})" if over.code else ""))

    def step_damage_job(self, field: str) -> None:
        """The last record is a job's, and its context loses a field; genuine otherwise, as by somebody with the key."""
        last = self.pure.records.pop()
        body = msgspec.json.decode(last.body)
        del body["context"][field]
        self.pure.records.append(Stored(last.type, last.version, msgspec.json.encode(body), last.at))
        self.pure.state = replay(self.pure.records)

    def step_new_life(self) -> None:
        """What an unseal, fork or restore does with what is open."""
        self._do(CloseLife(by="alice", reason="carried over"))

    # --- people

    def step_show(self, approval: str) -> None:
        """The prompt as a person sees it."""
        where = self.pure.state.approvals[ApprovalId(self._words.real(approval))]
        call = self.pure.state.open_call(where[0], where[1])
        if call is not None and call.approval is not None:
            asked = call.approval.asked
            self._said.extend(f"  {line}" for line in (*asked.display.split("\n"), "options: " + " ".join(each.option for each in asked.options)))

    def step_answer(self, approval: str, option: str, by: str = "alice", id: str = "", **more: str) -> None:  # noqa: A002  # the word people use
        before = len(self.pure.records)
        if id:
            more["answer_id"] = id
        committed = self.pure.answer(ApprovalId(self._words.real(approval)), option, by, **more)
        self._say_events(before)
        decided = committed.decided[-1]
        if decided.refusal is not None:
            self._said.append(f"refused: {decided.refusal.code}")
        elif isinstance(decided.outcome, Answered):
            again = "again, " if decided.outcome.again else ""
            self._said.append(f"{again}deferred" if decided.outcome.waiting else f"{again}goes on")

    def step_revoke(self, grant: str) -> None:
        del self.pure.grants[grant]

    def step_cancel(self, by: str = "alice", turn: str = "", all: str = "no") -> None:  # noqa: A002  # the word people use
        self._do(Cancel(by=by, turn=TurnId(turn) if turn else None, may_all=all == "yes"))

    # --- time, settings, the world

    def step_wait(self, span: str) -> None:
        self.pure.now += span_ms(span)

    def step_clock_back(self, span: str) -> None:
        self.pure.now -= span_ms(span)

    def step_expire(self) -> None:
        self._do(Expire())

    def step_policy(self, **settings: str) -> None:
        """`policy personal.delete=deny`, `=ask:bob,carol`, `=ask:bob:only` (the requester may not), `=ask:` (nobody); `prompts=1`."""
        rules: dict[Audience, dict[str, Rule]] = {audience: dict(of) for audience, of in self.pure.policy.rules.items()}
        more: dict[str, Any] = {}
        for name, value in settings.items():
            audience, dot, tool = name.partition(".")
            if dot:
                rules.setdefault(Audience(audience), {})[tool] = rule_of(value)
            else:
                more[BOUNDS[name]] = int(value)
        self.pure.policy = msgspec.structs.replace(self.pure.policy, rules=rules, **more)

    def step_policy_reset(self) -> None:
        self.pure.policy = Policy()

    def step_world(self, identity: str = "", confined: str = "", lacks: str = "", changes: str = "", grants: str = "") -> None:
        """`identity=` another folder, `confined=no`, `lacks=delete` a tool gone, `changes=delete` its definition, `grants=lost` can't be kept."""
        pure = self.pure
        pure.identity = identity or pure.identity
        pure.confined = confined != "no" if confined else pure.confined
        pure.keeps_grants = grants != "lost" if grants else pure.keeps_grants
        if lacks:
            del pure.tools[lacks]
        if changes:
            pure.tools[changes] = msgspec.structs.replace(pure.tools[changes], code="another")

    # --- compaction, deliveries

    def step_compact(self, turns: str, summary: str, compactions: str = "", before: str = "1000", after: str = "10") -> None:
        """`before=` and `after=` are tokens."""
        number = int(compactions) if compactions else self.pure.state.compactions
        committed = self._do(
            RecordCompaction(
                summary=summary, turns=int(turns), compactions=number, tokens_before=int(before), tokens_after=int(after), trigger="overflow"
            )
        )
        if (outcome := committed.decided[-1].outcome) not in (None, "compacted"):
            self._said.append(str(outcome))

    def step_deliver(self, text: str, turn: str, part: str = "1") -> None:
        self._do(QueueDelivery(turn=TurnId(turn), channel="slack", part=part, kind="reply", text=text))

    def step_delivery(self, became: str) -> None:
        for delivery in list(self.pure.state.deliveries):
            self._do(MarkDelivery(delivery=delivery, became=became))

    # --- crashes

    def step_crash(self, losing: str = "0") -> None:
        """`losing=2`: the last two records were not durable yet."""
        self.pure.crash(len(self.pure.records) - int(losing))

    def step_recover(self) -> None:
        before = len(self.pure.records)
        committed = self.pure.do(Recover(epoch=self.pure.epoch))
        for turn, letter in committed.decided[-1].outcome:
            self._said.append(f"{turn} is case {letter}: {next(case.sentence for case in CASES if case.letter == letter)}")
        self._say_events(before)

    def step_owes(self) -> None:
        self._said.append(f"owes={self._words.owes(self.pure.state)}")

    # --- what a driver does by itself

    def step_go(self) -> None:
        """Do what is owed until only a model, a person or nobody can move it on. Tools say `done`."""
        for _ in range(100):
            before = len(self.pure.records)
            if not any(self._perform(effect) for effect in react(self.pure.state)):
                return
            if len(self.pure.records) == before:
                self._said.append("owed, but nothing moves")
                return

    def _perform(self, effect: SessionEffect) -> bool:
        match effect:
            case BeginTurn():
                self.step_begin()
            case Resume(turn=turn):
                self.step_resume(turn)
            case CallModel(turn=turn):
                self.step_think(turn)
            case LookAtCalls(turn=turn):
                self.step_decide(turn)
            case RunTools(turn=turn, calls=calls):
                for call in calls:
                    (self.step_start if self._goes_on_beside(turn, call) else self.step_run)(self._words.name(call))
            case AwaitTool(call=call, epoch=epoch) if epoch < self.pure.epoch:
                self.step_run(self._words.name(call))
            case Park(turn=turn):
                self.step_park(turn)
            case Finish(turn=turn):
                self.step_end(turn)
            case ReportJob(job=job):
                self.step_report_job(job)
            case _:
                return False
        return True
