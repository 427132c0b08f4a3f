"""
Tools for tests, ours and yours: homes in memory, scripted models, a manual clock, crashes on
purpose, and the conformance suites of stores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.clock import ManualClock as ManualClock
    from holdfast.testing.memory_home import Crashed as Crashed
    from holdfast.testing.memory_home import Disk as Disk
    from holdfast.testing.memory_home import crash_after as crash_after
    from holdfast.testing.memory_home import open_in_memory as open_in_memory
    from holdfast.testing.models import ScriptModel as ScriptModel

_MEMORY = "holdfast.testing.memory_home"
_WHERE = {
    "Crashed": _MEMORY,
    "Disk": _MEMORY,
    "ManualClock": "holdfast.testing.clock",
    "ScriptModel": "holdfast.testing.models",
    "crash_after": _MEMORY,
    "open_in_memory": _MEMORY,
}
__all__ = sorted(_WHERE)  # noqa: PLE0605  # computed from the one list


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
