"""Turns and prompts as text for people. A prompt is shown whole, because all of it would run."""

from typing import TYPE_CHECKING

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
    lines = [
        approval.display,
        "",
        f"  id          {approval.id}",
        f"  digest      {approval.digest}",
        (
            f"  session     {approval.session} {approval.turn}, asked for by "
            f"{approval.requester or 'nobody'} ({approval.boundary or 'no boundary'})"
        ),
    ]
    if approval.reason:
        lines.append(f"  why asked   {approval.reason}")
    if approval.quoted_speakers:
        lines.append(f"  quotes      {', '.join(approval.quoted_speakers)}")
    lines += [*_standing(approval), *_how(options, approval)]
    return "\n".join(lines)


def _standing(approval: "ApprovalReport") -> list[str]:
    match approval.state:
        case "requested":
            return [
                (
                    f"  may answer  {', '.join(approval.may_answer) or 'nobody'}, until "
                    f"{approval.expires_at}"
                )
            ]
        case "answered":
            return [f"  answered    {approval.option} by {approval.answered_by}"]
        case _:
            return [
                f"  closed      {approval.closed_as}"
                + (f"; {approval.option} by {approval.answered_by}" if approval.answered_by else "")
            ]


def _how(options: "Options", approval: "ApprovalReport") -> list[str]:
    if approval.state != "requested":
        return []
    width = max((len(option) for option in approval.options), default=0)
    lines = ["", "answer with one of:"]
    for option in approval.options:
        covers = approval.covers.get(option, "")
        lines.append(f"  {option.ljust(width)}  {covers}".rstrip())
    first = approval.options[0] if approval.options else "deny"
    typed = options.typed(
        f"approvals answer {approval.id} {first}{_WHAT_TO_SAY.get(first, '')}",
        by=approval.may_answer,
    )
    lines.append(f"  $ {typed}")
    return lines
