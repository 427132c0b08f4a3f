"""
Holdfast: a durable, fail-closed session runtime for AI agents.

The public names, sorted, loaded when they are used: `import holdfast` alone costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.adapters.tools.python import tool as tool
    from holdfast.errors import (
        Busy as Busy,
    )
    from holdfast.errors import (
        CannotDrive as CannotDrive,
    )
    from holdfast.errors import (
        Fenced as Fenced,
    )
    from holdfast.errors import (
        HoldfastError as HoldfastError,
    )
    from holdfast.errors import (
        InDoubt as InDoubt,
    )
    from holdfast.errors import (
        InvariantBroken as InvariantBroken,
    )
    from holdfast.errors import (
        NewerVersion as NewerVersion,
    )
    from holdfast.errors import (
        NotSaved as NotSaved,
    )
    from holdfast.errors import (
        Refused as Refused,
    )
    from holdfast.errors import (
        Superseded as Superseded,
    )
    from holdfast.errors import (
        Takeover as Takeover,
    )
    from holdfast.errors import (
        Untrusted as Untrusted,
    )
    from holdfast.errors import (
        Unusable as Unusable,
    )
    from holdfast.home import (
        Agent as Agent,
    )
    from holdfast.home import (
        Answer as Answer,
    )
    from holdfast.home import (
        Approval as Approval,
    )
    from holdfast.home import (
        Followed as Followed,
    )
    from holdfast.home import (
        Grant as Grant,
    )
    from holdfast.home import (
        Home as Home,
    )
    from holdfast.home import (
        Job as Job,
    )
    from holdfast.home import (
        Reminder as Reminder,
    )
    from holdfast.home import (
        Session as Session,
    )
    from holdfast.home import (
        Turn as Turn,
    )
    from holdfast.home import (
        open as open,  # noqa: A004  # holdfast.open
    )
    from holdfast.ports.journal_store import Record as Record
    from holdfast.ports.tools import ToolCall as ToolCall
    from holdfast.runtime.feed import Delta as Delta
    from holdfast.runtime.feed import Gap as Gap
    from holdfast.runtime.foreign import ForeignTurn as ForeignTurn
    from holdfast.runtime.foreign import Gate as Gate
    from holdfast.session.authority import Audience as Audience
    from holdfast.session.authority import MessageSource as MessageSource
    from holdfast.session.authority import Principal as Principal
    from holdfast.session.authority import Provenance as Provenance
    from holdfast.session.messages import Quote as Quote
    from holdfast.session.messages import Usage as Usage

_HOME, _ERRORS, _AUTHORITY = "holdfast.home", "holdfast.errors", "holdfast.session.authority"
_WHERE = {
    "Agent": _HOME,
    "Answer": _HOME,
    "Approval": _HOME,
    "Audience": _AUTHORITY,
    "Busy": _ERRORS,
    "CannotDrive": _ERRORS,
    "Delta": "holdfast.runtime.feed",
    "Fenced": _ERRORS,
    "Followed": _HOME,
    "ForeignTurn": "holdfast.runtime.foreign",
    "Gap": "holdfast.runtime.feed",
    "Gate": "holdfast.runtime.foreign",
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
    "Quote": "holdfast.session.messages",
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
    "Usage": "holdfast.session.messages",
    "open": _HOME,
    "tool": "holdfast.adapters.tools.python",
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
