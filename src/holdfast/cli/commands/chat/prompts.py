"""
A prompt in the terminal: the whole call, every option and its scope, and an answer that can't be
given by accident.

The person chooses an option by its name or number and Enter. A bare Enter, a "yes" or any other
text decides nothing. To approve a dangerous call, the person also types the tool's name.
"""

import json
from typing import Any, NamedTuple

from holdfast.cli.commands.chat.keyboard import Keyboard, Stopped
from holdfast.cli.commands.chat.screen import Screen, plain
from holdfast.errors import Refused
from holdfast.journal.strict import strict_json
from holdfast.runtime.reports.types import ApprovalReport
from holdfast.session.authority.approvals import ANSWER, DENY, EDIT

LATER = "/later"
CANCEL = "/cancel"
DECLINE = "/deny"


class Choice(NamedTuple):
    """The person's decision: an option of the prompt, or one of the names above."""

    option: str
    reason: str | None = None
    arguments: Any = None


def show_prompt(screen: Screen, approval: ApprovalReport) -> None:
    """Show the whole prompt: an answer is bound to all of it."""
    what = "a question" if approval.kind == "question" else f"{approval.tool} asks for approval"
    screen.say(f"--- {what} --- {approval.id}", "bold")
    screen.show(approval.display)
    if approval.reason:
        screen.say(f"  why it asks: {plain(approval.reason)}", "dim")
    if approval.quoted_speakers:
        screen.say(f"  the request quotes: {plain(', '.join(approval.quoted_speakers))}", "dim")
    screen.say(
        f"  for {plain(approval.requester or 'nobody')}, until {approval.expires_at}, digest "
        f"{approval.digest}",
        "dim",
    )
    for number, (option, covers) in enumerate(offered(approval).items(), 1):
        screen.say(f"  {number}  {plain(option)}: {plain(covers)}")
    screen.say(_how(approval), "dim")


def offered(approval: ApprovalReport) -> dict[str, str]:
    """Return the numbered options: all of an approval's, or the choices of a question."""
    if approval.kind == "question":
        return {
            option: approval.covers[option]
            for option in approval.options
            if option not in (ANSWER, DENY)
        }
    return {option: approval.covers[option] for option in approval.options}


def _how(approval: ApprovalReport) -> str:
    if approval.kind == "question":
        return f"Type your answer and Enter{', or the number of a choice' if offered(approval) else ''}. {DECLINE} declines, {LATER} leaves it open."
    return f"Type a number or a name and Enter; a bare Enter does nothing. {LATER} leaves it standing, {CANCEL} cancels the turn."


async def ask(screen: Screen, keyboard: Keyboard, approval: ApprovalReport) -> Choice:
    """Ask until the person decides. Raise Left, Stopped or Interrupted if nothing was decided."""
    while True:
        line = (await keyboard.read_answer("answer> ")).strip()
        if not line:
            continue
        choice = await _read_choice(screen, keyboard, approval, line)
        if choice is not None:
            return choice


async def _read_choice(
    screen: Screen, keyboard: Keyboard, approval: ApprovalReport, line: str
) -> Choice | None:
    if line in (LATER, CANCEL):
        return Choice(line)
    if approval.kind == "question":
        return _reply(approval, line)
    option = option_from_line(approval, line)
    if option is None:
        screen.say(f"{plain(line)!r} is none of the options; nothing was decided.", "yellow")
        return None
    if option == EDIT:
        return await _edited(screen, keyboard, approval)
    if option == DENY:
        return Choice(option)
    if approval.dangerous and not await _confirmed(screen, keyboard, approval, option):
        return None
    return Choice(option)


def option_from_line(approval: ApprovalReport, line: str) -> str | None:
    """Find an option by its exact name or number. Consent has no abbreviations."""
    names = list(offered(approval))
    if line in names:
        return line
    if line.isascii() and line.isdigit() and 1 <= int(line) <= len(names):
        return names[int(line) - 1]
    return None


def _reply(approval: ApprovalReport, line: str) -> Choice:
    if line == DECLINE:
        return Choice(DENY)
    option = option_from_line(approval, line)
    return Choice(option) if option is not None else Choice(ANSWER, reason=line)


async def _confirmed(
    screen: Screen, keyboard: Keyboard, approval: ApprovalReport, option: str
) -> bool:
    screen.say(
        f"This one can't be judged from its text alone. To {option}, type the tool's name: "
        f"{approval.tool}",
        "yellow",
    )
    typed = await keyboard.read_answer(f"{approval.tool}? ")
    if typed.strip() == approval.tool:
        return True
    screen.say("Not confirmed; nothing was decided.", "yellow")
    return False


async def _edited(screen: Screen, keyboard: Keyboard, approval: ApprovalReport) -> Choice | None:
    """Read other arguments as JSON. They are validated, and shown again before anything runs."""
    now = json.dumps(approval.arguments, ensure_ascii=True)
    try:
        typed = await keyboard.read_answer("arguments> ", default=now)
    except Stopped:
        screen.say("Not edited; nothing was decided.", "yellow")
        return None
    if typed.strip() in ("", now):
        screen.say("Nothing was changed; nothing was decided.", "yellow")
        return None
    try:
        arguments = strict_json(typed, what="the arguments")
    except Refused as exc:
        screen.say(f"{plain(str(exc))}; nothing was decided.", "yellow")
        return None
    return Choice(EDIT, arguments=arguments)
