"""
Turns a person's text into calls, for the demo model.

`TOOL key=value key2="quoted value" list=[1, 2]` calls any offered tool. Values are read by the
types of its schema. A value that does not fit its type is passed on as text, because the tool
reports what is wrong with it. A message is understood as a whole or not at all.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import msgspec

from holdfast.ports.model import ToolSchema
from holdfast.session.view.messages import ProposedCall

UNDERSTOOD = (
    "'what time is it', 'list files [in FOLDER]', 'read FILE', 'search for TEXT [in FOLDER]', "
    "'write FILE: TEXT', 'run: COMMAND', 'ask me QUESTION', 'remember that TEXT', 'recall WORDS' "
    "and 'help'"
)

NAME = re.compile(r"[^\s=]+")
KEY = re.compile(r"([A-Za-z_][\w.-]*)=")
SINGLE_QUOTED = re.compile(r"'([^']*)'")
DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
BARE = re.compile(r"[^\s]*")
SCHEMA_DEPTH_MAX = 8  # references may be circular
END_OF_CALL = re.compile(r"[ \t\r]*(?:\n\s*|\Z)")


class NotUnderstood(Exception):
    """The demo model does not know this request. The exception's text is shown to the person."""

    def __init__(self, message: str, *, needs_help: bool) -> None:
        super().__init__(message)
        self.needs_help = needs_help


class DemoRequest(NamedTuple):
    """A plain request: its pattern, the tool it calls, and how its groups become arguments."""

    pattern: re.Pattern[str]
    tool: str
    arguments: Callable[[re.Match[str]], dict[str, object]]


def named_groups(match: re.Match[str]) -> dict[str, object]:
    return {key: value.strip() for key, value in match.groupdict().items() if value is not None}


def request(pattern: str, tool: str, **defaults: object) -> DemoRequest:
    return DemoRequest(
        re.compile(pattern, re.IGNORECASE | re.DOTALL),
        tool,
        lambda match: defaults | named_groups(match),
    )


REQUESTS = (
    request(r"(?:what time is it|what is the time|what's the time)\s*\??", "now"),
    request(
        r"list (?:the )?files(?: (?:in|of|under) (?P<path>\S+))?\s*\??", "list_files", path="."
    ),
    request(r"read(?: the file)? (?P<path>\S+)", "read_file"),
    request(r"search for (?P<pattern>.+?)(?: in (?P<path>\S+))?", "search_files", path="."),
    request(r"write (?:to )?(?P<path>[^\s:]+):[ \n]?(?P<content>.*)", "write_file"),
    request(r"run(?::\s*|\s+)(?P<command>.+)", "shell"),
    request(r"ask me:?\s+(?P<question>.+)", "ask_person"),
    request(r"remember (?:that )?(?P<text>.+)", "remember"),
    request(r"recall (?P<query>.+)", "recall"),
)


def calls_from_text(text: str, tools: Sequence[ToolSchema]) -> tuple[ProposedCall, ...]:
    """Return the requested calls in the order of the text. Raise NotUnderstood."""
    stripped = text.strip()
    offered = {tool.name: tool for tool in tools}
    problem = "I did not understand that."
    first = NAME.match(stripped)
    if first is not None and first[0] in offered:
        try:
            return tuple(scan_calls(stripped, offered))
        except ValueError as exc:
            # Not an error yet: "now" is a tool, but "now tell me a story" is English.
            problem = str(exc)
    plain = call_from_plain(stripped, offered)
    if plain is not None:
        return (plain,)
    if re.fullmatch(r"(?:help|hello|hi)[.!?]?", stripped, re.IGNORECASE):
        raise NotUnderstood("Hello.", needs_help=True)
    raise NotUnderstood(problem, needs_help=True)


def call_from_plain(text: str, offered: dict[str, ToolSchema]) -> ProposedCall | None:
    for pattern, tool, arguments in REQUESTS:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        if tool not in offered:
            raise NotUnderstood(
                f"That would need the tool {tool}, which I was not given.", needs_help=False
            )
        return ProposedCall(tool, json.dumps(arguments(match), ensure_ascii=False))
    return None


def scan_calls(text: str, offered: dict[str, ToolSchema]) -> Iterator[ProposedCall]:
    """
    Read `TOOL key=value ...`, call after call. A newline outside quotes and brackets ends a call.
    """
    position = 0
    while position < len(text):
        name = NAME.match(text, position)
        if name is None or name[0] not in offered:
            raise ValueError(f"I know no tool called {text[position:].split(maxsplit=1)[0]!r}.")
        arguments, position = scan_arguments(text, name.end(), types_from_schema(offered[name[0]]))
        yield ProposedCall(name[0], json.dumps(arguments, ensure_ascii=False))


def scan_arguments(
    text: str, position: int, types: dict[str, set[str]]
) -> tuple[dict[str, object], int]:
    arguments: dict[str, object] = {}
    while (end := END_OF_CALL.match(text, position)) is None:
        while text[position] in " \t\r":
            position += 1
        key = KEY.match(text, position)
        if key is None:
            raise ValueError(f"I can't read {text[position:].split(maxsplit=1)[0]!r} as key=value.")
        arguments[key[1]], position = scan_value(text, key.end(), types.get(key[1], {"string"}))
        if position < len(text) and not text[position].isspace():
            raise ValueError(
                f"I can't read {text[position:].split(maxsplit=1)[0]!r} after the value of "
                f"{key[1]}."
            )
    return arguments, end.end()


def scan_value(text: str, position: int, types: set[str]) -> tuple[object, int]:
    """
    Return one value and its end position. A quoted value is text. A bracketed value is JSON if the
    schema allows more than text.
    """
    opening = text[position : position + 1]
    if opening in ("[", "{") and types & {"array", "object"}:
        try:
            return json.JSONDecoder(strict=False).raw_decode(text, position)
        except ValueError as exc:
            raise ValueError(
                f"I can't read {text[position : position + 40]!r} as JSON: {exc}."
            ) from exc
    if quoted := DOUBLE_QUOTED.match(text, position):
        return unquoted(quoted), quoted.end()
    if quoted := SINGLE_QUOTED.match(text, position):
        return quoted[1], quoted.end()
    if opening in ('"', "'"):
        raise ValueError(f"The quote at {text[position : position + 40]!r} is not closed.")
    bare = BARE.match(text, position)
    word = "" if bare is None else bare[0]
    return value_from_word(word, types), position + len(word)


def unquoted(quoted: re.Match[str]) -> str:
    """
    Decode as JSON where it is valid JSON. Otherwise keep backslashes as they are, as in
    `pattern="\\d+"`.
    """
    try:
        return str(json.loads(quoted[0], strict=False))
    except ValueError:
        return quoted[1].replace('\\"', '"')


def value_from_word(word: str, types: set[str]) -> object:
    if "integer" in types and re.fullmatch(r"[+-]?\d{1,18}", word):
        return int(word)
    if "number" in types and re.fullmatch(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?", word):
        return int(word) if word.lstrip("+-").isdigit() else float(word)
    if "boolean" in types and word.lower() in ("true", "false", "yes", "no"):
        return word.lower() in ("true", "yes")
    if "null" in types and word == "null":
        return None
    return word


def types_from_schema(tool: ToolSchema) -> dict[str, set[str]]:
    """Return the JSON types that the schema allows for each argument."""
    schema: object = msgspec.json.decode(tool.parameters)
    definitions: dict[str, object] = {}
    for key in ("$defs", "definitions"):
        found = schema.get(key) if is_object(schema) else None
        definitions |= (
            {f"#/{key}/{name}": value for name, value in found.items()} if is_object(found) else {}
        )
    # Typed tools often have an object whose properties are behind a reference.
    root = schema
    if is_object(schema) and "properties" not in schema:
        root = definitions.get(str(schema.get("$ref")), schema)
    properties = root.get("properties") if is_object(root) else None
    if not is_object(properties):
        return {}
    return {
        name: set(json_types(value, definitions, depth=0)) or {"string"}
        for name, value in properties.items()
    }


def json_types(schema: object, definitions: dict[str, object], *, depth: int) -> Iterator[str]:
    if not is_object(schema) or depth > SCHEMA_DEPTH_MAX:
        return
    declared = schema.get("type")
    yield from [declared] if isinstance(declared, str) else as_list(declared)
    for value in [schema["const"]] if "const" in schema else as_list(schema.get("enum")):
        yield {bool: "boolean", int: "integer", float: "number", type(None): "null"}.get(
            type(value), "string"
        )
    if "$ref" in schema:
        yield from json_types(definitions.get(str(schema["$ref"])), definitions, depth=depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        for option in as_list(schema.get(key)):
            yield from json_types(option, definitions, depth=depth + 1)


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)
