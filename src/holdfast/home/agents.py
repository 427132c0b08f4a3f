"""Agents as a program hands them in, and their conversion for `open_service`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.argument_checks import plain_text
from holdfast.assembly.lazy_adapters import LazyModels
from holdfast.errors import Unusable
from holdfast.ports.tools import BUILTIN_TOOLS, Tool
from holdfast.runtime.context import AgentSpec
from holdfast.settings.settings import did_you_mean
from holdfast.settings.values import is_name


@dataclass(frozen=True)
class Agent:
    """
    A name, a model, instructions, and tools: functions decorated with `@holdfast.tool`, or names of
    built-in ones.

    `model` is a name ("demo", "script:FILE", "anthropic:...") or any Pydantic AI model. `delegates`
    are agents that it may hand tasks to. Each is called as the tool `delegate_NAME`, and has no
    tool that this agent lacks.
    """

    name: str
    model: Any = "demo"
    instructions: str = ""
    tools: Sequence[Any] = field(default_factory=tuple)
    delegates: "Sequence[Agent | str]" = field(default_factory=tuple)


def specs_from_agents(agents: Sequence[Agent]) -> tuple[list[AgentSpec], list[Tool], LazyModels]:
    """Convert agents for `open_service`: their specs, their tools and models that are objects."""
    tools: dict[str, Tool] = {}
    models = LazyModels()
    specs = []
    if isinstance(agents, Agent | str) or not isinstance(agents, Iterable):
        raise Unusable("agents is not a list of agents", hint="write agents=[holdfast.Agent(...)]")
    agents = list(agents)
    if not all(isinstance(each, Agent) for each in agents):
        raise Unusable("agents is not a list of agents", hint="write agents=[holdfast.Agent(...)]")
    for agent in _with_delegates(agents):
        names = tuple(_named(each, tools) for each in agent.tools)
        model = agent.model if isinstance(agent.model, str) else models.register(agent.model)
        delegates = (each if isinstance(each, str) else each.name for each in agent.delegates)
        specs.append(
            AgentSpec(
                name=plain_text(agent.name),
                model=plain_text(model),
                instructions=plain_text(agent.instructions),
                tools=names,
                delegates=tuple(map(plain_text, delegates)),
            )
        )
    _refuse_unknown_tools(specs, tools)
    return specs, list(tools.values()), models


def _refuse_unknown_tools(specs: Sequence[AgentSpec], tools: Mapping[str, Tool]) -> None:
    """
    Refuse an unknown tool name here; otherwise only the model would learn that the tool is missing.
    """
    known = (*tools, *BUILTIN_TOOLS)
    for spec in specs:
        for name in spec.tools:
            if ":" not in name and name not in known:
                raise Unusable(
                    f"the agent {spec.name!r} names a tool {name!r}, and there is no such built-in "
                    f"tool{did_you_mean(name, known)}",
                    hint="hand the function itself, decorated with @holdfast.tool, or name it as "
                    "module:function",
                )


def _with_delegates(agents: Sequence[Agent]) -> list[Agent]:
    """Return the agents in their order, then the agents that they delegate to."""
    known: dict[str, Agent] = {}
    for agent in agents:
        _check(agent)
        if known.setdefault(agent.name, agent) is not agent:
            raise Unusable(
                f"two agents are called {agent.name!r}", hint="give one of them another name"
            )
    found = list(agents)
    for agent in found:  # the list grows during the loop
        for each in agent.delegates:
            if isinstance(each, str):
                continue
            _check(each)
            if known.setdefault(each.name, each) is not each:
                raise Unusable(
                    f"two agents are called {each.name!r}", hint="give one of them another name"
                )
            if not any(each is one for one in found):
                found.append(each)
    return found


def _check(agent: object) -> None:
    """Refuse what is not an agent, or has a part of another type."""
    if not isinstance(agent, Agent):
        raise Unusable(f"{agent!r} is not an agent", hint="use a holdfast.Agent, or its name")
    if not isinstance(agent.name, str) or not is_name(agent.name):
        raise Unusable(
            f"{agent.name!r} is not a valid agent name",
            hint="use a short word, without invisible characters or spaces at its ends",
        )
    if not isinstance(agent.instructions, str):
        raise Unusable(
            f"the instructions of {agent.name!r} are not text", hint="write instructions='...'"
        )
    if any(
        isinstance(each, str) or not isinstance(each, Iterable)
        for each in (agent.tools, agent.delegates)
    ):
        raise Unusable(
            f"the agent {agent.name!r} has one where a list must be",
            hint="write tools=[...] and delegates=[...]",
        )


def _named(tool: Any, tools: dict[str, Tool]) -> str:
    if isinstance(tool, str):
        return str(plain_text(tool))
    if not hasattr(tool, "definition"):
        raise Unusable(
            f"{tool!r} is not a tool",
            hint="decorate it with @holdfast.tool, or name a built-in tool",
        )
    name: str = tool.definition.name
    if tools.setdefault(name, tool) is not tool:
        raise Unusable(
            f"two tools are called {name!r}",
            hint="give one of them another name with @holdfast.tool(name=...)",
        )
    return name
