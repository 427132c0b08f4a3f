"""One line for a call, by which a person recognises it. Only a prompt's display is bound."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.output.result import encoded

if TYPE_CHECKING:
    from holdfast.ids import ApprovalId
    from holdfast.runtime.reports.types import ApprovalReport
    from holdfast.runtime.service import Service
    from holdfast.session.events import ApprovalRequested

_TELLING = ("command", "question", "path", "task", "text")  # the arguments that say most
_CHARS = 100
_PLAIN = re.compile(r"""[^\s"'={}\[\]]+""")  # a text that needs no quotes; the page has the same


def in_brief(arguments: object) -> str:
    """
    >>> in_brief({"command": "ls  -l\\n"}), in_brief({"service": "api", "replicas": 2})
    ('ls -l', 'service=api replicas=2')
    """
    if isinstance(arguments, dict):
        for name in _TELLING:
            if isinstance(text := arguments.get(name), str):
                return _escaped(" ".join(text.split()))
        return _escaped(" ".join(f"{name}={_value(each)}" for name, each in arguments.items()))
    return _escaped(encoded(arguments))


def _value(value: object) -> str:
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) is not None
    return str(value) if is_plain else encoded(value)


def open_question_words(event: "ApprovalRequested") -> str:
    """Say that a server asks inside of an open call; empty for every other prompt."""
    if event.form is None or not event.form.is_inside:
        return ""
    people = " or ".join(event.may_answer)
    return (
        f"{event.tool} asks in the middle of its call, and waits for {people}: "
        f"`holdfast approvals show {event.approval}`, in another terminal"
    )


def call_in_brief(tool: str, arguments: str) -> str:
    """
    >>> call_in_brief("shell", '{"command": "ls"}'), call_in_brief("current_time", "{}")
    ('shell: ls', 'current_time')
    """
    try:
        given = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return tool
    return _with_tool(tool, given)


async def prompts_in_brief(service: "Service", prompts: "Sequence[ApprovalId]") -> str:
    """Return each prompt as its call and its id: an id alone says nothing to a person."""
    return "; ".join([prompt_in_brief(await service.approval(each)) for each in prompts])


def prompt_in_brief(approval: "ApprovalReport") -> str:
    return f"{_with_tool(approval.tool, approval.arguments)} ({approval.id})"


def _with_tool(tool: str, arguments: object) -> str:
    if not arguments:
        return tool
    text = in_brief(arguments)
    return f"{tool}: {text if len(text) <= _CHARS else text[: _CHARS - 3] + '...'}"


def _escaped(text: str) -> str:
    """Escape text as the prompt does, so that nothing in a list can imitate something else."""
    if text.isascii() and text.isprintable():
        return text
    from holdfast.session.view.safe_text import render

    return render(text).text
