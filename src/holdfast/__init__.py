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
    from holdfast.adapters.tools.schema.tool import SchemaTool as SchemaTool
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
    from holdfast.runtime.external_loop.answered import OpenLoop as OpenLoop
    from holdfast.runtime.external_loop.calls import CallReport as CallReport
    from holdfast.runtime.external_loop.gate import (
        Gate as Gate,
        LoopAnswer as LoopAnswer,
        LoopCall as LoopCall,
        LoopResult as LoopResult,
    )
    from holdfast.runtime.external_loop.items import Item as Item, Items as Items
    from holdfast.runtime.external_loop.turn import ExternalTurn as ExternalTurn
    from holdfast.runtime.reports.session_list import SessionLine as SessionLine
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
_GATE = "holdfast.runtime.external_loop.gate"
_WHERE = {
    "Agent": _HOME,
    "Answer": _HOME,
    "Approval": _HOME,
    "Audience": _AUTHORITY,
    "Busy": _ERRORS,
    "CallReport": "holdfast.runtime.external_loop.calls",
    "CannotDrive": _ERRORS,
    "Delta": "holdfast.runtime.streams.feed",
    "Fenced": _ERRORS,
    "Followed": _HOME,
    "ExternalTurn": "holdfast.runtime.external_loop.turn",
    "Gap": "holdfast.runtime.streams.feed",
    "Gate": _GATE,
    "Grant": _HOME,
    "HoldfastError": _ERRORS,
    "Home": _HOME,
    "InDoubt": _ERRORS,
    "InvariantBroken": _ERRORS,
    "Item": "holdfast.runtime.external_loop.items",
    "Items": "holdfast.runtime.external_loop.items",
    "Job": _HOME,
    "LoopAnswer": _GATE,
    "LoopCall": _GATE,
    "LoopResult": _GATE,
    "MessageSource": _AUTHORITY,
    "NewerVersion": _ERRORS,
    "NotSaved": _ERRORS,
    "OpenLoop": "holdfast.runtime.external_loop.answered",
    "Principal": _AUTHORITY,
    "Provenance": _AUTHORITY,
    "Quote": "holdfast.session.view.messages",
    "Record": "holdfast.ports.journal_store",
    "Refused": _ERRORS,
    "Reminder": _HOME,
    "SchemaTool": "holdfast.adapters.tools.schema.tool",
    "Session": _HOME,
    "SessionLine": "holdfast.runtime.reports.session_list",
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
