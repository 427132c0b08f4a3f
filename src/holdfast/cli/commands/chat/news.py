"""
Turn records and pieces of text into the output of `holdfast chat`.

Records are the truth and pieces are hints. Text that was shown in pieces is not repeated when its
record arrives. Missed pieces are shown from the record.
"""

import time
from collections import deque

import msgspec

from holdfast.cli.commands.chat.screen import Screen, plain
from holdfast.cli.output.call_text import call_in_brief, open_question_words
from holdfast.cli.output.turn_output import failure_words, retry_words
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
from holdfast.session.features.jobs.decide import OUTPUT_FOLLOWS
from holdfast.session.features.reminders.schedule import in_words
from holdfast.state_words import job_words, state_words

# Outcomes without a line here: the model reports the result, or the end of the turn says it.
_QUIET = ("ok", "superseded")
_SELF_EXPLAINED = ("In doubt: ", "Not run: ")  # how a text begins that says its own outcome


class News:
    """
    Shows one session's events as they happen. `own` holds texts that this terminal sent; they are
    already on the screen.
    """

    def __init__(self, screen: Screen, person: str) -> None:
        self._screen = screen
        self._person = person
        self.own: deque[str] = deque(maxlen=32)
        # Set for a transcript. In a live chat the reply stands below the person's own line.
        self.names_agents = False
        self._agents: dict[str, str] = {}  # by turn
        self._tools: dict[str, str] = {}  # by call
        self._jobs: dict[str, tuple[str, int]] = {}  # by id: the tool, and when it began
        self._stopped: set[str] = set()  # turns whose stop is on the screen
        self._closed: set[tuple[str, str]] = set()  # turns that had a prompt closed, and how
        # By call: its turn, its tool, and when it began by the clock of this process.
        self._running: dict[str, tuple[str, str, float]] = {}
        self._at = 0  # Unix milliseconds of the last record
        self._calling = False
        self._streamed = ""  # of the open model call
        self._said = ""  # the last answer
        self._late = ""  # shown from the record already; its pieces may still arrive

    def piece(self, piece: Delta | Gap) -> None:
        if isinstance(piece, Gap):
            return
        if piece.kind == "output":  # its tool goes on, perhaps without another piece
            self._screen.stream(piece.text, style="dim", bar="> ")
            return
        self._screen.works(None)
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
        self._at = record.at
        self._tell(event)
        self._follow_running(event)
        return event

    def _follow_running(self, event: SessionEvent) -> None:
        """Show the newest call that runs. The end of one does not hide that another runs on."""
        match event:
            case ToolStarted(turn=turn, call=call, tool=tool):
                self._running[call] = turn, tool, time.monotonic()
            case CallFinished(call=call):
                self._running.pop(call, None)
            case TurnEnded(turn=turn):
                for each in [key for key, (of, *_) in self._running.items() if of == turn]:
                    del self._running[each]
            case ModelCallStarted():
                return
            case _:
                pass
        if self._running:
            _, tool, since = self._running[next(reversed(self._running))]
            self._screen.works(f"running {tool}", since)

    def _tell(self, event: SessionEvent) -> None:
        self._screen.works(None)
        match event:
            case InputAccepted():
                self._input(event)
            case ModelCallStarted():
                self._calling, self._streamed = True, ""
                self._screen.works("thinking")
            case ModelAnswered(turn=turn, text=text, calls=calls):
                self._tools |= {each.call: each.tool for each in calls}
                self._name_agent(turn, text)
                self._answered(text)
            case ModelCallFailed() | ModelCallLost() | ModelAnswerDropped():
                self._no_answer(event)
            case CallFinished(outcome=outcome) if outcome not in _QUIET:
                self._of_call(event)
            case ToolStarted(tool=tool, arguments=arguments):
                self._note(f"runs {call_in_brief(tool, arguments)}")
            case MemoryRecalled(items=items, degraded=degraded):
                recalled = "; ".join(each.text for each in items) or "nothing"
                self._note(f"remembered: {recalled}{f' ({degraded})' if degraded else ''}")
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
                    f"a torn tail of {size} bytes was cut; it had never been acknowledged, and "
                    "it is kept in quarantine"
                )
            case _:
                self._of_people(event)

    def _of_people(self, event: SessionEvent) -> None:
        match event:
            case ApprovalRequested(may_answer=may_answer) if self._person not in may_answer:
                call = call_in_brief(event.tool, event.arguments)
                self._note(f"asks {' or '.join(may_answer)} about {call} ({event.approval})")
            case ApprovalRequested() if words := open_question_words(event):
                self._note(words, "yellow")
            case ApprovalAnswered(approval=approval, option=option, by=by):
                who = "You" if by == self._person else by
                words = state_words().answered.get(option, f"answered {option}")
                self._note(f"{who} {words} ({approval}).")
            case ApprovalClosed(approval=approval, closed_as=closed_as, reason=reason):
                self._closed.add((event.turn, closed_as))
                words = state_words().closed.get(closed_as, f"{closed_as}.")
                why = f" {reason}." if reason and closed_as == "voided" else ""
                self._note(f"The prompt {approval} is closed. {words}{why}")
            case AnswerRefused(approval=approval, by=by):
                self._note(
                    f"{by} tried to answer {approval} and may not; it still stands", "yellow"
                )
            case TurnResumed(after="crash"):
                self._note("the process that drove this turn died; it goes on from the journal")
            case TurnCancelled(turn=turn, by=by):
                self._stopped.add(turn)
                self._note(f"Stopped by {'you' if by == self._person else by}.")
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
                self._jobs[job] = (tool, self._at)
                self._note(
                    f"{tool} goes on in the background; `holdfast jobs follow {job}` shows what it "
                    "says"
                )
            case JobCancelled(job=job, by=by):
                self._note(f"{by} asked for the job {job} to be stopped")
            case JobEnded(job=job, outcome=outcome):
                self._note(self._job_end(job, outcome))

    def _job_end(self, job: str, outcome: str) -> str:
        if job not in self._jobs:
            return f"The job {job} {job_words(outcome)}."
        tool, since = self._jobs[job]
        return f"The job {job} ({tool}) {job_words(outcome, (self._at - since) / 1000)}."

    def _of_call(self, event: CallFinished) -> None:
        if event.outcome == "cancelled" and event.turn in self._stopped:
            return
        tool = self._tools.get(event.call, "the call")
        self._note(f"{tool}: {_outcome_words(event.outcome, event.text)}")

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

    def _name_agent(self, turn: str, text: str) -> None:
        if self.names_agents and text:
            self._screen.say(f"{plain(self._agents.get(turn, 'the agent'))}:", "bold")

    def _input(self, event: InputAccepted) -> None:
        self._agents[event.turn] = event.agent
        if event.text in self.own:
            self.own.remove(event.text)
        else:
            # The line before says which job it was. The stored text is for the model.
            text = event.text.partition(OUTPUT_FOLLOWS)[2] if event.kind == "job" else ""
            self._screen.tell(_speaker(event), text.lstrip("\n") or event.text, style="cyan")

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
        shown = self._streamed
        self._calling, self._streamed, self._late = False, "", ""
        match event:
            case ModelCallFailed(kind=kind, message=message):
                stop = " Ctrl-C stops the turn." if event.retry_at else ""
                said = f"{failure_words(kind)} ({message})."
                self._note(f"{said}{retry_words(event)}{stop}", "yellow")
            case ModelCallLost():
                self._note("a model call was lost in a crash; it is repeated")
            case ModelAnswerDropped(text=text) if text:
                self._stopped_answer(text, shown)
            case ModelAnswerDropped(reason=reason):
                self._note(f"an answer came too late and was dropped: {reason}")

    def _stopped_answer(self, text: str, shown: str) -> None:
        """Show the text of a stopped answer, unless the screen has it already."""
        if text != shown:
            self._screen.end_stream()
            self._screen.stream(text)
        self._screen.end_stream()
        self._note("The reply was stopped here. The journal keeps it.")

    def _ended(self, event: TurnEnded) -> None:
        if event.outcome == "completed":
            if (
                event.reply and event.reply != self._said
            ):  # an external loop: its model answers are not records
                self._name_agent(event.turn, event.reply)
                self._screen.stream(event.reply)
                self._screen.end_stream()
            return
        if event.outcome == "superseded":
            if (event.turn, "superseded") not in self._closed:  # a delegate's prompts are elsewhere
                self._note("Not run: another message was sent instead.", "yellow")
            return
        if event.outcome == "cancelled":
            return  # the line before says who stopped it
        why = ": ".join(each for each in (event.code, event.message) if each)
        words = state_words().turns.get(event.outcome, event.outcome)
        ended = words if event.outcome == "failed" else f"was {words}"
        self._note(f"the turn {ended}{f' ({why})' if why else ''}", "yellow")
        if event.hint:
            self._note(event.hint)

    def _note(self, text: str, style: str = "dim") -> None:
        self._screen.say("- " + " ".join(plain(text).split()), style)


def _outcome_words(outcome: str, text: str) -> str:
    if text.startswith(_SELF_EXPLAINED):
        return text[0].lower() + text[1:]
    return f"{state_words().calls.get(outcome, outcome)}. {text}"


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
