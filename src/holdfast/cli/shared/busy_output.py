"""
What lists say of sessions that somebody keeps locked: which they are, and who holds each. What is
told of them may be old, or missing.
"""

from typing import TYPE_CHECKING

from holdfast.cli.shared.options import Options

if TYPE_CHECKING:
    from holdfast.runtime.reports.lock_budget import LockWaitBudget


def busy_fields(patience: "LockWaitBudget | None") -> dict[str, object]:
    """Only where there is something to say: a list without it is whole."""
    from holdfast.runtime.reports.lock_budget import busy_report

    found = patience.found if patience is not None else {}
    return (
        {"busy": {session: busy_report(each) for session, each in found.items()}} if found else {}
    )


def tell_busy(options: Options, patience: "LockWaitBudget | None") -> None:
    for each in patience.found.values() if patience is not None else ():
        options.out.note(f"{each.message}: what is said of it here may be old")
