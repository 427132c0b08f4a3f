"""
The steps of one agent run inside of a turn: the recorded answers of its models, and the path of
calls that leads to it.

ADK runs agents side by side, so an answer belongs to the agent and the branch that asked for it.
"""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import holdfast

ADAPTER = "adk/1"
_steps: ContextVar["AgentSteps | None"] = ContextVar("holdfast_adk_steps", default=None)


class AgentSteps:
    """The answers that the agents of one run have not been given yet."""

    def __init__(self, turn: holdfast.ExternalTurn, *, path: str = "", note: str = "") -> None:
        self.turn, self.path, self.note = turn, path, note
        self._left: list[dict[str, Any]] | None = None
        # The gates of answers that were recorded just now, as they stood then.
        self.gates: dict[str, holdfast.Gate] = {}
        # By agent and branch: the tools without a gate that the next answer may call.
        self.without_gate: dict[tuple[str, str], frozenset[str]] = {}

    async def gate(self, tool: str, arguments: Mapping[str, Any], call_id: str) -> holdfast.Gate:
        """
        The gate of a call. The recorded answer of the model has made it, as a rule; one that is
        ready just now need not be looked up.
        """
        just_made = self.gates.pop(call_id, None)
        if just_made is not None and just_made.may_start:
            return just_made
        try:
            return await self.turn.look(call_id)
        except holdfast.Refused as exc:
            if exc.code != "unknown":
                raise
        return await self.turn.gate(tool, arguments, id=call_id)

    async def recorded(self, agent: str, branch: str) -> dict[str, Any] | None:
        """
        The next recorded answer of an agent. ADK may name a branch by chance; then the next answer
        of the agent in any branch counts, whose calls are known by their ids.
        """
        if self._left is None:
            answers = await self.turn.answers(adapter=ADAPTER)
            self._left = [json.loads(each.blob or b"{}") for each in answers]
        mine = [each for each in self._left if each.get("agent") == agent]
        found = next((each for each in mine if each.get("branch") == branch), None)
        found = found or next(iter(mine), None)
        if found is not None:
            self._left.remove(found)
        return found

    def is_waiting(self) -> bool:
        """Whether a call of this run, or of an agent inside of it, has a prompt."""
        ids = [each.provider_id or "" for each in self.turn.approvals]
        return any(each.startswith(self.path) for each in ids)


@contextmanager
def stepping(steps: AgentSteps) -> Generator[None, None, None]:
    token = _steps.set(steps)
    try:
        yield
    finally:
        _steps.reset(token)


def steps_or_none() -> AgentSteps | None:
    return _steps.get()
