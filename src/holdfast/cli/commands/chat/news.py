"""
Turn records and pieces of text into the output of `holdfast chat`.

Records are the truth and pieces are hints. Text that was shown in pieces is not repeated when its
record arrives. Missed pieces are shown from the record.
"""

from collections import deque

import msgspec

from holdfast.cli.commands.chat.screen import Screen, plain
from holdfast.ports.journal_store import Record
from holdfast.runtime.streams.feed import Delta, Gap
from holdfast.session.codec import decode
from holdfast.session.events import (
    AnswerRefused,
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallFinished,
    Compacted,
    DelegateStarted,
    InputAccepted,
    JobCancelled,
    JobEnded,
    JobSubmitted,
    MemoryRecalled,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
    SessionEvent,
    TailRepaired,
    ToolStarted,
    TurnCancelled,
    TurnCompacted,
    TurnEnded,
    TurnResumed,
)
from holdfast.session.features.reminders.schedule import in_words

_QUIET = ("ok",)  # outcomes without a line here: the model reports the result


class News:
    """
    Shows one session's events as they happen. `own` holds texts that this terminal sent; they are
    already on the screen.
    """

    def __init__(self, screen: Screen, person: str) -> None:
        self._screen = screen
        self._person = person
        self.own: deque[str] = deque(maxlen=32)
        self._tools: dict[str, str] = {}  # by call
        self._calling = False
        self._streamed = ""  # of the open model call
        self._said = ""  # the last answer
        self._late = ""  # shown from the record already; its pieces may still arrive

    def piece(self, piece: Delta | Gap) -> None:
        if isinstance(piece, Gap):
            return
        if piece.kind == "output":
            self._screen.stream(piece.text, style="dim", bar="> ")
            return
        if piece.kind == "compaction":
            self._note(piece.text)
            return
        if self._late.startswith(piece.text):
            self._late = self._late[len(piece.text) :]
        elif self._calling:
            self._streamed += piece.text
            self._screen.stream(piece.text)

    def record(self, record: Record) -> SessionEvent:
        event = decode(record.type, record.version, record.body, seq=record.seq)
        self._tell(event)
        return event

    def _tell(self, event: SessionEvent) -> None:
        match event:
            case InputAccepted():
                self._input(event)
            case ModelCallStarted():
                self._calling, self._streamed = True, ""
            case ModelAnswered(text=text, calls=calls):
                self._tools |= {each.call: each.tool for each in calls}
                self._answered(text)
            case ModelCallFailed() | ModelCallLost() | ModelAnswerDropped():
                self._no_answer(event)
            case CallFinished(call=call, outcome=outcome, text=text) if outcome not in _QUIET:
                self._note(f"{self._tools.get(call, 'the call')}: {outcome}. {text}")
            case ToolStarted(tool=tool):
                self._note(f"{tool} runs")
            case MemoryRecalled(items=items, degraded=degraded):
                self._note(
                    "remembered: "
                    f"{'; '.join(each.text for each in items) or 'nothing'}{f' ({degraded})' if degraded else ''}"
                )
            case DelegateStarted(agent=agent, session=session):
                self._note(f"{agent} works on it ({session})")
            case Compacted(turns=turns):
                self._note(
                    f"{turns} older turns are summarised in what the model sees; the journal keeps "
                    "them"
                )
            case TurnCompacted():
                self._note(
                    "this turn is summarised in what the model sees; the journal keeps it all"
                )
            case TailRepaired(bytes=size):
                self._note(
                    f"a torn tail of {size} bytes was cut; nobody had been told of it, and it is "
                    "kept in quarantine"
                )
            case _:
                self._of_people(event)

    def _of_people(self, event: SessionEvent) -> None:
        match event:
            case ApprovalRequested(tool=tool, approval=approval, may_answer=may_answer) if (
                self._person not in may_answer
            ):
                self._note(f"{tool} needs an answer from {' or '.join(may_answer)} ({approval})")
            case ApprovalAnswered(approval=approval, option=option, by=by):
                self._note(f"prompt {approval} is closed: {by} answered {option}")
            case ApprovalClosed(approval=approval, closed_as=closed_as, reason=reason):
                self._note(
                    f"prompt {approval} is closed: {closed_as}{'; ' + reason if reason else ''}"
                )
            case AnswerRefused(approval=approval, by=by):
                self._note(
                    f"{by} tried to answer {approval} and may not; it still stands", "yellow"
                )
            case TurnResumed(after="crash"):
                self._note("the process that drove this turn died; it goes on from the journal")
            case TurnCancelled(by=by):
                self._note(f"cancelled by {by}")
            case TurnEnded():
                self._ended(event)
            case ReminderSet() | ReminderFired() | ReminderCancelled():
                self._of_reminder(event)
            case JobSubmitted() | JobCancelled() | JobEnded():
                self._of_job(event)
            case _:
                pass

    def _of_job(self, event: JobSubmitted | JobCancelled | JobEnded) -> None:
        match event:
            case JobSubmitted(job=job, tool=tool):
                self._note(
                    f"{tool} goes on in the background; `holdfast jobs follow {job}` shows what it "
                    "says"
                )
            case JobCancelled(job=job, by=by):
                self._note(f"{by} asked for the job {job} to be stopped")
            case JobEnded(job=job, outcome=outcome):
                self._note(f"the job {job} is over: {outcome.replace('_', ' ')}")

    def _of_reminder(self, event: ReminderSet | ReminderFired | ReminderCancelled) -> None:
        match event:
            case ReminderSet(reminder=reminder, by=by, schedule=schedule, text=text):
                self._note(f"{by} set a reminder, {in_words(schedule)}: {text} ({reminder})")
            case ReminderFired(reminder=reminder):
                self._note(f"that was the reminder {reminder}")
            case ReminderCancelled(reminder=reminder, by=by, reason=reason):
                self._note(
                    f"the reminder {reminder} is cancelled by {by}{'; ' + reason if reason else ''}"
                )

    def _input(self, event: InputAccepted) -> None:
        if event.text in self.own:
            self.own.remove(event.text)
        else:
            self._screen.tell(_speaker(event), event.text, style="cyan")

    def _answered(self, text: str) -> None:
        self._calling = False
        if self._streamed and not text.startswith(self._streamed):
            self._screen.end_stream()
            self._note("the answer as it was kept:")
            self._streamed = ""
        rest = text[len(self._streamed) :]
        if rest:
            self._screen.stream(rest)
        self._said, self._late, self._streamed = text, rest, ""
        self._screen.end_stream()

    def _no_answer(self, event: ModelCallFailed | ModelCallLost | ModelAnswerDropped) -> None:
        self._calling, self._streamed, self._late = False, "", ""
        match event:
            case ModelCallFailed(kind=kind, message=message, final=final):
                self._note(
                    f"the model gave no answer ({kind}): "
                    f"{message}{'' if final else '; trying again'}",
                    "yellow",
                )
            case ModelCallLost():
                self._note("a model call was lost in a crash; it is repeated")
            case ModelAnswerDropped(reason=reason):
                self._note(f"an answer came too late and was dropped: {reason}")

    def _ended(self, event: TurnEnded) -> None:
        if event.outcome == "completed":
            if (
                event.reply and event.reply != self._said
            ):  # an external loop: its model answers are not records
                self._screen.stream(event.reply)
                self._screen.end_stream()
            return
        why = ": ".join(each for each in (event.code, event.message) if each)
        self._note(
            f"the turn {'was ' if event.outcome != 'failed' else ''}{event.outcome}{' (' + why + ')' if why else ''}",
            "yellow",
        )
        if event.hint:
            self._note(event.hint)

    def _note(self, text: str, style: str = "dim") -> None:
        self._screen.say("- " + " ".join(plain(text).split()), style)


_SPEAKERS = {"delegate": "an agent", "job": "a job", "reminder": "a reminder"}
"""Output of a job or a reminder is not a person's message, so it is shown under its own name."""


def _speaker(event: InputAccepted) -> str:
    if event.kind in _SPEAKERS:
        return _SPEAKERS[event.kind]
    try:
        context = msgspec.json.decode(event.context, type=dict[str, object])
    except msgspec.DecodeError:
        return "somebody"
    return str(context.get("requester") or "nobody known")
