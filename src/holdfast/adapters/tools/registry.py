"""
The tools of this process by name: the built-in tools, the program's own functions, and the
settings' `module:attribute` entries.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.adapters.tools.user_program import UserProgram
from holdfast.errors import HoldfastError, Unusable, describe_error
from holdfast.ids import CallId
from holdfast.ports.memory import Memory
from holdfast.ports.tools import BUILTIN_TOOLS, ProcessFacts, Tool

if TYPE_CHECKING:
    from holdfast.adapters.tools.shell.shell import ShellSettings

Makers = Mapping[str, Callable[[], Tool]]

# The module of each built-in tool. A function of the tool's name makes it; the shell is a class.
_MODULES = {
    "ask_person": "builtin.questions",
    "cancel_reminder": "builtin.reminders",
    "edit_file": "files.edit",
    "forget": "builtin.memory",
    "job_cancel": "jobs.tools",
    "job_status": "jobs.tools",
    "list_files": "files.read",
    "list_reminders": "builtin.reminders",
    "now": "builtin.now",
    "read_file": "files.read",
    "recall": "builtin.memory",
    "remember": "builtin.memory",
    "search_files": "files.read",
    "set_reminder": "builtin.reminders",
    "write_file": "files.write",
}


class Toolbox:
    """
    A ToolBox of given tools, and of tools that are made when they are first asked for. Two tools
    with one name are refused.
    """

    def __init__(self, tools: Iterable[Tool], makers: Makers | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self._makers = makers or {}
        for tool in tools:
            name = tool.definition.name
            if self._tools.setdefault(name, tool) is not tool or name in self._makers:
                raise Unusable(
                    f"there are two tools named {name!r}",
                    hint="give one of them another name with @tool(name=...)",
                )

    def get(self, name: str) -> Tool | None:
        tool = self._tools.get(name)
        if tool is None and name in self._makers:
            tool = self._tools[name] = self._makers[name]()
        return tool

    def names(self) -> Sequence[str]:
        return tuple(sorted({*self._tools, *self._makers}))

    def end_survivors(self, call: CallId, facts: ProcessFacts | None) -> int:
        from holdfast.adapters.tools.shell import processes

        return processes.end_survivors(call, facts)


def builtin_makers(
    *,
    shell: "Callable[[], ShellSettings] | None" = None,
    now_ms: Callable[[], int] | None = None,
    memory: Memory | None = None,
) -> dict[str, Callable[[], Tool]]:
    """The built-in tools by name. A tool's modules are imported when it is made."""

    def made(name: str) -> Tool:
        from holdfast.adapters.tools.builtin.now import wall_ms

        clock = now_ms or wall_ms
        needs = {
            "forget": (memory,),
            "now": (clock,),
            "recall": (memory,),
            "remember": (memory, clock),
            "set_reminder": (clock,),
        }
        module = import_module(f"holdfast.adapters.tools.{_MODULES[name]}")
        tool: Tool = getattr(module, name)(*needs.get(name, ()))
        return tool

    def made_shell() -> Tool:
        from holdfast.adapters.tools.shell.shell import Shell

        return Shell(settings=shell)

    return {name: made_shell if name == "shell" else partial(made, name) for name in BUILTIN_TOOLS}


def builtin_tools() -> tuple[Tool, ...]:
    """
    The built-in tools, sorted by name.

    >>> [tool.definition.name for tool in builtin_tools()] == list(BUILTIN_TOOLS)
    True
    """
    return tuple(make() for make in builtin_makers().values())


def load_tool(name: str, program: UserProgram) -> Tool:
    """
    Return the tool that settings name as `module:attribute`. Raise Unusable with the next step.
    """
    module_name, _, attribute = name.partition(":")
    value = getattr(_imported(program, module_name, name), attribute, None)
    if value is None:
        raise Unusable(
            f"tool {name!r}: {module_name} has no {attribute!r}", hint="check its spelling"
        )
    if not all(hasattr(value, part) for part in ("definition", "validate", "bind", "prepare")):
        raise Unusable(f"{name!r} is not a tool", hint="decorate the function with @holdfast.tool")
    tool: Tool = value
    return tool


def _imported(program: UserProgram, module: str, tool: str) -> ModuleType:
    try:
        return program.load(module)
    except HoldfastError:  # raised by Holdfast's decorators, with its own hint
        raise
    except ImportError as exc:
        raise Unusable(
            f"tool {tool!r}: {exc}",
            hint="install it, or name its folder: tools.python.folder in holdfast.toml",
        ) from exc
    except (
        Exception,
        SystemExit,
        # A user's module may raise anything. It must not end a server, and its exit code must not
        # pass for Holdfast's.
    ) as exc:
        raise Unusable(
            f"tool {tool!r}: importing {module} failed: {describe_error(exc)}",
            hint=f"run `python -c 'import {module}'` to see where",
        ) from exc
