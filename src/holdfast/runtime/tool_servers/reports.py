"""
A server's tools as people see them: whole, with invisible characters visible, and as a difference
to the pin.
"""

import difflib
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from holdfast.ports.tool_servers import ServerFound, ToolFound
from holdfast.session.home.events import HomeState, ToolPinned
from holdfast.session.view.safe_text import render

ToolState = Literal["pinned", "new", "changed", "removed"]
ServerState = Literal["ok", "unreachable"]


class ToolLine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: ToolState
    digest: str


class RefusedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that cannot be offered, whatever a person says."""

    name: str
    reason: str


class ServerReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    server: str
    transport: str
    state: ServerState
    tools: tuple[ToolLine, ...]
    refused: tuple[RefusedTool, ...] = ()
    problem: str = ""


class ToolReport(msgspec.Struct, frozen=True, kw_only=True):
    """One tool whole. `text` is everything that a pin covers; `diff` compares it with the pin."""

    name: str
    state: ToolState
    digest: str
    text: str
    diff: str
    warnings: tuple[str, ...]
    pinned_by: str | None
    definition: Any


def server_report(found: ServerFound, state: HomeState) -> ServerReport:
    lines = [_line(each, state) for each in found.tools]
    known = {each.name for each in lines}
    gone = [
        ToolLine(name=pin.name, state="removed", digest=pin.digest)
        for pin in _last_pins(state, found.server)
        if pin.name not in known
    ]
    if found.problem:
        lines = [
            ToolLine(name=pin.name, state="pinned", digest=pin.digest)
            for pin in state.pins.values()
            if pin.server == found.server
        ]
        gone = []
    return ServerReport(
        server=found.server,
        transport=found.transport,
        state="unreachable" if found.problem else "ok",
        tools=tuple(sorted((*lines, *gone), key=lambda each: each.name)),
        refused=tuple(RefusedTool(name=name, reason=why) for name, why in found.refused),
        problem=found.problem,
    )


def _last_pins(state: HomeState, server: str) -> Iterator[ToolPinned]:
    for pin in state.pins.values():
        if pin.server == server:
            yield pin
    for pin, withdrawn in state.withdrawn.values():
        if pin.server == server and withdrawn.reason != "unpinned":
            yield pin


def _line(tool: ToolFound, state: HomeState) -> ToolLine:
    return ToolLine(name=tool.name, state=tool_state(tool, state), digest=tool.digest)


def tool_state(tool: ToolFound, state: HomeState) -> ToolState:
    """
    Return how the tool stands to its pin. A tool that changed and changed back still needs a
    person: it was withdrawn.
    """
    pin = state.pins.get(tool.name)
    if pin is not None:
        return "pinned" if pin.digest == tool.digest else "changed"
    withdrawn = state.withdrawn.get(tool.name)
    return "new" if withdrawn is None or withdrawn[1].reason == "unpinned" else "changed"


def tool_report(tool: ToolFound, state: HomeState) -> ToolReport:
    before = state.pins.get(tool.name) or next(
        (pin for pin, _ in state.withdrawn.values() if pin.name == tool.name), None
    )
    text, warnings = _shown(tool.identity, tool.instructions, tool.definition)
    earlier = (
        "" if before is None else _shown(before.identity, before.instructions, before.definition)[0]
    )
    standing = state.pins.get(tool.name)
    return ToolReport(
        name=tool.name,
        state=tool_state(tool, state),
        digest=tool.digest,
        text=text,
        diff="" if before is None else _diff(earlier, text),
        warnings=warnings,
        pinned_by=None if standing is None else standing.by,
        definition=msgspec.json.decode(tool.definition),
    )


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "pinned", "now", lineterm="", n=3
    )
    return "\n".join(lines)


def _shown(identity: str, instructions: str, definition: str) -> tuple[str, tuple[str, ...]]:
    """Return everything that a pin covers, as text that hides nothing, and its warnings."""
    pretty = msgspec.json.format(definition, indent=2)
    parts = [
        ("the server", identity),
        ("its instructions to the model", instructions or "(none)"),
        *_texts(definition),
        ("the definition as received", pretty),
    ]
    rendered = [(title, render(text)) for title, text in parts]
    warnings = dict.fromkeys(warning for _, each in rendered for warning in each.warnings)
    text = "\n\n".join(f"# {title}\n{each.text}" for title, each in rendered)
    return text, tuple(warnings)


def _texts(definition: str) -> Iterator[tuple[str, str]]:
    """The description again, with its line breaks: in JSON text it is one long line."""
    description = msgspec.json.decode(definition).get("description")
    if isinstance(description, str) and description:
        yield "its description", description
