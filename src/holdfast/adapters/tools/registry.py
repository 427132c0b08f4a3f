"""
The tools of this process by name: the built-in tools, the program's own functions, and the
settings' `module:attribute` entries.
"""

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from holdfast.adapters.tools.builtin.memory import forget, recall, remember
from holdfast.adapters.tools.builtin.now import now, wall_ms
from holdfast.adapters.tools.builtin.questions import ask_person
from holdfast.adapters.tools.builtin.reminders import cancel_reminder, list_reminders, set_reminder
from holdfast.adapters.tools.files.read import list_files, read_file, search_files
from holdfast.adapters.tools.files.write import write_file
from holdfast.adapters.tools.jobs.tools import job_cancel, job_status
from holdfast.adapters.tools.python.arguments import told
from holdfast.adapters.tools.shell import processes
from holdfast.adapters.tools.shell.shell import Shell
from holdfast.adapters.tools.user_program import Program
from holdfast.errors import HoldfastError, Unusable
from holdfast.ids import CallId
from holdfast.ports.memory import Memory
from holdfast.ports.tools import BUILTIN_TOOLS, ProcessFacts, Tool


class Toolbox:
    """A ToolBox of given tools. Two tools with one name are refused."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            name = tool.definition.name
            if name in self._tools and self._tools[name] is not tool:
                raise Unusable(
                    f"there are two tools named {name!r}",
                    hint="give one of them another name with @tool(name=...)",
                )
            self._tools[name] = tool

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def names(self) -> Sequence[str]:
        return tuple(sorted(self._tools))

    def end_survivors(self, call: CallId, facts: ProcessFacts | None) -> int:
        return processes.end_survivors(call, facts)


def builtin_tools(
    *, shell: Shell | None = None, now_ms: Callable[[], int] = wall_ms, memory: Memory | None = None
) -> tuple[Tool, ...]:
    """
    The built-in tools, sorted by name.

    >>> [tool.definition.name for tool in builtin_tools()] == list(BUILTIN_TOOLS)
    True
    """
    return (
        ask_person(),
        cancel_reminder(),
        forget(memory),
        job_cancel(),
        job_status(),
        list_files(),
        list_reminders(),
        now(now_ms),
        read_file(),
        recall(memory),
        remember(memory, now_ms),
        search_files(),
        set_reminder(now_ms),
        shell or Shell(),
        write_file(),
    )


def load_tool(name: str, builtins: Iterable[Tool], program: Program) -> Tool:
    """
    Return a tool by its name in the settings: a built-in tool, or `module:attribute`. Raise
    Unusable with the next step.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon:
        found = next((tool for tool in builtins if tool.definition.name == name), None)
        if found is None:
            raise Unusable(
                f"there is no built-in tool {name!r}",
                hint=f"use one of {', '.join(BUILTIN_TOOLS)}, or MODULE:FUNCTION",
            )
        return found
    value = getattr(_imported(program, module_name, name), attribute, None)
    if value is None:
        raise Unusable(
            f"tool {name!r}: {module_name} has no {attribute!r}", hint="check its spelling"
        )
    if not all(hasattr(value, part) for part in ("definition", "validate", "bind", "prepare")):
        raise Unusable(f"{name!r} is not a tool", hint="decorate the function with @holdfast.tool")
    tool: Tool = value
    return tool


def _imported(program: Program, module: str, tool: str) -> ModuleType:
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
            f"tool {tool!r}: importing {module} failed: {told(exc)}",
            hint=f"run `python -c 'import {module}'` to see where",
        ) from exc
