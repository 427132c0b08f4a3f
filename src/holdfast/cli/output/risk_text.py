"""A prompt's text with its risks: which part deserves a second look, and why."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holdfast.runtime.reports.types import ApprovalReport
    from holdfast.session.authority.plan import Risk


class MarkedLine(NamedTuple):
    """One line of a display. `marks` are the spans of its risky parts, in order."""

    text: str
    marks: tuple[tuple[int, int], ...]
    reasons: tuple[str, ...]  # of the risks that end on this line


def marked_lines(display: str, risks: "Sequence[Risk]") -> Iterator[MarkedLine]:
    """Split a display into lines. A risk of several lines gives its reason after the last."""
    at = 0
    for line in display.split("\n"):
        end = at + len(line)
        touched = [risk for risk in risks if risk.start < end and risk.end > at]
        marks = sorted((max(risk.start, at) - at, min(risk.end, end) - at) for risk in touched)
        reasons = tuple(dict.fromkeys(risk.text for risk in touched if risk.end <= end))
        yield MarkedLine(line, _merged(marks), reasons)
        at = end + 1


def _merged(marks: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """
    >>> _merged([(0, 4), (2, 6), (8, 9)])
    ((0, 6), (8, 9))
    """
    found: list[tuple[int, int]] = []
    for start, end in marks:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def risk_lines(approval: "ApprovalReport") -> list[str]:
    """Return one line for each risk: the marked part, and the reason beside it."""
    return [
        f"! {' '.join(approval.display[risk.start : risk.end].split())}  <- {risk.text}"
        for risk in approval.risks
    ]


def why_confirm(approval: "ApprovalReport") -> str:
    """Return the sentences that the approver confirms, each reason once."""
    return " ".join(dict.fromkeys(risk.text for risk in approval.risks))
