"""
From records to spans: one step per record.

One trace per drive. A drive ends when its turn parks or ends. The next drive is a trace of its own
with a link to the drive before, so a wait of days is never an open span.
"""

from typing import NamedTuple

import msgspec

from holdfast.session import events
from holdfast.session.view.messages import Usage
from holdfast.telemetry.span import Span, span_id, trace_id
from holdfast.telemetry.span_maker import Attributes, SpanMaker, link_to
from holdfast.telemetry.trace_state import (
    OpenCall,
    OpenDelivery,
    OpenJob,
    OpenTurn,
    SpanPlace,
    TraceState,
)


class TraceStep(NamedTuple):
    state: TraceState
    spans: tuple[Span, ...] = ()


def trace(
    state: TraceState, event: events.Event, *, at: int, with_content: bool = False
) -> TraceStep:
    """Return the state after this record, and the spans that it completes."""
    if isinstance(event, events.SessionBorn):
        return TraceStep(
            TraceState(
                session=event.session,
                instance=event.instance,
                parent=event.parent.session if event.parent else None,
                carried=event.carried,
            )
        )
    if state.carried:
        return TraceStep(msgspec.structs.replace(state, carried=state.carried - 1))
    return _Tracer(state, at, with_content=with_content).step(event)


class _Tracer:
    """One step: the state before, and what it becomes."""

    def __init__(self, state: TraceState, at: int, *, with_content: bool) -> None:
        self._state = state
        self._turns = dict(state.turns)
        self._jobs = dict(state.jobs)
        self._deliveries = dict(state.deliveries)
        self._at = at
        self._make = SpanMaker(state, at, with_content=with_content)

    def step(self, event: events.Event) -> TraceStep:
        match event:
            case events.InputAccepted():
                self._turns[event.turn] = OpenTurn(
                    agent=event.agent,
                    model=_label(event.model),
                    accepted_at=self._at,
                    kind=event.kind,
                    loop=event.loop,
                    text=self._make.content(event.text),
                )
            case events.JobEnded():
                self._job_ended(event)
            case events.DeliveryQueued():
                self._deliveries[event.delivery] = OpenDelivery(
                    turn=event.turn, kind=event.kind, queued_at=self._at
                )
            case events.DeliveryConfirmed() | events.DeliveryFailed():
                self._delivery_ended(event)
            case _:
                name = getattr(event, "turn", None)
                if name is not None and (turn := self._turns.get(name)) is not None:
                    self._step_of_turn(event, name, turn)
        after = msgspec.structs.replace(
            self._state, turns=self._turns, jobs=self._jobs, deliveries=self._deliveries
        )
        return TraceStep(after, tuple(self._make.spans))

    def _step_of_turn(self, event: events.Event, name: str, turn: OpenTurn) -> None:
        match event:
            case events.TurnStarted() | events.TurnResumed():
                if turn.drive_at is not None:  # the drive before died
                    self._make.end_drive(
                        name, turn, "lost", ended_at=turn.seen_at, error_type="lost"
                    )
                self._put(name, turn, drive=turn.drive + 1, drive_at=self._at)
            case events.TurnParked():
                self._make.end_drive(name, turn, "parked")
                self._put(name, turn, drive_at=None)
            case events.TurnEnded():
                self._turn_ended(event, name, turn)
            case events.ModelCallStarted():
                self._put(
                    name,
                    turn,
                    model_number=event.number,
                    model_name=_label(event.model),
                    model_at=self._at,
                )
            case (
                events.ModelAnswered()
                | events.ModelCallFailed()
                | events.ModelCallLost()
                | events.ModelAnswerDropped()
            ):
                self._model_ended(event, name, turn)
            case events.CallsProposed():
                self._calls_proposed(event, name, turn)
            case events.ApprovalRequested():
                self._asked(event, name, turn)
            case events.ApprovalAnswered() | events.ApprovalClosed():
                self._prompt_closed(event, name, turn)
            case events.ToolStarted() | events.DelegateStarted():
                self._call_started(event, name, turn)
            case events.CallFinished():
                self._call_finished(event, name, turn)
            case events.JobSubmitted():
                place = self._make.call_place(event.call, turn.calls.get(event.call))
                self._jobs[event.job] = OpenJob(tool=event.tool, submitted_at=self._at, call=place)
                self._put(name, turn)
            case _:
                self._put(name, turn)

    def _put(self, name: str, turn: OpenTurn, **changes: object) -> None:
        self._turns[name] = msgspec.structs.replace(turn, seen_at=self._at, **changes)

    # --- Drives

    def _turn_ended(self, event: events.TurnEnded, name: str, turn: OpenTurn) -> None:
        for call, open_call in turn.calls.items():
            if open_call.started_at is not None:
                self._make.end_call(name, call, open_call, "in_doubt", error_type="in_doubt")
        if turn.drive_at is None:  # it ended while it was parked: a drive without a length
            turn = msgspec.structs.replace(turn, drive=turn.drive + 1)
        failed = (event.code or "failed") if event.outcome == "failed" else None
        self._make.end_drive(
            name, turn, event.outcome, error_type=failed, reply=self._make.content(event.reply)
        )
        del self._turns[name]

    # --- Model calls

    def _model_ended(
        self,
        event: (
            events.ModelAnswered
            | events.ModelCallFailed
            | events.ModelCallLost
            | events.ModelAnswerDropped
        ),
        name: str,
        turn: OpenTurn,
    ) -> None:
        calls = dict(turn.calls)
        usage, error_type, text = Usage(), None, None
        match event:
            case events.ModelAnswered():
                usage, text = event.usage, self._make.content(event.text)
                calls |= self._made(event.calls)
            case events.ModelAnswerDropped():
                usage, error_type = event.usage, "dropped"
            case events.ModelCallFailed():
                error_type = event.kind
            case events.ModelCallLost():
                error_type = "lost"
        if turn.model_number == event.number:
            self._make.chat(
                name,
                turn,
                event.number,
                model=turn.model_name,
                started_at=turn.model_at,
                usage=usage,
                error_type=error_type,
                text=text,
            )
        self._put(name, turn, model_number=None, calls=calls)

    def _calls_proposed(self, event: events.CallsProposed, name: str, turn: OpenTurn) -> None:
        """An external loop reports the answer only. Its model call has no length here."""
        self._make.chat(
            name,
            turn,
            event.number,
            model=_label(event.model) if event.model else turn.model,
            started_at=self._at,
            usage=event.usage,
            text=self._make.content(event.text),
        )
        self._put(name, turn, calls=dict(turn.calls) | self._made(event.calls))

    def _made(self, calls: tuple[events.CallMade, ...]) -> dict[str, OpenCall]:
        return {
            made.call: OpenCall(tool=made.tool, arguments=self._make.content(made.arguments))
            for made in calls
        }

    # --- Prompts

    def _asked(self, event: events.ApprovalRequested, name: str, turn: OpenTurn) -> None:
        drive = self._make.drive_place(name, turn.drive)
        place = SpanPlace(drive.trace_id, span_id("ask", self._state.instance, event.approval))
        self._make.add(
            name,
            f"ask_approval {event.tool}",
            place,
            parent_id=drive.span_id,
            started_at=self._at,
            attributes={
                "gen_ai.tool.name": event.tool,
                "gen_ai.tool.call.id": event.call,
                "holdfast.approval.id": event.approval,
                "holdfast.approval.kind": event.kind,
                "holdfast.approval.risks": len(event.risks),
            },
        )
        call = turn.calls.get(event.call) or OpenCall(tool=event.tool)
        call = msgspec.structs.replace(call, asked=place, asked_at=self._at)
        self._put(name, turn, calls={**turn.calls, event.call: call})

    def _prompt_closed(
        self, event: events.ApprovalAnswered | events.ApprovalClosed, name: str, turn: OpenTurn
    ) -> None:
        call = turn.calls.get(event.call)
        if call is None or call.asked is None:
            self._put(name, turn)
            return
        attributes: Attributes = {
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": event.call,
            "holdfast.approval.id": event.approval,
            "holdfast.approval.wait_seconds": (self._at - call.asked_at) / 1000,
        }
        if isinstance(event, events.ApprovalAnswered):
            attributes["holdfast.approval.option"] = event.option
            if event.way:
                attributes["holdfast.approval.way"] = event.way
        else:
            attributes["holdfast.approval.closed_as"] = event.closed_as
        parts = ("close", self._state.instance, event.approval)
        self._make.add(
            name,
            f"close_approval {call.tool}",
            SpanPlace(trace_id(*parts), span_id(*parts)),
            started_at=self._at,
            attributes=attributes,
            links=(link_to(call.asked, "answers"),),
        )
        self._put(name, turn)

    # --- Calls

    def _call_started(
        self, event: events.ToolStarted | events.DelegateStarted, name: str, turn: OpenTurn
    ) -> None:
        tool = event.tool if isinstance(event, events.ToolStarted) else event.agent
        call = turn.calls.get(event.call) or OpenCall(tool=tool)
        run = event.run if isinstance(event, events.ToolStarted) else 1
        if call.started_at is not None:  # a safe tool runs again after a crash
            self._make.end_call(name, event.call, call, "lost", error_type="lost")
        drive = self._make.drive_place(name, turn.drive)
        call = msgspec.structs.replace(
            call,
            started_at=self._at,
            run=run,
            trace_id=drive.trace_id,
            parent_id=drive.span_id,
            arguments=self._make.content(event.arguments),
        )
        self._put(name, turn, calls={**turn.calls, event.call: call})

    def _call_finished(self, event: events.CallFinished, name: str, turn: OpenTurn) -> None:
        calls = dict(turn.calls)
        call = calls.pop(event.call, None)
        if call is not None and call.started_at is not None:
            is_error = event.outcome in {"error", "timed_out", "in_doubt"}
            self._make.end_call(
                name,
                event.call,
                call,
                event.outcome,
                error_type=(event.code or event.outcome) if is_error else None,
                result=self._make.content(event.text),
            )
        elif call is not None:
            self._refused(name, turn, event, call)
        self._put(name, turn, calls=calls)

    def _refused(
        self, name: str, turn: OpenTurn, event: events.CallFinished, call: OpenCall
    ) -> None:
        """A call that never ran has a span without a length, and a name of its own."""
        drive = self._make.drive_place(name, turn.drive)
        self._make.add(
            name,
            f"refuse_tool {call.tool}",
            SpanPlace(drive.trace_id, span_id("refuse", self._state.instance, event.call)),
            parent_id=drive.span_id,
            started_at=self._at,
            attributes={
                "gen_ai.tool.name": call.tool,
                "gen_ai.tool.call.id": event.call,
                "holdfast.call.outcome": event.outcome,
            },
            links=(link_to(call.asked, "asks"),) if call.asked else (),
        )

    def _job_ended(self, event: events.JobEnded) -> None:
        job = self._jobs.pop(event.job, None)
        if job is None:
            return
        parts = ("job", self._state.instance, event.job)
        self._make.add(
            event.turn,
            f"run_job {job.tool}",
            SpanPlace(trace_id(*parts), span_id(*parts)),
            started_at=job.submitted_at,
            error_type=None if event.outcome == "ok" else (event.code or event.outcome),
            attributes={
                "gen_ai.tool.name": job.tool,
                "holdfast.job.id": event.job,
                "holdfast.job.outcome": event.outcome,
            },
            links=(link_to(job.call, "submitted_by"),) if job.call.trace_id else (),
        )

    def _delivery_ended(self, event: events.DeliveryConfirmed | events.DeliveryFailed) -> None:
        delivery = self._deliveries.pop(event.delivery, None)
        if delivery is None:
            return
        parts = ("delivery", self._state.instance, event.delivery)
        code = event.code if isinstance(event, events.DeliveryFailed) else None
        self._make.add(
            delivery.turn,
            f"deliver {delivery.kind}",
            SpanPlace(trace_id(*parts), span_id(*parts)),
            started_at=delivery.queued_at,
            error_type=code,
            attributes={
                "holdfast.delivery.kind": delivery.kind,
                "holdfast.delivery.outcome": code or "confirmed",
            },
        )

    # --- Spans


def _label(model: str) -> str:
    """
    Return the model's name without a path of the user's files.

    >>> _label("script:/home/me/talk.py"), _label("anthropic:claude-sonnet-5")
    ('script', 'anthropic:claude-sonnet-5')
    """
    return "script" if model.startswith("script:") else model
