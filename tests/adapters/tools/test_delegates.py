"""The tool that hands a task on: it takes a task, shows it whole, and never runs."""

import pytest

from holdfast.adapters.tools.builtin.delegates import delegate_tool
from holdfast.assembly.agents import delegates_of
from holdfast.errors import Unusable
from holdfast.home import Agent, specs_from_agents
from holdfast.ports.tools import InvalidArguments
from holdfast.runtime.context import AgentSpec

TOOL = delegate_tool("helper")


@pytest.mark.parametrize(
    "arguments",
    [
        b"{}",
        b'{"task": "  "}',
        b'{"task": 1}',
        b'{"task": "x", "to": "other"}',
        b'{"task": "' + b"x" * 16_001 + b'"}',
    ],
)
def test_an_empty_task_is_refused_with_the_reason(arguments: bytes) -> None:
    with pytest.raises(InvalidArguments):
        TOOL.validate(arguments)


def test_its_definition_names_the_agent_and_is_decided_like_any_tools() -> None:
    assert (
        TOOL.definition.name,
        TOOL.definition.kind,
        TOOL.definition.contract,
        TOOL.definition.audience,
    ) == (
        "delegate_helper",
        "delegate",
        "once",
        "team",
    )
    assert (
        TOOL.definition.digest()
        == delegate_tool("helper").definition.digest()
        != delegate_tool("other").definition.digest()
    )


def test_a_delegate_must_exist_and_have_a_callable_name() -> None:
    helper = AgentSpec(name="helper", model="demo")
    assert delegates_of([AgentSpec(name="ops", model="demo", delegates=("helper",)), helper]) == (
        "helper",
    )
    with pytest.raises(Unusable, match="did you mean 'helper'"):
        delegates_of([AgentSpec(name="ops", model="demo", delegates=("helpr",)), helper])
    with pytest.raises(Unusable, match="its own delegate"):
        delegates_of([AgentSpec(name="ops", model="demo", delegates=("ops",))])
    with pytest.raises(Unusable, match="could not call it"):
        delegates_of(
            [
                AgentSpec(name="ops", model="demo", delegates=("a b",)),
                AgentSpec(name="a b", model="demo"),
            ]
        )


def test_delegates_of_delegates_are_made_known_once() -> None:
    leaf = Agent("leaf")
    helper = Agent("helper", delegates=[leaf])
    specs, _, _ = specs_from_agents([Agent("ops", delegates=[helper, leaf]), helper])
    assert [(each.name, each.delegates) for each in specs] == [
        ("ops", ("helper", "leaf")),
        ("helper", ("leaf",)),
        ("leaf", ()),
    ]
    with pytest.raises(Unusable, match="two agents are called 'leaf'"):
        specs_from_agents([Agent("ops", delegates=[leaf, Agent("leaf", model="script:x")])])
