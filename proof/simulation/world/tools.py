"""
Random tools: one of each contract, slow, failing and hanging. `effect` is the world's memory of
each.

The functions are one program in every process. Tools that use a port (memory, the clock, the
machine's jobs) are created for each process and die with it.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

from holdfast.adapters.tools.builtin.delegates import delegate_tool
from holdfast.adapters.tools.builtin.memory import recall, remember
from holdfast.adapters.tools.builtin.questions import ask_person
from holdfast.adapters.tools.builtin.reminders import cancel_reminder, list_reminders, set_reminder
from holdfast.adapters.tools.jobs.tools import job_status
from holdfast.adapters.tools.python.decorator import PythonTool, tool
from holdfast.adapters.tools.registry import Toolbox
from holdfast.ids import CallId
from holdfast.ports.tools import ProcessFacts, Tool, ToolCall
from proof.simulation.kinds import Has
from proof.simulation.world.ports import Chaos

Effect = Callable[[ToolCall, str], None]
HAVE_EFFECTS = ("act", "tidy", "look", "charge", "vault", "brew", "dig")


class Functions(NamedTuple):
    plain: tuple[Tool, ...]
    dig: PythonTool[Any, Any]  # the function that `DigTool` turns into jobs


_INSTANCE: ContextVar[tuple[Chaos, Effect]] = ContextVar("instance")
"""The run of the caller of a tool: the functions are inspected once for all runs."""


class SimulatedToolbox(Toolbox):
    """A toolbox whose calls leave no processes behind."""

    def end_survivors(self, call: CallId, facts: ProcessFacts | None) -> int:
        del (
            call,
            facts,
        )  # functions die with their process, and this machine's real processes are not simulated
        return 0


def simulated_functions(chaos: Chaos, effect: Effect) -> Functions:
    """Return the functions for one run: for everything done from here on in this context."""
    _INSTANCE.set((chaos, effect))
    return _functions()


@cache
def _functions() -> Functions:
    """
    `act`, `vault` and `charge` ask; `tidy` must not run twice and asks nobody; `brew` and `dig` go
    on in the background.
    """

    async def work(call: ToolCall, name: str, what: str) -> str:
        chaos, effect = _INSTANCE.get()
        await chaos.dawdle(3, 0.5)
        effect(call, name)
        await chaos.dawdle(3, 0.5)
        if chaos.strikes(0.03):
            await asyncio.sleep(10_000)
        if chaos.strikes(0.1):
            raise ValueError("dice")
        return f"done: {what}"

    @tool
    async def act(what: str, call: ToolCall) -> str:
        """Can't be undone."""
        return await work(call, "act", what)

    @tool(mode="auto")
    async def tidy(what: str, call: ToolCall) -> str:
        """Can't be undone, and asks nobody."""
        return await work(call, "tidy", what)

    @tool(contract="pure", mode="auto", audience="public")
    async def look(what: str, call: ToolCall) -> str:
        """Only look."""
        return await work(call, "look", what)

    @tool(contract="idempotent", audience="team")
    async def charge(what: str, call: ToolCall) -> str:
        """May be repeated with its key."""
        return await work(call, "charge", what)

    @tool(mode="auto", audience="public")
    async def vault(what: str, call: ToolCall) -> str:
        """For nobody: the agent that people ask lacks it."""
        return await work(call, "vault", what)

    @tool(mode="auto", audience="team", background=True)
    async def brew(what: str, call: ToolCall) -> str:
        """Goes on in the background, as a task of the program."""
        return await work(call, "brew", what)

    @tool(mode="auto", audience="team", background=True)
    async def dig(what: str, call: ToolCall) -> str:
        """Goes on in the background, as a process of its own."""
        return await work(call, "dig", what)

    return Functions((act, tidy, look, charge, vault, brew, ask_person()), dig)


_ALIKE: tuple[Tool, ...] = (
    delegate_tool("helper"),
    delegate_tool("scout"),
    cancel_reminder(),
    list_reminders(),
    job_status(),
)
"""Tools that use no port of a process."""


def toolbox_of(
    functions: Functions, dig: Tool, kind: frozenset[Has], memory: Any, now_ms: Callable[[], int]
) -> SimulatedToolbox:
    """One process's tools. Agents name their own tools; further tools here are not callable."""
    own: dict[str, Callable[[], Tool]] = {}
    if Has.MEMORY in kind:
        own |= {"remember": lambda: remember(memory, now_ms), "recall": lambda: recall(memory)}
    if Has.REMINDERS in kind:
        own["set_reminder"] = lambda: set_reminder(now_ms)
    return SimulatedToolbox((*functions.plain, dig, *_ALIKE), own)
