"""
The JSON schema of a tool's arguments for the model: one object at the top, with its definitions
under `$defs`.

msgspec writes most of it. A Pydantic model brings its own part, whose definitions may have names
that another part uses too.
"""

from typing import Any, cast

import msgspec

from holdfast.adapters.tools.python.pydantic_values import schema_of_model

_REFERENCE = "#/$defs/"


def schema_of(struct: type[msgspec.Struct]) -> str:
    (reference,), components = msgspec.json.schema_components(
        [struct], schema_hook=schema_of_model, ref_template=_REFERENCE + "{name}"
    )
    own = components.pop(reference["$ref"].removeprefix(_REFERENCE))
    own.pop("title", None)
    own["additionalProperties"] = False
    definitions = dict(components)
    for part in (own, *components.values()):
        _lift_definitions(part, definitions)
    if definitions:
        own["$defs"] = definitions
    return msgspec.json.encode(own).decode()


def _lift_definitions(schema: Any, into: dict[str, Any]) -> None:
    """
    Move the `$defs` of every part to the top. A definition gets another name if its name is taken.
    """
    if isinstance(schema, dict):
        brought = cast("dict[str, Any]", schema.pop("$defs", {}))
        names = {name: _free_name(name, definition, into) for name, definition in brought.items()}
        for part in (schema, *brought.values()):
            _rename_references(part, names)
        into.update({names[name]: definition for name, definition in brought.items()})
        for value in schema.values():
            _lift_definitions(value, into)
    elif isinstance(schema, list):
        for value in schema:
            _lift_definitions(value, into)


def _free_name(name: str, definition: Any, taken: dict[str, Any]) -> str:
    found, number = name, 1
    while found in taken and taken[found] != definition:
        number += 1
        found = f"{name}_{number}"
    return found


def _rename_references(schema: Any, names: dict[str, str]) -> None:
    if isinstance(schema, dict):
        refers_to = schema.get("$ref")
        if isinstance(refers_to, str):
            name = refers_to.removeprefix(_REFERENCE)
            schema["$ref"] = _REFERENCE + names.get(name, name)
        for value in schema.values():
            _rename_references(value, names)
    elif isinstance(schema, list):
        for value in schema:
            _rename_references(value, names)
