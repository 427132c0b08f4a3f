"""The marks of a command, moved to their places in the whole prompt."""

from collections.abc import Sequence

import msgspec

from holdfast.adapters.tools.shell.risks.classify import risks_of
from holdfast.session.authority.plan import Risk
from holdfast.session.view.safe_text import framed_offsets

OUTSIDE = "run outside the workspace, in"


def risks_shown(command: str, *, head: str, cwd: str, roots: Sequence[str]) -> tuple[Risk, ...]:
    """
    Return the risks with offsets in the display: the head, a line break, the framed command.

    >>> risks = risks_shown("ls; rm x", head="the command", cwd="/w", roots=["/w"])
    >>> display = "the command\\n| ls; rm x"
    >>> [display[risk.start:risk.end] for risk in risks]
    ['rm x']
    """
    found = risks_of(command, cwd=cwd, roots=roots)
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
