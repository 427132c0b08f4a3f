"""
Export a session: every record as it is stored, or the conversation as people read it. Nothing is
changed, and a sealed session is exported too.

Unverified parts are marked as such, never silently left out.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import TurnId, session_id
from holdfast.ports.journal_store import Record
from holdfast.runtime.lifecycle.carried import carried_from
from holdfast.runtime.reports.session_list import show_session
from holdfast.runtime.runtime import Runtime
from holdfast.session.codec import decode
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallFinished,
    CallsProposed,
    DelegateStarted,
    InputAccepted,
    ModelAnswerDropped,
    ModelAnswered,
    ReminderCancelled,
    ReminderSet,
    SessionEvent,
    ToolStarted,
    TurnEnded,
    TurnImported,
)
from holdfast.session.features.reminders.schedule import in_words
from holdfast.session.view.messages import (
    AssistantMessage,
    Message,
    NoteMessage,
    ResultMessage,
    UserMessage,
)


async def export_lines(runtime: Runtime, session: str) -> AsyncIterator[bytes]:
    """
    Yield every record as stored, verbatim, line by line: verifiable with
    docs/reference/journal-format.md and the key alone.
    """
    journal = await runtime.world.store.open(session_id(session))
    try:
        async for line in journal.lines():
            yield line
    finally:
        await journal.close()


async def doubt_about(runtime: Runtime, session: str) -> str | None:
    """
    Return why the export cannot be believed as it stands: the session is sealed, or cannot be
    verified here. It is exported nevertheless.
    """
    try:
        sealed = (await show_session(runtime, session_id(session))).sealed
    except HoldfastError as exc:
        return f"could not be verified ({exc.message})"
    return (
        f"is sealed ({sealed.code}: {sealed.detail}); `holdfast verify {session}` says up to where "
        "the records hold"
        if sealed is not None
        else None
    )


async def export_markdown(runtime: Runtime, session: str) -> str:
    """The conversation for people: requests, replies, calls and their approvers."""
    name = session_id(session)
    journal = await runtime.world.store.open(name)
    parts = [f"# {name}", ""]
    try:
        carried = await carried_from(journal)
    finally:
        await journal.close()
    parts.extend(_conversation(carried.records))
    if journal.sealed is not None:
        parts.append(
            f"\n> This session is sealed ({journal.sealed.code}: {journal.sealed.detail}). "
            "Everything above was verified."
        )
    elif (doubt := await doubt_about(runtime, name)) is not None:
        parts.append(f"\n> The conversation above {doubt}.")
    return "\n".join(parts) + "\n"


def _conversation(records: Iterable[Record]) -> Iterator[str]:
    # Turns of an external loop: their reply is in no model's answer.
    foreign: set[TurnId] = set()
    for record in records:
        event = decode(record.type, record.version, record.body, seq=record.seq)
        yield from _event_lines(
            event, datetime.fromtimestamp(record.at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        )
        if isinstance(event, InputAccepted) and event.loop == "foreign":
            foreign.add(event.turn)
        if isinstance(event, TurnEnded) and event.reply and event.turn in foreign:
            yield f"{event.reply}\n"


def _event_lines(event: SessionEvent, when: str) -> Iterator[str]:
    match event:
        case InputAccepted() as accepted:
            speaks = {"delegate": "an agent", "job": "a job", "reminder": "a reminder"}.get(
                accepted.kind
            )
            who = (
                _requester(accepted) if speaks is None else f"{speaks}, for {_requester(accepted)}"
            )
            yield f"## {accepted.turn} · {when}\n\n**{who}**\n\n{_quoted(accepted.text)}\n"
        case ModelAnswered() | CallsProposed() as answered:
            yield from ([f"{answered.text}\n"] if answered.text else [])
            for call in answered.calls:
                yield f"- calls `{call.tool}`\n\n{_fenced(call.arguments)}\n"
        case ModelAnswerDropped(text=text) if text:
            yield f"{text}\n\n*The reply was stopped here.*\n"
        case ApprovalRequested() as asked:
            yield f"- asked {', '.join(asked.may_answer)}:\n\n{_fenced(asked.display)}\n"
        case ApprovalAnswered() as answer:
            yield f"- **{answer.by}** answered `{answer.option}` at {when}\n"
        case ToolStarted() as started:
            yield f"- `{started.tool}` started at {when}\n"
        case DelegateStarted() as handed:
            yield f"- handed to `{handed.agent}` in `{handed.session}` at {when}\n"
        case CallFinished() as finished:
            yield f"- ended: {finished.outcome}\n\n{_fenced(finished.text)}\n"
        case ReminderSet() as reminder:
            yield (
                f"- **{reminder.by}** set a reminder at {when},"
                f" {in_words(reminder.schedule)}\n\n{_quoted(reminder.text)}\n"
            )
        case ReminderCancelled() as cancelled:
            yield (
                f"- the reminder `{cancelled.reminder}` was cancelled by **{cancelled.by}** at"
                f" {when}\n"
            )
        case TurnEnded() as ended if ended.outcome != "completed":
            yield f"*The turn {ended.outcome}: {ended.message or ended.code}*\n"
        case TurnImported() as imported:
            yield f"## {imported.turn} \u00b7 imported from {imported.source}\n"
            yield from (_said(message) for message in imported.messages)
        case _:
            return


def _said(message: Message) -> str:
    match message:
        case UserMessage(text=text, speaker=speaker):
            return f"**{speaker or 'somebody'}**\n\n{_quoted(text)}\n"
        case NoteMessage(text=text):
            return f"{_fenced(text)}\n"
        case AssistantMessage(text=text) | ResultMessage(text=text):
            return f"{text}\n"


class _Named(msgspec.Struct):
    requester: str | None = None


def _requester(accepted: InputAccepted) -> str:
    """
    The requester in the record; whether the context still allows anything does not matter here.
    """
    try:
        return msgspec.json.decode(accepted.context, type=_Named).requester or "nobody known"
    except msgspec.DecodeError:
        return "nobody known"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines() or [""])


def _fenced(text: str) -> str:
    longest = max((len(run) for run in _backtick_runs(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _backtick_runs(text: str) -> Iterator[str]:
    run = ""
    for char in text + " ":
        if char == "`":
            run += char
        elif run:
            yield run
            run = ""
