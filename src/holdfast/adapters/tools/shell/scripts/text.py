"""
The prompt's lines about the files that a command runs: the bound ones, and those that can change.
"""

from holdfast.adapters.tools.shell.scripts.files import Runs
from holdfast.session.view.safe_text import framed, render_line

BOUND = "runs these scripts as they are now, from private copies that nobody can change"
DECLARED = "it may run files that can still change"
_LINES_MAX = 20  # an approver reads no more; the rest is counted


def run_lines(runs: Runs) -> list[str]:
    lines = []
    if runs.bound:
        lines += [BOUND, *_framed([f"{each.path} as {each.private}" for each in runs.bound])]
    if runs.declared:
        lines += [DECLARED, *_framed(list(runs.declared))]
    return lines


def _framed(texts: list[str]) -> list[str]:
    """Make invisible characters visible, as in the command: names come from the workspace."""
    shown = [framed(render_line(text).text) for text in texts[:_LINES_MAX]]
    more = len(texts) - _LINES_MAX
    return [*shown, f"and {more} more"] if more > 0 else shown
