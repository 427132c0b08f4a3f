"""
From the records and text pieces of one turn to the events of one run.

There are two ways to begin. A new message is streamed from its acceptance on. A repeat, and a run
that answers prompts, first restates the turn up to now in one snapshot, so that a client that has
seen parts of it neither misses nor doubles any. From there on both are the same.

Every message that is opened is closed, and exactly one event ends the run.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.gateway.agui.interrupts import interrupt_from_prompt
from holdfast.gateway.agui.protocol import (
    MessagesSnapshot,
    RunError,
    RunEvent,
    RunFinished,
    RunInput,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
)
from holdfast.gateway.streams.frames import PieceSent, RecordSent
from holdfast.ids import InputId, InstanceId, TurnId
from holdfast.runtime.reports.types import ApprovalReport
from holdfast.session.codec import decode
from holdfast.session.events import (
    CallFinished,
    InputAccepted,
    InputDropped,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    SessionEvent,
    TurnEnded,
    TurnParked,
    TurnResumed,
    TurnStarted,
)

_HEARD = frozenset(
    {
        "call_finished",
        "input_accepted",
        "input_dropped",
        "model_answer_dropped",
        "model_answered",
        "model_call_failed",
        "model_call_lost",
        "model_call_started",
        "turn_ended",
        "turn_parked",
        "turn_resumed",
        "turn_started",
    }
)


class RunEvents:
    """Owned by one stream, which feeds it in the order of the journal."""

    def __init__(
        self, run: RunInput, *, instance: InstanceId, turn: TurnId, restates: bool
    ) -> None:
        self._run = run
        self._instance = instance
        # The turn that is followed. It changes if another turn takes the message along.
        self.turn = turn
        self._input = InputId(f"i{turn[1:]}")
        self._restates = restates
        self._began = False
        self._number = 0
        # The run's messages so far, by id, as a snapshot shows them.
        self._messages: dict[str, dict[str, Any]] = {}
        # The text message that is open on the wire, and the part of it that was sent.
        self._open: str | None = None
        self._sent = ""
        # Pieces of the reply that is being written while the past is restated.
        self._held: list[PieceSent] = []
        self._ending: RunEvent | None = None
        self.is_parked = False
        self.is_over = False

    def hear(self, sent: RecordSent | PieceSent | str) -> list[RunEvent]:
        """Return the events for one frame of the session's stream."""
        if isinstance(sent, PieceSent):
            events = self._piece(sent)
        elif isinstance(sent, RecordSent):
            events = self._record(sent) if sent.type in _HEARD else []
        elif sent == "sealed":
            events = self._end(RunError(message="the session is sealed", code="sealed"))
        else:
            events = []
        return [] if self._restates else events

    def caught_up(self) -> list[RunEvent]:
        """Everything up to now was heard: send the snapshot, if one is due."""
        if not self._restates:
            return []
        self._restates = False
        events: list[RunEvent] = [self._snapshot()]
        for piece in self._held:
            events += self._piece(piece)
        self._held.clear()
        if self._ending is not None:
            events += self._end(self._ending)
        return events

    def interrupt(self, prompts: Sequence[ApprovalReport], *, person: str) -> list[RunEvent]:
        """The turn waits for people."""
        asked = [interrupt_from_prompt(each, person=person) for each in prompts]
        return self._end(self._finished({"type": "interrupt", "interrupts": asked}))

    def fail(self, code: str, message: str) -> list[RunEvent]:
        return self._end(RunError(code=code, message=message))

    # --- records

    def _record(self, sent: RecordSent) -> list[RunEvent]:
        event = decode(sent.type, sent.version, bytes(sent.body), seq=sent.seq)
        match event:
            case InputAccepted(turn=turn):
                self._began = self._began or turn == self.turn
                return []
            case InputDropped(input=dropped) if dropped == self._input:
                return self._end(self._finished({"type": "cancelled"}))
            case TurnStarted(turn=turn, inputs=inputs) if self._input in inputs:
                self.turn = turn
                return []
        if not self._began or getattr(event, "turn", None) != self.turn:
            return []
        return self._of_turn(event)

    def _of_turn(self, event: SessionEvent) -> list[RunEvent]:
        match event:
            case ModelCallStarted(number=number):
                self._number = number
                self._held.clear()
            case ModelAnswered():
                return self._answered(event)
            case ModelAnswerDropped(number=number, text=text):
                return self._text(number, text)
            case ModelCallFailed() | ModelCallLost():
                return self._withdrawn()
            case CallFinished():
                return self._result(event)
            case TurnParked():
                self.is_parked = True
            case TurnResumed():
                self.is_parked = False
            case TurnEnded():
                return self._ended(event)
            case _:
                pass
        return []

    def _answered(self, event: ModelAnswered) -> list[RunEvent]:
        name = self._message(event.number)
        events = self._text(event.number, event.text)
        for call in event.calls:
            events += [
                ToolCallStart(
                    tool_call_id=call.call, tool_call_name=call.tool, parent_message_id=name
                ),
                ToolCallArgs(tool_call_id=call.call, delta=call.arguments),
                ToolCallEnd(tool_call_id=call.call),
            ]
        if event.calls:
            message = self._messages.setdefault(name, {"id": name, "role": "assistant"})
            message["toolCalls"] = [
                {
                    "id": call.call,
                    "type": "function",
                    "function": {"name": call.tool, "arguments": call.arguments},
                }
                for call in event.calls
            ]
        return events

    def _result(self, event: CallFinished) -> list[RunEvent]:
        name = f"{self._prefix}{event.call}"
        metadata = {"outcome": event.outcome}
        self._messages[name] = {
            "id": name,
            "role": "tool",
            "toolCallId": event.call,
            "content": event.text,
            "metadata": metadata,
        }
        return [
            ToolCallResult(
                message_id=name,
                tool_call_id=event.call,
                content=event.text,
                role="tool",
                metadata=metadata,
            )
        ]

    def _ended(self, event: TurnEnded) -> list[RunEvent]:
        if event.outcome == "failed":
            said = "; ".join(part for part in (event.message, event.hint) if part)
            code = event.code or event.outcome
            return self._end(RunError(message=said or "the turn failed", code=code))
        if event.outcome == "completed":
            return self._end(self._finished({"type": "success"}, result={"turn": self.turn}))
        return self._end(self._finished({"type": "cancelled"}))

    # --- text

    def _piece(self, piece: PieceSent) -> list[RunEvent]:
        """
        Send the part of a reply that was not sent yet. After lost pieces, wait for the record: it
        has the whole text.
        """
        if piece.kind != "text" or piece.turn != self.turn or not self._number:
            return []
        if self._restates:
            self._held.append(piece)
            return []
        new = piece.text[len(self._sent) - piece.offset :]
        if piece.offset > len(self._sent) or not new:
            return []
        return self._say(self._message(self._number), new)

    def _say(self, name: str, text: str) -> list[RunEvent]:
        opening: list[RunEvent] = []
        if self._open is None:
            self._open = name
            opening.append(TextMessageStart(message_id=name, role="assistant"))
        self._sent += text
        return [*opening, TextMessageContent(message_id=name, delta=text)]

    def _close(self) -> list[RunEvent]:
        if self._open is None:
            return []
        closed, self._open, self._sent = self._open, None, ""
        return [TextMessageEnd(message_id=closed)]

    def _text(self, number: int, text: str) -> list[RunEvent]:
        """Complete a reply with its recorded text. If other words were sent, restate it."""
        name = self._message(number)
        if text:
            self._messages[name] = {"id": name, "role": "assistant", "content": text}
        if not text.startswith(self._sent):
            return [*self._close(), self._snapshot()]
        rest = text[len(self._sent) :]
        return [*(self._say(name, rest) if rest else []), *self._close()]

    def _withdrawn(self) -> list[RunEvent]:
        """The model's call failed, and its words do not count."""
        closed = self._close()
        return [*closed, self._snapshot()] if closed else []

    # --- the run

    @property
    def _prefix(self) -> str:
        """All ids of the turn's messages begin with it, and no others do."""
        return f"{self._instance[:8]}.{self.turn}."

    def _message(self, number: int) -> str:
        return f"{self._prefix}{number}"

    def _snapshot(self) -> MessagesSnapshot:
        """The client's own messages, with this turn as the journal has it."""
        theirs = [
            each
            for each in self._run.messages
            if not str(each.get("id", "")).startswith(self._prefix)
        ]
        return MessagesSnapshot(messages=[*theirs, *self._messages.values()])

    def _finished(self, outcome: dict[str, Any], result: Any = None) -> RunFinished:
        run = self._run
        return RunFinished(
            thread_id=run.thread_id, run_id=run.run_id, outcome=outcome, result=result
        )

    def _end(self, event: RunEvent) -> list[RunEvent]:
        if self._restates:
            self._ending = event
            return []
        self.is_over = True
        return [*self._close(), event]
