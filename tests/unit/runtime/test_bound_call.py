"""
A turn's tool by its name is the very tool that the turn has under it, however its agent's settings
name it; and the box is not asked for the others.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.adapters.tools.python.decorator import tool
from holdfast.runtime.context import AgentSpec
from holdfast.runtime.drive.bound_call import agent_tools, tool_for, turn_tools


@tool
def restart(service: str) -> str:
    """Restart a service."""
    return service


@tool(name="restart")
def restart_gently(service: str) -> str:
    """Restart a service, gently."""
    return service


@tool
def look_around() -> str:
    """Look around."""
    return "nothing"


@tool(name="delegate_research")
def ask_research(task: str) -> str:
    """Hand a task on."""
    return task


BOX: dict[str, Any] = {
    "restart": restart,
    "look_around": look_around,
    "bot:gentle": restart_gently,
    "bot:around": look_around,
    "delegate_research": ask_research,
}


class Box:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, name: str) -> Any:
        self.asked.append(name)
        return BOX.get(name)


def a_world(*tools: str, delegates: tuple[str, ...] = ()) -> Any:
    agents = {
        "ops": AgentSpec(name="ops", model="demo", tools=tools, delegates=delegates),
        "research": AgentSpec(name="research", model="demo"),
    }
    return SimpleNamespace(added_tools={}, tools=Box(), agents=agents, servers=None)


def a_turn(agent: str = "ops", delegate_of: Any = None) -> Any:
    return SimpleNamespace(agent=agent, delegate_of=delegate_of)


@pytest.mark.parametrize(
    "tools",
    [
        (), ("restart",), ("look_around", "restart"), ("restart", "bot:gentle"), ("bot:gentle", "restart"), ("bot:around", "bot:gentle"), ("absent", "restart"),
        ("restart", "restart"), ("bot:absent", "look_around"),
    ],
)  # fmt: skip
def test_a_tool_by_its_name_is_the_tool_of_the_turn(tools: tuple[str, ...]) -> None:
    world = a_world(*tools, delegates=("research", "nobody"))
    for name in (
        "restart",
        "look_around",
        "absent",
        "bot:gentle",
        "bot:around",
        "delegate_research",
        "delegate_nobody",
        "",
    ):
        assert tool_for(world, a_turn(), name) is turn_tools(
            world, a_turn(), world.agents["ops"]
        ).get(name), name
        assert tool_for(world, a_turn("unknown"), name) is None


def test_a_delegate_has_no_tool_that_an_agent_above_it_lacks() -> None:
    world = a_world("restart", "look_around")
    above = SimpleNamespace(path=("research", "ops"), tools=("restart", "look_around"))
    assert agent_tools(world, world.agents["ops"]).keys() == {"restart", "look_around"}
    assert tool_for(world, a_turn(delegate_of=above), "restart") is None  # research has none
    held = SimpleNamespace(path=("ops", "ops"), tools=("look_around",))
    assert tool_for(world, a_turn(delegate_of=held), "restart") is None  # it was not handed down
    assert tool_for(world, a_turn(delegate_of=held), "look_around") is look_around


def test_a_tool_that_is_not_the_agents_is_not_found_though_the_box_has_it() -> None:
    world = a_world("look_around")
    assert tool_for(world, a_turn(), "restart") is None
    assert world.tools.asked == []


def test_the_box_is_asked_for_the_one_tool_alone() -> None:
    """Every commit of a call asks for its tool, and an agent may have many."""
    world = a_world("restart", "look_around", "absent")
    assert tool_for(world, a_turn(), "look_around") is look_around
    assert world.tools.asked == ["look_around"]
