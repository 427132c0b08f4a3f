"""
Types of a tool's arguments that people write: each means what its author thinks, or the tool is
refused when it is made.
"""

import copy
import datetime as dt
import functools
import json
from dataclasses import dataclass
from typing import Annotated, Any, NewType

import annotated_types
import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from holdfast.adapters.tools.python.decorator import tool
from holdfast.errors import Unusable
from holdfast.ports.tools import InvalidArguments, ToolCall


class Shop:
    @dataclass
    class Place:
        shelf: int

    class Item(pydantic.BaseModel):
        shelf: int

    class Order(pydantic.BaseModel):
        item: "Shop.Item"


class Mail:
    class Item(pydantic.BaseModel):
        letter: str

    class Order(pydantic.BaseModel):
        item: "Mail.Item"


@dataclass
class Carrier:
    call: ToolCall


class Modelled(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    call: ToolCall | None = None


class Wider(ToolCall, frozen=True, kw_only=True):
    more: str = ""


class Box(msgspec.Struct):
    size: int = 1


class Renamed(pydantic.BaseModel):
    since: dt.date = pydantic.Field(alias="fromDate")
    _seen: object = pydantic.PrivateAttr(default_factory=object)

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as Pydantic says to write it
    @property
    def year(self) -> int:
        return self.since.year


class Holder(pydantic.BaseModel):
    inside: list[Renamed]


class Hiding(pydantic.BaseModel):
    word: pydantic.SecretStr = pydantic.SecretStr("")
    left_out: int = pydantic.Field(default=0, exclude=True)


class Hundredfold(pydantic.BaseModel):
    cents: int

    @pydantic.field_validator("cents")
    @classmethod
    def in_cents(cls, value: int) -> int:
        return value * 100


@dataclass
class Growing:
    cents: int

    def __post_init__(self) -> None:
        self.cents *= 100


@pydantic.dataclasses.dataclass
class Checked:
    count: int = pydantic.Field(default=1, ge=1)


@dataclass
class Noted:
    count: Annotated[int, pydantic.Field(ge=1)]


def function_taking(kind: Any, **default: Any) -> Any:
    def act(x: Any = None) -> str:
        return repr(x)

    act.__annotations__["x"] = kind
    act.__defaults__ = (default["default"],) if default else None
    return act


def schema_of(made: Any) -> Any:
    return json.loads(made.definition.parameters)


@pytest.mark.parametrize(
    "kind",
    [ToolCall, ToolCall | None, Annotated[ToolCall, "whose"], NewType("Whose", ToolCall)],
    ids=str,
)
def test_the_call_is_filled_in_however_it_is_annotated(place: Any, run: Any, kind: Any) -> None:
    """A model that could fill it in would say for whom the tool acts (A1, P8)."""

    def act(first: Any, second: Any, greeting: str) -> str:
        return f"{greeting} {first.requester} {second.call == first.call}"

    act.__annotations__.update(first=kind, second=kind)
    made = tool(act)
    assert list(schema_of(made)["properties"]) == ["greeting"]
    assert run(made, place.scene(), greeting="hi").text == "hi alice True"
    with pytest.raises(InvalidArguments):
        made.validate(b'{"greeting":"hi","first":{"requester":"carol"}}')


@pytest.mark.parametrize(
    "kind",
    [
        list[ToolCall],
        dict[str, ToolCall],
        ToolCall | str,
        Carrier,
        Modelled,
        list[Carrier] | None,
        Wider,
    ],
    ids=str,
)
def test_a_call_inside_of_another_type_is_refused_when_the_tool_is_made(kind: Any) -> None:
    with pytest.raises(Unusable, match="has a ToolCall inside"):
        tool(function_taking(kind))


@pytest.mark.parametrize(
    "kind",
    [
        Annotated[int, pydantic.Field(ge=1)],
        Annotated[int, annotated_types.Ge(1)],
        pydantic.PositiveInt,
        list[pydantic.PositiveInt],
        dict[str, pydantic.PositiveInt] | None,
        Noted,
        Checked,
        list[Checked],
    ],
    ids=str,
)
def test_a_check_that_nobody_would_make_is_refused_when_the_tool_is_made(kind: Any) -> None:
    with pytest.raises(Unusable, match="left out"):
        tool(function_taking(kind))


def test_a_check_of_msgspecs_is_made() -> None:
    made = tool(
        function_taking(Annotated[int, msgspec.Meta(ge=1, description="how many"), "a remark"])
    )
    assert schema_of(made)["properties"]["x"] == {
        "type": "integer",
        "minimum": 1,
        "description": "how many",
    }
    with pytest.raises(InvalidArguments, match=">= 1"):
        made.validate(b'{"x":0}')


@pytest.mark.parametrize(
    ("kind", "default"),
    [(str, None), (int, "1"), (float, float("nan")), (list[int], ["1"]), (Box, Box(size="1"))],
    ids=str,
)  # type: ignore[arg-type]
def test_a_default_that_does_not_fit_its_type_is_refused_when_the_tool_is_made(
    kind: Any, default: Any
) -> None:
    """Else the model is told, at every call, that a value is wrong which it never gave."""
    with pytest.raises(Unusable, match="the default of 'x' of act does not fit its type"):
        tool(function_taking(kind, default=default))


@pytest.mark.parametrize(
    ("kind", "default", "shown"),
    [
        (Box, Box(2), {"size": 2}),
        (Shop.Item, Shop.Item(shelf=3), {"shelf": 3}),
        (Shop.Place, Shop.Place(4), {"shelf": 4}),
        (list[Box], [Box(5)], [{"size": 5}]),
        (dt.date, dt.date(2026, 1, 2), "2026-01-02"),
    ],
    ids=str,
)
def test_a_default_may_be_a_value_of_any_type_and_is_everybodys_own(
    place: Any, run: Any, kind: Any, default: Any, shown: Any
) -> None:
    seen: list[Any] = []

    def act(x: Any = None) -> None:
        seen.append(x)

    act.__annotations__["x"] = kind
    act.__defaults__ = (copy.deepcopy(default),)
    made = tool(act)
    assert json.loads(made.validate(b"{}")) == {"x": shown}
    run(made, place.scene())
    run(made, place.scene())
    assert seen == [default, default]
    assert isinstance(default, dt.date) or seen[0] is not seen[1]


def test_keys_that_are_numbers_come_as_numbers() -> None:
    made = tool(function_taking(dict[int, str]))
    assert made.validate(b'{"x":{"7":"a"}}') == b'{"x":{"7":"a"}}'
    with pytest.raises(InvalidArguments):
        made.validate(b'{"x":{"seven":"a"}}')


def test_a_model_is_written_as_it_is_read() -> None:
    """Under its aliases, without what it computes, whatever its private parts are."""
    made = tool(function_taking(Holder))
    written = made.validate(b'{"x":{"inside":[{"fromDate":"2026-01-02"}]}}')
    assert written == b'{"x":{"inside":[{"fromDate":"2026-01-02"}]}}'
    assert made.validate(written) == written


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Hiding, b'{"x":{"word":"abc"}}'),  # would be shown as stars, and run with them
        (Hiding, b'{"x":{"left_out":7}}'),
        (Hundredfold, b'{"x":{"cents":1}}'),
        (Growing, b'{"x":{"cents":1}}'),
        (list[Growing], b'{"x":[{"cents":1}]}'),
    ],
)
def test_arguments_that_would_run_as_others_than_are_shown_are_refused(
    kind: Any, arguments: bytes
) -> None:
    """P4: 100 was shown, and 10000 ran."""
    with pytest.raises(InvalidArguments, match="what is shown would not be what runs"):
        tool(function_taking(kind)).validate(arguments)


def test_types_of_one_name_are_distinguished() -> None:
    def act(order: Shop.Order, letter: Mail.Order) -> None: ...

    schema = schema_of(tool(act))
    meant = {
        name: part["properties"]["item"]["$ref"].removeprefix("#/$defs/")
        for name, part in schema["properties"].items()
    }
    assert {name: list(schema["$defs"][meant[name]]["properties"]) for name in meant} == {
        "order": ["shelf"],
        "letter": ["letter"],
    }


def test_a_type_may_have_any_name() -> None:
    def act(arguments: Any) -> None: ...

    act.__annotations__["arguments"] = dataclass(
        type("Arguments", (), {"__annotations__": {"shelf": int}})
    )
    schema = schema_of(tool(act))
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == (
        "object",
        ["arguments"],
        False,
    )


@pytest.mark.parametrize(
    ("options", "function", "said"),
    [
        ({}, functools.partial(max, 1), "has no name and no code of its own"),
        (
            {"name": "limit"},
            functools.partial(max, default=1),
            "has no name and no code of its own",
        ),
        ({"name": 7}, None, "7 is not a tool name"),
        ({"name": ""}, None, "'' is not a tool name"),
        ({"free": "x"}, None, "letter by letter"),
        ({"timeout_seconds": 0}, None, "not a possible time limit for a call"),
        ({"timeout_seconds": float("nan")}, None, "not a possible time limit for a call"),
        ({"timeout_seconds": "3"}, None, "not a possible time limit for a call"),
    ],
    ids=str,
)
def test_the_tool_decorator_refuses_an_unusable_definition_with_a_hint(
    options: Any, function: Any, said: str
) -> None:
    with pytest.raises(Unusable, match=said) as refused:
        tool(**options)(function or function_taking(int))
    assert refused.value.hint


def test_a_method_is_a_tool_once_it_has_its_object(place: Any, run: Any) -> None:
    class Fleet:
        region = "eu-1"

        def restart(self, service: str) -> str:
            return f"{service} in {self.region}"

    with pytest.raises(Unusable, match="'self' of restart has no type") as refused:
        tool(Fleet.restart)
    assert "holdfast.tool(shop.restart)" in refused.value.hint
    assert run(tool(Fleet().restart), place.scene(), service="api").text == "api in eu-1"


def test_the_code_digest_of_a_tool_includes_its_decorators() -> None:
    """
    P1: an approval given to a function with a guard around it is not one for the function alone.
    """

    def bare(x: int) -> int:
        return x

    def guarded(function: Any) -> Any:
        @functools.wraps(function)
        def inner(x: int) -> Any:
            if x > 100:
                raise ValueError(x)
            return function(x)

        return inner

    def wide_open(function: Any) -> Any:
        @functools.wraps(function)
        def inner(x: int) -> Any:
            return function(x)

        return inner

    digests = [
        tool(each).definition.digest()
        for each in (bare, guarded(bare), wide_open(bare), guarded(guarded(bare)), guarded(bare))
    ]
    assert len(set(digests)) == 4
    assert digests[1] == digests[4]


def test_models_in_a_result_are_reported_as_json(place: Any, run: Any) -> None:
    @tool
    def stock() -> dict[str, Any]:
        return {
            "items": [Shop.Item(shelf=1)],
            "place": Shop.Place(2),
            "hidden": Hiding(word=pydantic.SecretStr("abc")),
        }

    returned = run(stock, place.scene())
    assert (returned.outcome, json.loads(returned.text)) == (
        "ok",
        {"items": [{"shelf": 1}], "place": {"shelf": 2}, "hidden": {"word": "**********"}},
    )
