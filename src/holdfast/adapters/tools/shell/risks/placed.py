"""The marks of a command, moved to their places in the whole prompt."""

from collections.abc import Sequence

import msgspec

from holdfast.session.authority.plan import Level, Risk
from holdfast.session.view.safe_text import framed_offsets

OUTSIDE = "run outside the workspace, in"


_EXPECTED: dict[Level, str] = {
    "isolated": "expect writes outside the workspace to fail or to be lost",
    "limited": "expect writes outside the workspace to fail",
}


def outside_line(found: Sequence[Risk], level: Level) -> str:
    """
    Return the line for the prompt of a confined command that writes outside, or nothing. An
    isolated command has folders of its own for some paths, such as the user's, until it ends.
    """
    return _EXPECTED.get(level, "") if any(risk.kind == "outside" for risk in found) else ""


def risks_shown(command: str, found: Sequence[Risk], *, head: str) -> tuple[Risk, ...]:
    """
    Return the risks with offsets in the display: the head, a line break, the framed command.

    >>> found = [Risk(kind="destructive", text="`rm` deletes files.", start=4, end=8)]
    >>> risks = risks_shown("ls; rm x", found, head="the command")
    >>> display = "the command\\n| ls; rm x"
    >>> [display[risk.start:risk.end] for risk in risks]
    ['rm x']
    """
    offsets = framed_offsets(command) if found else []
    start = len(head) + 1
    placed = [
        msgspec.structs.replace(
            risk, start=start + offsets[risk.start], end=start + offsets[risk.end]
        )
        for risk in found
    ]
    if OUTSIDE in head:
        at = head.index(OUTSIDE)
        text = "This command works outside the workspace."
        placed.insert(0, Risk(kind="outside", text=text, start=at, end=at + len(OUTSIDE)))
    return tuple(placed)
