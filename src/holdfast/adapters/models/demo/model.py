"""
`demo`: a model without network and key, so that every feature can be tried.

It reads the newest message as calls (`TOOL key=value`, one per line; the whole message is one
batch) or as one of a few plain requests. Once the results are there, it repeats them as text. It
never calls twice for one message: it reports everything that follows its own message and never acts
on it. The same view always gets the same answer.
"""

from holdfast.adapters.models.demo.requests import UNDERSTOOD, NotUnderstood, calls_from_text
from holdfast.adapters.models.speech import speak
from holdfast.ports.model import ModelRequest, OnText
from holdfast.session.features.reminders.decide import LATE
from holdfast.session.view.messages import (
    AssistantMessage,
    Message,
    ModelAnswer,
    NoteMessage,
    ResultMessage,
    Usage,
    UserMessage,
)

NAME = "demo"

# The sentence for each call outcome. The tool's output always follows. An outcome that is not
# listed is reported by its name.
TELLINGS = {
    "ok": "{tool}: {text}",
    "error": "{tool} failed: {text}",
    "timed_out": "{tool} took too long and was stopped: {text}",
    "cancelled": "{tool} was cancelled: {text}",
    "denied": "{tool} was denied and did not run: {text}",
    "unattended": "{tool} did not run, because nobody may approve it here: {text}",
    "expired": "{tool} did not run, because the approval expired: {text}",
    "superseded": "{tool} did not run, because another message was sent instead: {text}",
    "voided": "{tool} did not run, because what was approved had changed: {text}",
    "in_doubt": "{tool} is in doubt, it may or may not have happened: {text}",
}


class DemoModel:
    summarises = False

    @property
    def name(self) -> str:
        return NAME

    @property
    def context_tokens(self) -> int | None:
        return None

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        answer = answer_from_view(request)
        await speak(answer.text, on_text=on_text)
        return answer


def answer_from_view(request: ModelRequest) -> ModelAnswer:
    asked, results = newest(request.messages)
    if not asked:
        return said(
            "\n".join(telling(result) for result in results)
            or job_report_text(request.messages)
            or "There is nothing new to answer.",
            request,
        )
    try:
        calls = calls_from_text(
            "\n".join(message.text.partition(LATE)[0] for message in asked), request.tools
        )
    except NotUnderstood as exc:
        return said(f"{exc}\n\n{help_text(request)}" if exc.needs_help else str(exc), request)
    return ModelAnswer(text="", calls=calls, usage=usage_of(request, ""))


def newest(messages: tuple[Message, ...]) -> tuple[list[UserMessage], list[ResultMessage]]:
    """
    Return the unanswered messages or, without such messages, the last results.

    Holdfast's notes are not requests. They neither start a call nor hide the messages before them.
    """
    asked: list[UserMessage] = []
    results: list[ResultMessage] = []
    for message in reversed(messages):
        match message:
            case UserMessage():
                if results:
                    break
                asked.append(message)
            case ResultMessage():
                if asked:
                    break
                results.append(message)
            case AssistantMessage():
                break
            case _:
                continue
    return asked[::-1], results[::-1]


def job_report_text(messages: tuple[Message, ...]) -> str:
    """
    Return a job's result as text if the last message reports one. The demo model never acts on it.
    """
    last = messages[-1] if messages else None
    if not isinstance(last, NoteMessage) or not last.text.startswith("Background job "):
        return ""
    about, _, output = last.text.partition("\n\n")
    return f"{about.partition('. ')[0]}: {output.strip() or '(no output)'}"


def telling(result: ResultMessage) -> str:
    form = TELLINGS.get(result.outcome, "{tool} ended as {outcome}: {text}")
    text = result.text.strip()
    if "did not run" in form:
        text = text.removeprefix("Not run: ")  # the sentence says it already
    return form.format(tool=result.tool, outcome=result.outcome, text=text or "(no output)")


def help_text(request: ModelRequest) -> str:
    tools = ", ".join(sorted(tool.name for tool in request.tools)) or "none"
    return (
        "I am the demo model: I call a tool from TOOL key=value, one a line, and understand"
        f" {UNDERSTOOD}.\nTools: {tools}."
    )


def said(text: str, request: ModelRequest) -> ModelAnswer:
    return ModelAnswer(text=text, usage=usage_of(request, text))


def usage_of(request: ModelRequest, text: str) -> Usage:
    """Count words instead of tokens, which is enough to see the counters move."""
    words = sum(len(getattr(message, "text", "").split()) for message in request.messages)
    return Usage(input_tokens=words, output_tokens=len(text.split()))
