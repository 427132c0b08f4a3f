"""Steps of a turn: a message, the model, its calls, its end."""

from typing import cast

import msgspec

from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.session.authority.context import Workspace, context_from_source, narrowed
from holdfast.session.commands import (
    AcceptInput,
    AddItem,
    EndTurn,
    FailTurn,
    KeepState,
    LeaveLoop,
    MarkReported,
    ParkTurn,
    ProposeCalls,
    RecordRecall,
    RemoveItems,
    ResumeTurn,
    StartModelCall,
    StartTurn,
    TakeAnswer,
    TakeFailure,
    TakeUpLoop,
)
from holdfast.session.events import Blob, CallOutcome, DelegateOf, InputKind, Loop
from holdfast.session.results import Duplicate, OnlyAnAnswerWord
from holdfast.session.view.build import view_of
from holdfast.session.view.messages import ModelAnswer
from holdfast.testing.memory_items import item
from proof.scenarios.pure_session import PureSession
from proof.scenarios.steps_reading import proposed_call, source_of
from proof.scenarios.telling import Telling


class TurnSteps(Telling):
    # --- messages

    def step_submit(
        self, text: str, by: str = "alice", on: str = "", dedup: str | None = None, **more: str
    ) -> None:
        """
        `by=alice`, `by=bob@ops` (a team), `by=webhook:alice`, `by=nobody`; `quote=bob:text`,
        `kind=`, `loop=`, `model=`, `workspace=`.
        """
        source = source_of(by, more.get("quote"))
        workspace = Workspace(more["workspace"], "1:1") if "workspace" in more else None
        policy = (
            msgspec.structs.replace(self.pure.policy, on_message=on) if on else self.pure.policy
        )
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
                self._said.append(
                    f"told how to answer {', '.join(self._words.name(each) for each in approvals)}"
                )
            case _:
                pass

    def step_as_delegate(
        self,
        task: str,
        by: str = "alice",
        path: str = "ops,helper",
        prompts: str = "20",
        tools: str = "",
    ) -> None:
        """Restart the scenario as the session of a delegate that was given this task."""
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
        above = context_from_source(
            source_of(by, None),
            session=parent.session,
            instance=parent.instance,
            turn=parent.turn,
            workspace=None,
        )
        context = narrowed(
            above,
            session=self.pure.state.session,
            instance=self.pure.state.instance,
            turn=TurnId("t1"),
            kind="delegate",
        )
        accept = AcceptInput(
            text=task,
            source=None,
            agent="helper",
            model="demo",
            policy=self.pure.policy,
            kind="delegate",
            context=context,
        )
        self._do(accept)

    def step_reported(self, became: str = "reported") -> None:
        """Record that the delegate's parent knows the outcome."""
        self._do(MarkReported(became="reported" if became == "reported" else "dropped"))

    def step_begin(self) -> None:
        self._do(StartTurn(epoch=self.pure.epoch))

    # --- the model

    def step_think(self, turn: str = "") -> None:
        self._do(
            StartModelCall(
                turn=TurnId(turn) if turn else self._running,
                epoch=self.pure.epoch,
                policy=self.pure.policy,
            )
        )

    def step_recall(
        self,
        *texts: str,
        person: str = "alice",
        team: str = "",
        taint: str = "clean",
        degraded: str | None = None,
        turn: str = "",
    ) -> None:
        """
        `recall "the code is 1" person=alice`: a store returned these items for the turn, of any
        person.
        """
        boundary = f"team:{team}" if team else f"personal:{person}"
        items = tuple(
            item(
                str(number),
                text,
                audience="team" if team else "personal",
                boundary=boundary,
                person=person,
                tainted=taint != "clean",
            )
            for number, text in enumerate(texts, 1)
        )
        self._do(
            RecordRecall(
                turn=TurnId(turn) if turn else self._running, items=items, degraded=degraded
            )
        )

    def step_says(self, text: str, turn: str = "", number: str = "") -> None:
        self._take(turn, number, ModelAnswer(text=text))

    def step_calls(self, *calls: str, turn: str = "", number: str = "") -> None:
        """`calls "delete branch=old" "look"`: the model's answer is these calls."""
        self._take(
            turn, number, ModelAnswer(text="", calls=tuple(proposed_call(call) for call in calls))
        )

    def _take(self, turn: str, number: str, answer: ModelAnswer) -> None:
        name, call = self._out(turn, number)
        self._do(TakeAnswer(turn=name, number=call, answer=answer, policy=self.pure.policy))

    def _out(self, turn: str, number: str) -> tuple[TurnId, int]:
        name = TurnId(turn) if turn else self._running
        open_turn = self.pure.state.turns.get(name)
        return name, int(number) if number else (open_turn.model_calls if open_turn else 0)

    def step_fails(
        self, kind: str, final: str = "no", wait: str = "0", asks: str = "", hint: str = ""
    ) -> None:
        """`wait` is the first wait of the back-off in seconds, `asks` the provider's own."""
        name, number = self._out("", "")
        self._do(
            TakeFailure(
                turn=name,
                number=number,
                kind=kind,
                message=f"the model said {kind}",
                final=final == "yes",
                hint=hint or None,
                first_wait_seconds=float(wait),
                retry_after_seconds=float(asks) if asks else None,
                retry_for_seconds=self.pure.policy.model_retry_for_seconds,
            )
        )

    def step_proposes(self, *calls: str, turn: str = "") -> None:
        """The model of an external loop requests these calls."""
        name = TurnId(turn) if turn else self._running
        self._do(
            ProposeCalls(
                turn=name,
                calls=tuple(proposed_call(call) for call in calls),
                text="",
                policy=self.pure.policy,
            )
        )

    def step_leaves(self, turn: str = "") -> None:
        """The external loop leaves its turn, or its program ends in an orderly way."""
        self._do(LeaveLoop(turn=TurnId(turn) if turn else self._running))

    def step_takes_up(self, turn: str) -> None:
        """Another external loop takes the turn up."""
        self._do(TakeUpLoop(turn=TurnId(turn), epoch=self.pure.epoch))

    def step_keeps(self, text: str, turn: str = "", adapter: str = "story/1") -> None:
        """The framework of an external loop keeps its state."""
        blob = Blob(adapter=adapter, size=len(text), text=text)
        self._do(KeepState(turn=TurnId(turn) if turn else self._running, blob=blob))

    def step_adds(self, text: str, adapter: str = "story/1") -> None:
        """A framework adds an item to its history."""
        self._do(AddItem(blob=Blob(adapter=adapter, size=len(text), text=text)))

    def step_removes(self, adapter: str = "story/1") -> None:
        """A framework removes its history."""
        self._do(RemoveItems(adapter=adapter))

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
            self._turn_of(call),
            CallId(self._words.real(call)),
            open_call.run if open_call else 0,
            cast(CallOutcome, outcome),
            text,
        )
        self._say_events(before)
        if committed.decided[-1].outcome == "dropped":
            self._said.append(f"the outcome of {call} comes too late, and is dropped")

    def step_report(
        self, call: str, outcome: str = "ok", ended: str = "completed", text: str = "helped"
    ) -> None:
        """The delegate of that call reports its outcome."""
        before = len(self.pure.records)
        committed = self.pure.report(
            CallId(self._words.real(call)), ended, cast(CallOutcome, outcome), text
        )
        self._say_events(before)
        if committed.decided[-1].outcome == "dropped":
            self._said.append(f"nobody waits for the delegate of {call}")

    def step_run(self, call: str) -> None:
        self.step_start(call)
        self.step_finish(call)

    def step_park(self, turn: str = "") -> None:
        name = TurnId(turn) if turn else self._running
        open_turn = self.pure.state.turns.get(name)
        self._do(
            ParkTurn(
                turn=name,
                existing=tuple(call.call for call in open_turn.delegated)
                if open_turn is not None
                else (),
            )
        )

    def step_resume(self, turn: str) -> None:
        self._do(ResumeTurn(turn=TurnId(turn), epoch=self.pure.epoch))

    def step_end(self, turn: str = "", reply: str | None = None) -> None:
        self._do(
            EndTurn(
                turn=TurnId(turn) if turn else self._running, policy=self.pure.policy, reply=reply
            )
        )

    def step_fail(self, code: str, turn: str = "") -> None:
        self._do(
            FailTurn(
                turn=TurnId(turn) if turn else self._running, code=code, message=f"ended for {code}"
            )
        )
