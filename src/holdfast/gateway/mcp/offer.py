"""
The tools that a client is offered: the pinned ones, each with its definition as it was pinned, and
`holdfast.outcome`.

A client sees either all servers, with tools named `SERVER.TOOL`, or one server, with its own names.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.session.home.events import ToolPinned

OUTCOME: Final = "holdfast.outcome"
_OUTCOME_TOOL: Final[dict[str, Any]] = {
    "name": OUTCOME,
    "title": "The result of a call that waited for a person",
    "description": (
        "Get the result of an earlier tool call that had to wait for a person's approval. It runs "
        "nothing. `id` is the id that the earlier result named. Nothing that you send can approve "
        "a call."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {"id": {"type": "string", "description": "such as a-..., from the result"}},
        "required": ["id"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}


class ClientOffer:
    """`server` None: all servers."""

    def __init__(self, pins: Sequence[ToolPinned], server: str | None) -> None:
        mine = [each for each in pins if server in (None, each.server)]
        named = {each.name if server is None else each.tool: each for each in mine}
        self._pins = {name: pin for name, pin in named.items() if name != OUTCOME}

    def tools(self) -> list[dict[str, Any]]:
        found = [
            {**msgspec.json.decode(pin.definition), "name": name}
            for name, pin in sorted(self._pins.items())
        ]
        return [*found, _OUTCOME_TOOL]

    def pin_of(self, tool: str) -> ToolPinned | None:
        """Return the pin of a tool; None if it is not offered."""
        return self._pins.get(tool)

    def instructions(self) -> str:
        """Return the servers' own instructions. They are pinned, so a person has read them."""
        texts = {pin.server: pin.instructions for pin in self._pins.values() if pin.instructions}
        return "\n\n".join(f"{server}:\n{text}" for server, text in sorted(texts.items()))
