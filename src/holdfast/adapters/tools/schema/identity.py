"""
The identity of a JSON schema: the part that decides which arguments fit, in one spelling.

Frameworks re-title, re-describe and reorder the schemas of the same function from release to
release. Such a change must not void a prompt that waits for an answer.
"""

from typing import Any

import msgspec

_ANNOTATIONS = frozenset(
    {
        "$comment",
        "$schema",
        "deprecated",
        "description",
        "example",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_UNORDERED = frozenset({"enum", "required", "type"})
_NESTED = frozenset(
    {
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)


def canonical(schema: Any) -> str:
    """
    Return the schema as JSON text without annotations, with keys and unordered lists sorted.

    >>> canonical({"type": "object", "title": "T", "properties": {"title": {"type": "string"}}})
    '{"properties":{"title":{"type":"string"}},"type":"object"}'
    """
    return msgspec.json.encode(_without_annotations(schema), order="sorted").decode()


def _without_annotations(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {key: _keyword(key, value) for key, value in schema.items() if key not in _ANNOTATIONS}


def _keyword(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: _without_annotations(each) for name, each in value.items()}
    if isinstance(value, list):
        if key in _LISTED or key in _NESTED:
            return [_without_annotations(each) for each in value]
        if key in _UNORDERED:
            return sorted(value, key=lambda each: msgspec.json.encode(each, order="sorted"))
    return _without_annotations(value) if key in _NESTED else value
