"""
From a server's list to tools that a person can judge: each definition whole, as text.

A list with two tools of one name is refused as a whole. A tool that could be mistaken for another,
or that no person could read to the end, is refused by name with the reason.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.adapters.mcp.protocol import Listed, NotUsable
from holdfast.adapters.tools.schema.tool import SchemaTool
from holdfast.errors import HoldfastError, Refused
from holdfast.journal.strict import strict_json
from holdfast.limits import MCP_DEFINITION_BYTES_MAX
from holdfast.ports.tool_servers import ToolFound

TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}\Z")
"""As the protocol allows, without a first '-', '.' or '/'. So no name hides a character."""


def read_definitions(
    server: str, listed: Listed, identity: str
) -> tuple[tuple[ToolFound, ...], tuple[tuple[str, str], ...]]:
    """Return (the tools, the refused ones with the reason). Raise NotUsable for the whole list."""
    names = [_name(each) for each in listed.tools]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise NotUsable(f"the server lists two tools named {twice[0][:128]!a}")
    found: list[ToolFound] = []
    refused: list[tuple[str, str]] = []
    for raw, name in zip(listed.tools, names, strict=True):
        tool = ToolFound(
            server=server,
            tool=name,
            definition="",
            instructions=listed.instructions,
            identity=identity,
        )
        try:
            definition = _definition(server, name, raw, names)
        except HoldfastError as exc:
            refused.append((ascii(name)[1:-1][:128], exc.message))
        else:
            found.append(msgspec.structs.replace(tool, definition=definition))
    return tuple(sorted(found, key=lambda each: each.tool)), tuple(refused)


def _name(raw: object) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    if not isinstance(name, str):
        raise NotUsable("the server lists a tool without a name")
    return name


def _definition(server: str, name: str, raw: dict[str, Any], names: Iterable[str]) -> str:
    if not TOOL_NAME.match(name):
        raise Refused("its name has characters that no tool's name may have", code="malformed")
    alike = [each for each in names if each != name and each.casefold() == name.casefold()]
    if alike:
        raise Refused(f"its name can be mistaken for {alike[0]}", code="malformed")
    text = msgspec.json.encode(raw, order="sorted")
    if len(text) > MCP_DEFINITION_BYTES_MAX:
        raise Refused(
            f"its definition has {len(text)} bytes; {MCP_DEFINITION_BYTES_MAX} are the most",
            code="too_long",
        )
    strict_json(text, what=f"the definition of {name}")
    if not isinstance(raw.get("description", ""), str | None):
        raise Refused("its description is not text", code="malformed")
    SchemaTool(f"{server}.{name}", schema_of(raw))
    return text.decode()


def schema_of(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the arguments; SchemaTool refuses one that is not an object's."""
    schema = definition.get("inputSchema")
    if not isinstance(schema, dict):
        raise Refused("it has no schema of its arguments", code="malformed")
    return schema
