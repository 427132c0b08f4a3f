"""
Render a scenario: one line for each event, the owed work after it, and short names for unreadable
ids.

Short names come in order of appearance, c1 for the first call and a1 for the first prompt, so that
a scenario reads the same on every run.
"""

from holdfast.ids import TurnId
from holdfast.session.authority.context import LostContext
from holdfast.session.effects import (
    AwaitModel,
    AwaitTool,
    BeginTurn,
    CreateDelegate,
    Deliver,
    LookAtCalls,
    ReportJob,
    ReportToParent,
    RunTools,
    SessionEffect,
    StopDelegate,
)
from holdfast.session.events import (
    CallFinished,
    DelegateEnded,
    DelegateStarted,
    InputAccepted,
    InputDropped,
    JobEnded,
    MemoryRecalled,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
    SessionEvent,
    ToolStarted,
    TurnEnded,
    TurnResumed,
)
from holdfast.session.react import react
from holdfast.session.state import SessionState
from holdfast.session.view.messages import (
    AssistantMessage,
    Message,
    NoteMessage,
    ResultMessage,
    UserMessage,
)


class StoryWords:
    """
    The names of one scenario. `Telling` owns the mapping from real ids to short names; only this
    class adds to it.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def name(self, real: str) -> str:
        if not real.startswith(("c-", "a-", "r-", "j-")):
            return real
        if real not in self._names:
            letter = real[0]
            self._names[real] = (
                f"{letter}{sum(name.startswith(letter) for name in self._names.values()) + 1}"
            )
        return self._names[real]

    def real(self, short: str) -> str:
        return next((real for real, name in self._names.items() if name == short), short)

    def line(self, seq: int, event: SessionEvent, state: SessionState) -> str:
        turn = state.turns.get(getattr(event, "turn", TurnId("")))
        phase = turn.phase.value if turn is not None else "-"
        head = " ".join(filter(None, [str(seq), type(event).__name__, self._detail(event, state)]))
        return f"{head:<54} phase={phase:<15} owes={self.owes(state)}"

    def _detail(self, event: SessionEvent, state: SessionState) -> str:  # noqa: PLR0911  one line per sort of event
        match event:
            case InputAccepted(input=name):
                context = next(each.context for each in state.queued if each.input == name)
                who = "lost" if isinstance(context, LostContext) else context.requester or "nobody"
                return f"{name} {who}" + (
                    f" supersedes {','.join(event.supersedes)}" if event.supersedes else ""
                )
            case InputDropped(input=name):
                return name
            case MemoryRecalled(items=items, degraded=degraded):
                return f"{event.turn} {' '.join(each.memory for each in items)}" + (
                    f" ({degraded})" if degraded else ""
                )
            case CallFinished():
                return f"{self.name(event.call)} {event.outcome}" + (
                    f" ({event.code})" if event.code and event.code != event.outcome else ""
                )
            case ToolStarted():
                return f"{self.name(event.call)} {event.tool} by {self.name(event.allowed_by)}" + (
                    f" run {event.run}" if event.run > 1 else ""
                )
            case DelegateStarted() | DelegateEnded():
                return f"{self.name(event.call)} " + (
                    event.outcome
                    if isinstance(event, DelegateEnded)
                    else f"{event.agent} by {self.name(event.allowed_by)}"
                )
            case ModelAnswered(calls=calls):
                return f"{event.turn} #{event.number} " + (
                    ", ".join(f"{self.name(call.call)} {call.tool}" for call in calls)
                    or repr(event.text)
                )
            case ModelAnswerDropped():
                return f"{event.turn} #{event.number} {event.reason}"
            case ModelCallFailed():
                later_ms = (event.retry_at or 0) - (event.since or 0)
                return f"{event.turn} #{event.number} {event.kind}" + (
                    f", next +{later_ms / 1000:g} s" if later_ms > 0 else ""
                )
            case JobEnded():
                return f"{self.name(event.job)} {event.outcome}" + (
                    f" ({event.code})" if event.code and event.code != event.outcome else ""
                )
            case TurnEnded():
                return f"{event.turn} {event.outcome}" + (
                    f" ({event.code})" if event.code and event.code != event.outcome else ""
                )
            case TurnResumed():
                return f"{event.turn} after {event.after}"
            case ReminderSet() | ReminderFired() | ReminderCancelled():
                return f"{self.name(event.reminder)} {_of_reminder(event)}"
            case _:
                return self._plain_detail(event)

    def _plain_detail(self, event: SessionEvent) -> str:
        said: list[str] = []
        for field in (
            "job",
            "approval",
            "call",
            "turn",
            "number",
            "option",
            "by",
            "closed_as",
            "may_answer",
            "calls",
        ):
            value = getattr(event, field, None)
            if field == "turn" and any(
                getattr(event, name, None) is not None for name in ("call", "approval", "job")
            ):
                continue
            if field == "calls" and value is not None:
                said.append(", ".join(f"{self.name(each.call)} {each.tool}" for each in value))
            elif field == "may_answer" and value is not None:
                said.append("asks " + ",".join(value))
            elif field == "number" and value is not None:
                said.append(f"#{value}")
            elif value is not None:
                said.append(self.name(value))
        return " ".join(said)

    def owes(self, state: SessionState) -> str:
        owed = [
            self._effect(effect)
            for effect in react(state)
            if not isinstance(effect, AwaitModel | AwaitTool)
        ]
        return ", ".join(owed) or "-"

    def _effect(self, effect: SessionEffect) -> str:
        match effect:
            case LookAtCalls(calls=calls) | RunTools(calls=calls):
                return f"{type(effect).__name__} {' '.join(self.name(call) for call in calls)}"
            case BeginTurn():
                return "BeginTurn"
            case Deliver() | ReportToParent():
                return type(effect).__name__
            case CreateDelegate(call=call) | StopDelegate(call=call):
                return f"{type(effect).__name__} {self.name(call)}"
            case ReportJob(job=job):
                return f"ReportJob {self.name(job)}"
            case _:
                return f"{type(effect).__name__} {effect.turn}"

    def message(self, message: Message) -> str:
        match message:
            case UserMessage(text=text, speaker=speaker, quotes=quotes):
                quoted = "".join(f" [quotes {each.speaker}: {each.text}]" for each in quotes)
                return f"{speaker or 'nobody'}: {text}{quoted}"
            case NoteMessage(text=text):
                return f"note: {' / '.join(text.splitlines())}"
            case AssistantMessage(text=text, calls=calls):
                return f"model: {text}" + " ".join(
                    f"[{self.name(call.call)} {call.tool} {call.arguments}]" for call in calls
                )
            case ResultMessage(call=call, outcome=outcome, text=text):
                return f"result {self.name(call)}: {outcome}: {' / '.join(text.splitlines())}"


def _of_reminder(event: ReminderSet | ReminderFired | ReminderCancelled) -> str:
    match event:
        case ReminderSet(by=by, may_prompt=may_prompt):
            return by + (" may ask" if may_prompt else "")
        case ReminderFired(turn=turn, missed=missed, next_at=next_at):
            return (
                turn
                + (f" missed {missed}" if missed else "")
                + ("" if next_at is not None else " last")
            )
        case ReminderCancelled(by=by, reason=reason):
            return by + (f" ({reason})" if reason else "")
