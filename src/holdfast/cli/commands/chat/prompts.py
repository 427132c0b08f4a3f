"""
A prompt in the terminal: the whole call, every option and its scope, and an answer that can't be
given by accident.

The person chooses an option by its key or name and Enter. Each option has one key in every prompt,
and `d` always denies. A bare Enter, a "yes" or any other text decides nothing. To approve a call
with a known risk, the person also types the tool's name.
"""

import json
from typing import Any, NamedTuple

from holdfast.cli.commands.chat.keyboard import Keyboard, Stopped
from holdfast.cli.commands.chat.screen import Screen, plain
from holdfast.cli.output.call_text import prompt_in_brief
from holdfast.cli.output.prompt_text import asked_by, deadline_words, local_time
from holdfast.cli.output.risk_text import marked_lines, why_confirm
from holdfast.errors import Refused
from holdfast.journal.strict import strict_json
from holdfast.runtime.reports.types import ApprovalReport
from holdfast.session.authority.approvals import ANSWER, DENY, EDIT, KEYS

LATER = "/later"
CANCEL = "/cancel"
HELP = "/help"
PROMPTS = "/prompts"
DENY_KEY = KEYS[DENY]


class Choice(NamedTuple):
    """The person's decision: an option of the prompt, or one of the names above."""

    option: str
    reason: str | None = None
    arguments: Any = None


def show_standing(screen: Screen, approval: ApprovalReport, person: str) -> None:
    """Name a prompt that stood before the chat began."""
    whom = "" if person in approval.may_answer else f"; {_whom(approval)} may answer it"
    screen.say(
        f"- a prompt still stands: {approval.tool}, asked {local_time(approval.requested_at)} "
        f"({approval.id}){whom}",
        "yellow",
    )


def show_prompts_of_others(screen: Screen, standing: list[ApprovalReport], person: str) -> None:
    """Name each prompt that this person may not answer, or say that none waits for anybody."""
    if not standing:
        screen.say("Nothing waits for an answer.", "dim")
    for approval in standing:
        if person not in approval.may_answer:
            screen.say(f"- {_whom(approval)} may answer {prompt_in_brief(approval)}", "yellow")


def _whom(approval: ApprovalReport) -> str:
    return " or ".join(approval.may_answer) or "nobody"


def show_prompt(screen: Screen, approval: ApprovalReport) -> None:
    """Show the whole prompt: an answer is bound to all of it."""
    what = "a question" if approval.kind == "question" else f"{approval.tool} asks for approval"
    screen.say(f"--- {what} --- {approval.id}", "bold")
    screen.show(marked_lines(approval.display, approval.risks))
    if approval.reason:
        screen.say(f"  why: {plain(approval.reason)}", "dim")
    if approval.quoted_speakers:
        screen.say(f"  the request quotes: {plain(', '.join(approval.quoted_speakers))}", "dim")
    screen.say(f"  who: {plain(asked_by(approval))}", "dim")
    screen.say(f"  {deadline_words(approval)}", "dim")
    screen.say(
        f"  if the call changes, your answer no longer counts; fingerprint {approval.digest}",
        "dim",
    )
    for option, key in keys_of(approval).items():
        screen.say(f"  {key}  {plain(option)}: {plain(approval.covers[option])}")
    screen.say(_how(approval), "dim")


def keys_of(approval: ApprovalReport) -> dict[str, str]:
    """
    Return the key of each option, in the order of the screen. The options of an approval never
    change their keys. The choices of a question are numbered. Deny is the last one everywhere.
    """
    if approval.kind == "question":
        choices = [each for each in approval.options if each not in (ANSWER, DENY)]
        numbered = {choice: str(number) for number, choice in enumerate(choices, 1)}
    else:
        numbered = {each: KEYS[each] for each in approval.options if each != DENY}
    return {**numbered, DENY: DENY_KEY}


def _how(approval: ApprovalReport) -> str:
    if approval.kind == "question":
        choices = ", or the number of a choice" if len(keys_of(approval)) > 1 else ""
        return (
            f"Type your answer and Enter{choices}. {DENY_KEY} declines, {LATER} leaves it open, "
            f"{HELP} shows more."
        )
    return (
        f"Type a key or a name and Enter. A bare Enter does nothing. {LATER} leaves it open, "
        f"{CANCEL} stops the turn, {HELP} shows more."
    )


def help_text(approval: ApprovalReport) -> str:
    """Explain each thing that can be typed at `answer>`."""
    lines = [f"{key}  {option}" for option, key in keys_of(approval).items()]
    if approval.kind == "question":
        lines.append(f"any other text is your answer; a space before it sends even {DENY_KEY!r}")
    return "\n".join(
        [
            *lines,
            f"{PROMPTS}  show this prompt again",
            f"{LATER}  leave it open and go on talking; {PROMPTS} shows it again",
            f"{CANCEL}  stop the turn: nothing that waits in it runs",
            "Ctrl-C  the same as /later      Ctrl-D  leave; the prompt keeps waiting",
        ]
    )


async def ask(screen: Screen, keyboard: Keyboard, approval: ApprovalReport) -> Choice:
    """Ask until the person decides. Raise Left, Stopped or Interrupted if nothing was decided."""
    while True:
        line = await keyboard.read_answer("answer> ")
        if not line.strip():
            continue
        choice = await _read_choice(screen, keyboard, approval, line)
        if choice is not None:
            return choice


async def _read_choice(
    screen: Screen, keyboard: Keyboard, approval: ApprovalReport, typed: str
) -> Choice | None:
    line = typed.strip()
    if line in (LATER, CANCEL):
        return Choice(line)
    if line == HELP:
        screen.say(help_text(approval))
        return None
    if line == PROMPTS:
        show_prompt(screen, approval)
        return None
    if approval.kind == "question":
        return _reply(approval, typed)
    if line.startswith("/"):
        name = plain(line.split()[0])
        screen.say(f"Nothing was decided. {name} is not a command; {HELP} lists them.", "yellow")
        return None
    option = option_from_line(approval, line)
    if option is None:
        keys = ", ".join(f"{key} for {name}" for name, key in keys_of(approval).items())
        screen.say(
            f"Nothing was decided. Type {keys}. To write a message instead, type {LATER} first.",
            "yellow",
        )
        return None
    if option == EDIT:
        return await _edited(screen, keyboard, approval)
    if option == DENY:
        return Choice(option)
    if approval.risks and not await _confirmed(screen, keyboard, approval):
        return None
    return Choice(option)


def option_from_line(approval: ApprovalReport, line: str) -> str | None:
    """Find an option by its exact name or key. Consent has no abbreviations."""
    return next((name for name, key in keys_of(approval).items() if line in (name, key)), None)


def _reply(approval: ApprovalReport, typed: str) -> Choice:
    line = typed.strip()
    option = None if typed.startswith(" ") else option_from_line(approval, line)
    return Choice(option) if option is not None else Choice(ANSWER, reason=line)


async def _confirmed(screen: Screen, keyboard: Keyboard, approval: ApprovalReport) -> bool:
    may_have_run = any(risk.kind == "in_doubt_twin" for risk in approval.risks)
    again = "to run it again" if may_have_run else "to approve"
    screen.say(f"{why_confirm(approval)} Type {approval.tool} {again}.", "yellow")
    typed = await keyboard.read_answer(f"{approval.tool}? ")
    if typed.strip() == approval.tool:
        return True
    screen.say("Nothing was decided.", "yellow")
    return False


async def _edited(screen: Screen, keyboard: Keyboard, approval: ApprovalReport) -> Choice | None:
    """
    Read other arguments as JSON. The person sees the new call before it runs. Text that is not JSON
    stays at the prompt, so that the person can correct it.
    """
    now = json.dumps(approval.arguments, ensure_ascii=True)
    typed = now
    while True:
        try:
            typed = await keyboard.read_answer("arguments> ", default=typed)
        except Stopped:
            screen.say("Not edited; nothing was decided.", "yellow")
            return None
        if typed.strip() in ("", now):
            screen.say("Nothing was changed; nothing was decided.", "yellow")
            return None
        try:
            return Choice(EDIT, arguments=strict_json(typed, what="the arguments"))
        except Refused as exc:
            screen.say(
                f"Nothing was decided: {plain(str(exc))}. Correct them, or press Ctrl-C.", "yellow"
            )
