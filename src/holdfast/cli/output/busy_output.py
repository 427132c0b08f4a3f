"""
How lists show locked sessions: their names, and who holds each. Their rows may be old or missing.
"""

from typing import TYPE_CHECKING

from holdfast.cli.shared.options import Options

if TYPE_CHECKING:
    from holdfast.runtime.reports.lock_budget import LockWaitBudget


def busy_fields(patience: "LockWaitBudget | None") -> dict[str, object]:
    """Return the fields only if some session is locked. A list without them is complete."""
    from holdfast.runtime.reports.lock_budget import busy_report

    found = patience.found if patience is not None else {}
    return (
        {"busy": {session: busy_report(each) for session, each in found.items()}} if found else {}
    )


def tell_busy(options: Options, patience: "LockWaitBudget | None") -> None:
    for each in patience.found.values() if patience is not None else ():
        options.out.note(f"{each.message}: its line here may be old")
