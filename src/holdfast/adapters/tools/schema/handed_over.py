"""
A built-in tool of a coding agent, which that agent runs itself. Holdfast decides whether it may,
and records that it let the call go. It does not learn how the call ended.

The agent runs the call as it made it, so nobody can edit it here. The files that it runs are not
known here, so it is not remembered either.
"""

from typing import Any

import msgspec

from holdfast.adapters.tools.schema.tool import SchemaTool
from holdfast.errors import Unusable
from holdfast.ports.tools import OnOutput, Prepared, ProcessFacts, Scene, ToolReturned
from holdfast.session.authority.plan import Binding

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class HandedOverTool(SchemaTool):
    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        return msgspec.structs.replace(super().bind(arguments, scene), memorable=False)

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared:
        del arguments, binding, scene, idempotency_key
        return _HandOver(self.definition.name)


class _HandOver:
    process: ProcessFacts | None = None

    def __init__(self, name: str) -> None:
        self._name = name

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        del timeout_seconds, on_output
        agent = self._name.partition(".")[0]
        text = f"let go: {agent} runs it, and its outcome is not known here"
        return ToolReturned(outcome="ok", text=text)

    async def abandon(self) -> None:
        pass


def handed_over_tool(name: str) -> HandedOverTool | None:
    """Return the tool of that name, or None for a name that no tool can have."""
    try:
        return HandedOverTool(name, _ANY_OBJECT, kind="handed_over")
    except Unusable:
        return None
