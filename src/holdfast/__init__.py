"""
Holdfast: a durable, fail-closed session runtime for AI agents.

The public names, sorted, loaded when they are used: `import holdfast` alone costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Each name as itself, so that type checkers take it for ours to give on; one statement for each
    # module, not one for each name.
    # isort: off
    from holdfast.adapters.tools.python.decorator import tool as tool
    from holdfast.errors import (
        Busy as Busy,
        CannotDrive as CannotDrive,
        Fenced as Fenced,
        HoldfastError as HoldfastError,
        InDoubt as InDoubt,
        InvariantBroken as InvariantBroken,
        NewerVersion as NewerVersion,
        NotSaved as NotSaved,
        Refused as Refused,
        Superseded as Superseded,
        Takeover as Takeover,
        Untrusted as Untrusted,
        Unusable as Unusable,
    )
    from holdfast.home import (
        Agent as Agent,
        Answer as Answer,
        Approval as Approval,
        Followed as Followed,
        Grant as Grant,
        Home as Home,
        Job as Job,
        Reminder as Reminder,
        Session as Session,
        Turn as Turn,
        open as open,  # noqa: A004  # holdfast.open
    )
    from holdfast.ports.journal_store import Record as Record
    from holdfast.ports.tools import ToolCall as ToolCall
    from holdfast.runtime.streams.feed import Delta as Delta, Gap as Gap
    from holdfast.runtime.external_loop import ExternalTurn as ExternalTurn, Gate as Gate
    from holdfast.session.authority.context import (
        Audience as Audience,
        MessageSource as MessageSource,
        Principal as Principal,
        Provenance as Provenance,
    )
    from holdfast.session.view.messages import Quote as Quote, Usage as Usage
    # isort: on

_HOME, _ERRORS, _AUTHORITY = (
    "holdfast.home",
    "holdfast.errors",
    "holdfast.session.authority.context",
)
_WHERE = {
    "Agent": _HOME,
    "Answer": _HOME,
    "Approval": _HOME,
    "Audience": _AUTHORITY,
    "Busy": _ERRORS,
    "CannotDrive": _ERRORS,
    "Delta": "holdfast.runtime.streams.feed",
    "Fenced": _ERRORS,
    "Followed": _HOME,
    "ExternalTurn": "holdfast.runtime.external_loop",
    "Gap": "holdfast.runtime.streams.feed",
    "Gate": "holdfast.runtime.external_loop",
    "Grant": _HOME,
    "HoldfastError": _ERRORS,
    "Home": _HOME,
    "InDoubt": _ERRORS,
    "InvariantBroken": _ERRORS,
    "Job": _HOME,
    "MessageSource": _AUTHORITY,
    "NewerVersion": _ERRORS,
    "NotSaved": _ERRORS,
    "Principal": _AUTHORITY,
    "Provenance": _AUTHORITY,
    "Quote": "holdfast.session.view.messages",
    "Record": "holdfast.ports.journal_store",
    "Refused": _ERRORS,
    "Reminder": _HOME,
    "Session": _HOME,
    "Superseded": _ERRORS,
    "Takeover": _ERRORS,
    "ToolCall": "holdfast.ports.tools",
    "Turn": _HOME,
    "Untrusted": _ERRORS,
    "Unusable": _ERRORS,
    "Usage": "holdfast.session.view.messages",
    "open": _HOME,
    "tool": "holdfast.adapters.tools.python.decorator",
}
__all__ = sorted(_WHERE)  # noqa: PLE0605  # computed from the one list
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in ("blocking", "testing"):
        return import_module(f"holdfast.{name}")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__", "blocking", "testing"]
