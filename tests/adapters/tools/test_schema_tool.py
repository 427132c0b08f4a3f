"""Tools that are known by their JSON schema: the arguments that fit, and the identity."""

from typing import Any

import msgspec
import pytest

from holdfast import SchemaTool
from holdfast.adapters.tools.shell.confinement.levels import bare_scene
from holdfast.errors import Unusable
from holdfast.ports.tools import InvalidArguments

SERVICE = {
    "type": "object",
    "title": "Restart",
    "properties": {
        "service": {"type": "string", "description": "which one"},
        "region": {"type": "string", "default": "eu-1"},
        "times": {"type": "integer", "minimum": 1, "maximum": 3, "default": 1},
    },
    "required": ["service"],
}


def test_defaults_are_filled_in_at_every_depth_and_in_the_schemas_order() -> None:
    nested = {
        "type": "object",
        "properties": {
            "where": {"$ref": "#/$defs/Place"},
            "ways": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
        },
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"zone": {"default": "a"}, "rack": {"default": {"row": 1}}},
            }
        },
    }
    assert SchemaTool("restart", SERVICE).validate(b'{"times": 2, "service": "api"}') == (
        b'{"service":"api","region":"eu-1","times":2}'
    )
    assert SchemaTool("put", nested).validate(b'{"ways": [{"zone": "b"}], "where": {}}') == (
        b'{"where":{"zone":"a","rack":{"row":1}},"ways":[{"zone":"b","rack":{"row":1}}]}'
    )


@pytest.mark.parametrize("given", ['{"service":"api"}', '{"service":"api","times":3,"more":[1]}'])
def test_arguments_that_were_validated_once_stay_as_they_are(given: str) -> None:
    tool = SchemaTool("restart", SERVICE)
    once = tool.validate(given.encode())
    assert tool.validate(once) == once


@pytest.mark.parametrize(
    ("schema", "arguments", "says"),
    [
        (SERVICE, "{}", "'service' is missing"),
        (SERVICE, '{"service": 1}', "'service' must be string"),
        (SERVICE, '{"service": "a", "times": true}', "'times' must be integer"),
        (SERVICE, '{"service": "a", "times": 4}', "too large"),
        (SERVICE, '{"service": "a", "service": "b"}', "stands twice"),
        (SERVICE, "[]", "not a JSON object"),
        ({"additionalProperties": False}, '{"x": 1}', "no field 'x'"),
        ({"properties": {"x": {"enum": ["a", "b"]}}}, '{"x": "c"}', "one of 'a', 'b'"),
        ({"properties": {"x": {"const": 1}}}, '{"x": true}', "must be 1"),
        ({"properties": {"x": {"type": "array", "maxItems": 1}}}, '{"x": [1, 2]}', "are the most"),
        ({"properties": {"x": {"uniqueItems": True}}}, '{"x": [1, 1]}', "an item twice"),
        (
            {"properties": {"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
            '{"x": 1}',
            "or",
        ),
        (
            {"properties": {"x": {"oneOf": [{"minimum": 1}, {"minimum": 2}]}}},
            '{"x": 3}',
            "more than",
        ),
        ({"properties": {"x": {"not": {"type": "null"}}}}, '{"x": null}', "not allowed"),
        ({"properties": {"x": {"items": {"exclusiveMinimum": 0}}}}, '{"x": [0]}', "too small"),
        ({"properties": {"x": {"$ref": "http://elsewhere/x"}}}, '{"x": 1}', "not in it"),
        ({"properties": {"x": {"$ref": "#/$defs/missing"}}}, '{"x": 1}', "not in it"),
        ({"properties": {"x": {"minLength": "much"}}}, '{"x": "a"}', "can't be applied"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_place(
    schema: dict[str, Any], arguments: str, says: str
) -> None:
    with pytest.raises(InvalidArguments, match=says):
        SchemaTool("tool", schema).validate(arguments.encode())


def test_a_schema_without_end_is_given_up() -> None:
    reader_set = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    choices: dict[str, Any] = {"a0": {"type": "string"}}
    for n in range(40):
        choices[f"a{n + 1}"] = {"anyOf": [{"$ref": f"#/$defs/a{n}"}, {"$ref": f"#/$defs/a{n}"}]}
    wide = {"properties": {"x": {"$ref": "#/$defs/a40"}}, "$defs": choices}
    for schema in (reader_set, wide):
        with pytest.raises(InvalidArguments, match="too long"):
            SchemaTool("tool", schema).validate(b'{"x": 1}')


def test_a_default_that_its_own_type_refuses_still_fits() -> None:
    """Frameworks write such schemas for `x: str = None`."""
    tool = SchemaTool("tool", {"properties": {"x": {"type": "string", "default": None}}})
    assert tool.validate(tool.validate(b"{}")) == b'{"x":null}'


def test_titles_descriptions_and_order_are_not_part_of_the_identity() -> None:
    retold = {
        "required": ["service"],
        "properties": {
            "times": {
                "minimum": 1,
                "default": 1,
                "maximum": 3,
                "type": "integer",
                "title": "Times",
            },
            "region": {"default": "eu-1", "type": "string"},
            "service": {"type": "string"},
        },
        "type": "object",
    }
    one, other = SchemaTool("restart", SERVICE), SchemaTool("restart", retold, description="new")
    assert one.definition.digest() == other.definition.digest()


@pytest.mark.parametrize(
    "changed",
    [
        SchemaTool("restart2", SERVICE),
        SchemaTool("restart", {**SERVICE, "required": []}),
        SchemaTool("restart", {**SERVICE, "properties": {"title": {"type": "string"}}}),
        SchemaTool("restart", SERVICE, contract="pure"),
        SchemaTool("restart", SERVICE, mode="auto"),
        SchemaTool("restart", SERVICE, code="2"),
        SchemaTool("restart", SERVICE, free=["region"]),
    ],
)
def test_a_change_of_meaning_is_another_tool(changed: SchemaTool) -> None:
    assert changed.definition.digest() != SchemaTool("restart", SERVICE).definition.digest()


@pytest.mark.parametrize(
    ("name", "schema", "options"),
    [
        ("a name", {}, {}),
        ("x" * 129, {}, {}),
        ("tool", {"type": "string"}, {}),
        ("tool", {"properties": []}, {}),
        ("tool", {"properties": {"x": {"default": 2**60}}}, {}),
        ("tool", {"default": object()}, {}),
        ("tool", {"description": "x" * 300_000}, {}),
        ("tool", {}, {"mode": "never"}),
        ("tool", {}, {"contract": "often"}),
        ("tool", {}, {"free": ["missing"]}),
        ("tool", {}, {"free": "x"}),
        ("tool", {}, {"code": 1}),
    ],
)
def test_a_tool_that_can_not_be_is_refused_with_the_next_step(
    name: str, schema: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(Unusable) as refused:
        SchemaTool(name, schema, **options)
    assert refused.value.hint


@pytest.mark.parametrize(
    "key", ['path: "/safe", note', 'path: "/safe"', "a b", "", '{"a":1}', "a,b", "a\n| b"]
)
def test_a_key_that_looks_like_arguments_is_shown_in_quotes(key: str) -> None:
    arguments = msgspec.json.encode({key: 1, "plain_key": 2})
    shown = SchemaTool("put", {"type": "object"}).bind(arguments, bare_scene("/home/x", None))
    lines = [line for line in shown.display.split("\n") if line.startswith("| ")]
    assert lines[0].startswith('| "')
    assert lines[1:] == ["| plain_key: 2"]
