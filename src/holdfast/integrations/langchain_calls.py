"""
Results for calls that a LangGraph thread left open, with the outcome in the journal.

LangGraph does not know how a call ended that its process did not survive. deepagents makes up a
result ("did not complete"), and other agents send the model a call without a result.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langgraph.config import get_config
from langgraph.graph.message import REMOVE_ALL_MESSAGES

import holdfast
from holdfast.integrations.gated_tools import current_turn

NOT_RUN = "Not run: the turn was replaced."


class CloseOpenCalls(AgentMiddleware):
    """
    Closes open calls before the agent begins, and corrects results that the framework made up. Hand
    it to `create_agent` or `create_deep_agent` as the last middleware.
    """

    def __init__(self, home: holdfast.Home) -> None:
        super().__init__()
        self._home = home

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        del runtime
        changes = await closing_messages(self._home, _session(), list(state["messages"]))
        return {"messages": changes} if changes else None


def _session() -> str:
    try:
        return current_turn().session
    except holdfast.Unusable:
        return str(get_config()["configurable"]["thread_id"])


async def closing_messages(home: holdfast.Home, session: str, messages: list[Any]) -> list[Any]:
    """
    The messages to add so that each call has its result; none if nothing is open. Where a result
    belongs between other messages, all of them are written anew.
    """
    known = {each.id: each for each in await home.calls(session)}
    closed = closed_messages(messages, known)
    if closed[: len(messages)] == messages:
        return closed[len(messages) :]
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *closed]


def closed_messages(
    messages: Sequence[Any], known: Mapping[str | None, holdfast.CallReport]
) -> list[Any]:
    """The messages with one result for each call, in a row after the call."""
    answered = {each.tool_call_id for each in messages if isinstance(each, ToolMessage)}
    found: list[Any] = []
    owed: list[ToolMessage] = []
    for each in messages:
        if isinstance(each, ToolMessage):
            found.append(_corrected(each, known))
            continue
        found += owed
        owed = []
        found.append(each)
        if isinstance(each, AIMessage):
            owed = [_result(call, known) for call in each.tool_calls if call["id"] not in answered]
    return [*found, *owed]


def _result(call: Any, known: Mapping[str | None, holdfast.CallReport]) -> ToolMessage:
    made = known.get(call["id"])
    text = made.text if made is not None and made.text else NOT_RUN
    return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")


def _corrected(
    message: ToolMessage, known: Mapping[str | None, holdfast.CallReport]
) -> ToolMessage:
    """A result that says something else than the journal about a call that is in doubt."""
    made = known.get(message.tool_call_id)
    if made is None or made.outcome != "in_doubt" or message.content == made.text:
        return message
    return message.model_copy(update={"content": made.text, "status": "error"})
