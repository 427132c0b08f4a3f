"""Turns and prompts as text for people. A prompt is shown whole, because all of it would run."""

from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.cli.output.risk_text import risk_lines
from holdfast.session.authority.approvals import KEYS
from holdfast.state_words import answer_words, asker_words, state_words

if TYPE_CHECKING:
    from holdfast.cli.shared.options import Options
    from holdfast.runtime.reports.types import ApprovalReport, TurnReport

_WHAT_TO_SAY = {"edit": " --arguments '{...}'", "answer": " --reason 'YOUR WORDS'"}


def turn_text(options: "Options", turn: "TurnReport") -> str:
    """Return the reply, or the open prompts and how to answer them, or the turn's end."""
    parts = [turn.reply] if turn.reply else []
    if turn.approvals:
        count = len(turn.approvals)
        parts.append(
            f"{turn.session} waits for {'an answer' if count == 1 else f'{count} answers'}:"
        )
        parts.extend(approval_text(options, each) for each in turn.approvals)
    elif turn.outcome in {"queued", "running"}:
        follow, resume = (
            options.typed(f"{command} {turn.session}") for command in ("sessions follow", "resume")
        )
        parts.append(
            f"{turn.session} {turn.turn} is {turn.outcome}: `{follow}` shows how it goes on, and "
            f"`{resume}` drives it where nobody else does"
        )
    return "\n\n".join(parts)


def approval_text(options: "Options", approval: "ApprovalReport") -> str:
    """Return the whole prompt, its risks, and the command that answers it for a reader who may."""
    lines = [approval.display, ""]
    if approval.state == "requested" and approval.risks:
        lines += [*(f"  {each}" for each in risk_lines(approval)), ""]
    lines += [
        f"  id           {approval.id}",
        f"  fingerprint  {approval.digest}",
        f"  who          {asked_by(approval)}",
        (
            f"  session      {approval.session} {approval.turn} "
            f"({approval.boundary or 'no boundary'})"
        ),
    ]
    if approval.reason:
        lines.append(f"  why          {approval.reason}")
    if approval.quoted_speakers:
        lines.append(f"  quotes       {', '.join(approval.quoted_speakers)}")
    lines += [*_standing(approval), *_how(options, approval)]
    return "\n".join(lines)


def asked_by(approval: "ApprovalReport") -> str:
    """Say which person asked and which agent wrote the call."""
    return asker_words(
        approval.kind,
        requester=approval.requester or "an unknown person",
        agent=approval.path[-1] if approval.path else approval.agent or "of this session",
        editor=approval.edited_by,
    )


def deadline_words(approval: "ApprovalReport") -> str:
    """Say until when an answer counts, and what happens without one."""
    at = local_time(approval.expires_at)
    if approval.kind == "question":
        return f"open until {at}, then it stays unanswered"
    return f"denied if nobody answers until {at}"


def _standing(approval: "ApprovalReport") -> list[str]:
    match approval.state:
        case "requested":
            people = ", ".join(approval.may_answer) or "nobody"
            return [f"  may answer   {people}; {deadline_words(approval)}"]
        case "answered":
            return [f"  answered     {answer_words(approval.answered_by, approval.option)}"]
        case _:
            closed = state_words().closed.get(approval.closed_as or "", approval.closed_as)
            by = approval.answered_by
            before = f" Before, {answer_words(by, approval.option)}." if by else ""
            return [f"  closed       {closed}{before}"]


def _how(options: "Options", approval: "ApprovalReport") -> list[str]:
    """Name the options and a command. A reader who may not answer gets neither."""
    if approval.state != "requested":
        return []
    reader = _reader(options)
    if reader not in approval.may_answer:
        return ["", f"You are {reader or 'nobody known'} and may not answer this prompt."]
    width = max((len(option) for option in approval.options), default=0)
    lines = ["", "answer with one of:"]
    for option in approval.options:
        key = KEYS.get(option, " ") if approval.kind != "question" or option == "deny" else " "
        lines.append(f"  {key}  {option.ljust(width)}  {approval.covers.get(option, '')}".rstrip())
    return [*lines, f"  $ {answer_command(options, approval)}"]


def local_time(iso: str) -> str:
    """
    Return a time for people, by the clock of this machine, with the name of its zone.

    >>> local_time("2026-11-25T00:10:22.406Z")  # doctest: +SKIP
    'Wed 25 Nov 2026, 01:10 CET'
    """
    return f"{datetime.fromisoformat(iso).astimezone():%a %d %b %Y, %H:%M %Z}"


def next_step(options: "Options", approval: "ApprovalReport") -> str:
    """Return the command that answers, or who may answer, for this reader."""
    if _reader(options) in approval.may_answer:
        return f"`{answer_command(options, approval)}`"
    return f"{' or '.join(approval.may_answer)} may answer it"


def answer_command(options: "Options", approval: "ApprovalReport") -> str:
    """Return the command that gives the first answer that the prompt offers."""
    first = approval.options[0] if approval.options else "deny"
    return options.typed(
        f"approvals answer {approval.id} {first}{_WHAT_TO_SAY.get(first, '')}",
        by=approval.may_answer,
    )


def _reader(options: "Options") -> str | None:
    """Return the person who reads this: the login, or the person that its owner speaks as."""
    from holdfast.cli.shared.identity import who
    from holdfast.cli.shared.service import home_of
    from holdfast.errors import HoldfastError

    try:
        return who(home_of(options), options.speaks_as).person
    except HoldfastError:
        return None
