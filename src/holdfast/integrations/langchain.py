"""
Holdfast under LangGraph and LangChain agents: tools with a gate inside, and `run`, which goes on
where the turn stands.

    agent = create_agent(model, gated(home, [restart]), checkpointer=HoldfastSaver(home))
    done = await run(agent, home, "ops/api", "restart the api", source=alice, dedup=message_id)
    if done.waiting:
        ...  # tomorrow, after an answer: the same line

The gate sits in the tool, so that it holds in every sub-graph. `interrupt` only leaves the graph: a
resume value is never consent. A tool's metadata may say how Holdfast treats it:
`tool.metadata = {"holdfast": {"mode": "auto"}}`.
"""

import json
from collections.abc import Sequence
from typing import Any

import holdfast
from holdfast.errors import install_hint
from holdfast.integrations.gated_tools import (
    Done,
    current_turn,
    doubts_before,
    driving,
    run_call,
    schema_tool,
    text_of,
)

try:
    from langchain.tools import ToolRuntime
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import BaseTool, StructuredTool
    from langgraph.errors import GraphBubbleUp
    from langgraph.types import Command, interrupt

    from holdfast.integrations.langchain_calls import CloseOpenCalls, closing_messages
    from holdfast.integrations.langgraph_saver import HoldfastSaver
except ImportError as exc:
    raise holdfast.Unusable(
        f"LangChain is not here: {exc}", hint=install_hint("langchain")
    ) from exc

__all__ = ["CloseOpenCalls", "Done", "HoldfastSaver", "gated", "run"]
ADAPTER = "langchain/1"


def gated(
    home: holdfast.Home, tools: Sequence[BaseTool], *, agent: str | None = None
) -> list[BaseTool]:
    """Put a gate into each tool. The agent of the home knows them from here on."""
    home.know(*(_known(each) for each in tools), agent=agent)
    return [_gated(each) for each in tools]


def _known(tool: BaseTool) -> holdfast.SchemaTool:
    schema = tool.tool_call_schema
    written = schema if isinstance(schema, dict) else schema.model_json_schema()
    return schema_tool(tool.name, written, description=tool.description, metadata=tool.metadata)


def _gated(tool: BaseTool) -> BaseTool:
    takes_runtime = _injected(tool) == {"runtime"}

    async def passed(runtime: ToolRuntime, **arguments: Any) -> Any:
        turn = current_turn()
        gate = await turn.gate(tool.name, arguments, id=runtime.tool_call_id)
        while gate.waiting:
            # Leaves the graph. If it comes back, only the journal says whether it was answered.
            interrupt({"approval": gate.approval.id if gate.approval is not None else None})
            gate = await turn.look(gate)

        async def own(given: dict[str, Any]) -> Any:
            return await tool.ainvoke({**given, "runtime": runtime} if takes_runtime else given)

        ended, values = await run_call(
            turn,
            gate,
            own,
            agent=tool.name,
            result=_result,
            pauses=(GraphBubbleUp,),
        )
        if values:
            return values[0]
        if ended.outcome == "ok":
            return json.loads(ended.result) if ended.result is not None else ended.text
        return ToolMessage(
            ended.text, tool_call_id=runtime.tool_call_id, name=tool.name, status="error"
        )

    return StructuredTool.from_function(
        coroutine=passed,
        name=tool.name,
        description=tool.description,
        args_schema=tool.args_schema,
        infer_schema=False,
        return_direct=tool.return_direct,
        metadata=tool.metadata,
    )


def _injected(tool: BaseTool) -> set[str]:
    """Arguments that the framework gives, and the model does not see."""
    shown = tool.tool_call_schema
    names = set(shown.get("properties", {}) if isinstance(shown, dict) else shown.model_fields)
    found = set(tool.get_input_schema().model_fields) - names
    if found - {"runtime"}:
        raise holdfast.Unusable(
            f"{tool.name} has injected arguments: {', '.join(sorted(found))}",
            code="malformed",
            hint="a gated tool takes `runtime: ToolRuntime`, which has the state and the store",
        )
    return found


def _result(value: Any) -> holdfast.LoopResult:
    """The value as JSON, for a replay. A value that JSON lacks is replayed as its text."""
    try:
        kept = json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError):
        return holdfast.LoopResult(text_of(value))
    return holdfast.LoopResult(text_of(value), kept, ADAPTER)


async def run(
    agent: Any,
    home: holdfast.Home,
    session: str,
    text: str,
    *,
    source: holdfast.MessageSource | None,
    dedup: str | None = None,
    name: str | None = None,
    config: dict[str, Any] | None = None,
) -> Done:
    """
    Run a compiled graph with a checkpointer for one message. The same again goes on where its turn
    stands. `name` is the agent in Holdfast's settings.
    """
    configurable = {"thread_id": session, **(config or {}).get("configurable", {})}
    thread = {**(config or {}), "configurable": configurable}
    async with home.turn(session, text, source=source, dedup=dedup, agent=name) as turn:
        if turn.is_over:
            return Done({}, waiting=False, text=(await turn.report()).reply or "")
        given = await _input(agent, home, turn, text, thread)
        with driving(turn):
            # Each step is stored before the next one begins, so that a replay finds the same calls.
            result = await agent.ainvoke(given, thread, durability="sync")
        if turn.approvals or result.get("__interrupt__"):
            return Done(result, waiting=True, text="", approvals=turn.approvals)
        reply = text_of(result["messages"][-1].content)
        if not turn.is_over:
            await turn.finish(reply)
        return Done(result, waiting=False, text=reply)


async def _input(
    agent: Any, home: holdfast.Home, turn: holdfast.ExternalTurn, text: str, thread: Any
) -> Any:
    """
    The input that goes on: the message itself, a wake-up for the graph's pauses, or None for a
    graph that stopped between two steps.
    """
    state = await agent.aget_state(thread)
    messages = state.values.get("messages", []) if isinstance(state.values, dict) else []
    mine = f"holdfast-{turn.turn}"
    if any(each.id == mine for each in messages):
        waking = {each.id: "look again" for each in state.interrupts}
        return Command(resume=waking) if waking else None
    closing = await closing_messages(home, turn.session, messages)
    doubts = "" if closing else await doubts_before(home, turn.session, turn.turn)
    notes = [SystemMessage(doubts)] if doubts else []
    return {"messages": [*closing, *notes, HumanMessage(text, id=mine)]}
