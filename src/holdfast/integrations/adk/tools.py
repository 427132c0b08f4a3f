"""
Tools with a gate inside. A call that must wait ends the run as ADK's own confirmations do: its
response is not summarised by the model, and calls beside it come to their end.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.adk.events import EventActions
from google.adk.tools import BaseTool, FunctionTool
from google.genai import types

import holdfast
from holdfast.integrations.adk.steps import ADAPTER, AgentSteps, stepping, steps_or_none
from holdfast.integrations.gated_tools import (
    Paused,
    current_turn,
    run_call,
    schema_tool,
    settings_by_name,
    text_of,
)

WAITING = {"holdfast": "waiting", "text": "The call waits for an approver."}
# A tool may ask these of the framework beside its result. A replay asks for the same.
_ACTIONS = frozenset(
    {"state_delta", "artifact_delta", "transfer_to_agent", "escalate", "skip_summarization"}
)


def gated(
    home: holdfast.Home,
    tools: Sequence[BaseTool | Callable[..., Any]],
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    agent: str | None = None,
) -> list[BaseTool]:
    """
    Put a gate into each tool or function. The agent of the home knows them from here on. `settings`
    says by name how Holdfast treats a tool: `{"status": {"mode": "auto", "contract": "pure"}}`.
    A tool's own `custom_metadata={"holdfast": {...}}` does the same.
    """
    known = [each if isinstance(each, BaseTool) else FunctionTool(each) for each in tools]
    by_name = settings_by_name(settings, [each.name for each in known])
    home.know(*(_known(each, by_name[each.name]["holdfast"]) for each in known), agent=agent)
    return [GatedAdkTool(each) for each in known]


def _known(tool: BaseTool, settings: Mapping[str, Any]) -> holdfast.SchemaTool:
    declared = tool._get_declaration()  # noqa: SLF001  # the point that each tool overrides
    if declared is None:
        raise holdfast.Unusable(
            f"{tool.name} is run by the model's provider, so it can't have a gate",
            code="malformed",
            hint="leave it out of gated(); it is not under Holdfast",
        )
    own = (tool.custom_metadata or {}).get("holdfast") or {}
    return schema_tool(
        tool.name,
        _schema_of(declared),
        description=tool.description,
        metadata={"holdfast": {**own, **settings}},
        must_ask=getattr(tool, "_require_confirmation", False) is not False,
    )


def _schema_of(declared: types.FunctionDeclaration) -> Mapping[str, Any]:
    if declared.parameters_json_schema is not None:
        found: dict[str, Any] = dict(declared.parameters_json_schema)
        return found
    if declared.parameters is None:
        return {"type": "object", "properties": {}}
    return dict(declared.parameters.json_schema.model_dump(exclude_none=True, mode="json"))


class GatedAdkTool(BaseTool):
    """A tool whose every call passes a gate of the current turn."""

    def __init__(self, tool: BaseTool) -> None:
        super().__init__(
            name=tool.name,
            description=tool.description,
            is_long_running=tool.is_long_running,
            custom_metadata=tool.custom_metadata,
            behavior=tool.behavior,
            response_scheduling=tool.response_scheduling,
        )
        self._tool = tool

    def _get_declaration(self) -> types.FunctionDeclaration | None:
        return self._tool._get_declaration()  # noqa: SLF001  # the point that each tool overrides

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        turn = current_turn()
        steps = steps_or_none() or AgentSteps(turn)
        call_id = tool_context.function_call_id
        gate = await steps.gate(self.name, args, call_id)
        path = f"{steps.path}{call_id}/"

        async def own(given: dict[str, Any]) -> Any:
            inside = AgentSteps(current_turn(), path=path)
            with stepping(inside):
                value = await _confirmed(self._tool, given, tool_context)
            if inside.is_waiting():
                raise Paused(None)
            return value

        try:
            ended, values = await run_call(
                turn,
                gate,
                own,
                agent=self.name,
                result=lambda value: _result(value, tool_context.actions),
                pauses=(Paused,),
            )
        except Paused:
            return _waiting(tool_context)
        if values:
            return values[0]
        if ended.waiting:
            return _waiting(tool_context)
        return _replayed(ended, tool_context)


async def _confirmed(tool: BaseTool, given: dict[str, Any], tool_context: Any) -> Any:
    """
    Run the tool itself. The gate stands for ADK's own confirmation, so the tool does not ask for
    one again.
    """
    bare = copy.copy(tool)
    if isinstance(bare, FunctionTool):
        bare._require_confirmation = False  # noqa: SLF001  # has no public name
    return await bare.run_async(args=given, tool_context=tool_context)


def _waiting(tool_context: Any) -> dict[str, str]:
    tool_context.actions.skip_summarization = True  # ends the step without asking the model
    tool_context.actions.escalate = True  # leaves a loop of agents
    return dict(WAITING)


def _result(value: Any, actions: EventActions) -> holdfast.LoopResult:
    """The value and the wishes as JSON. A value that JSON lacks is replayed as its text."""
    asked = actions.model_dump(mode="json", exclude_defaults=True, include=_ACTIONS)
    text = text_of(value)
    try:
        kept = json.dumps({"value": value, "actions": asked}, ensure_ascii=False)
    except (TypeError, ValueError):
        kept = json.dumps({"value": text, "actions": asked}, ensure_ascii=False)
    return holdfast.LoopResult(text, kept, ADAPTER)


def _replayed(gate: holdfast.Gate, tool_context: Any) -> Any:
    if gate.outcome != "ok":
        return {"error": gate.text}
    if gate.result is None:
        return gate.text
    kept = json.loads(gate.result)
    for name, value in kept["actions"].items():
        if name == "state_delta":
            tool_context.state.update(value)
        else:
            setattr(tool_context.actions, name, value)
    return kept["value"]
