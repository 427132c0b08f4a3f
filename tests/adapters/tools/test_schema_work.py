"""A schema and its values may come from different attackers. A check ends soon for both."""

import time
import tracemalloc
from typing import Any

import pytest

from holdfast.adapters.tools.schema.values import Misfit, Values

MANY = 50_000  # items of a message that is far within every bound of size
SECONDS_MAX = 5.0  # of CPU; without the bound of a check, each of these takes minutes
_FIELDS = {f"f{n}": n for n in range(4000)}
_CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "a long choice": ({"enum": list(range(8000))}, 7999),
    "many fields": ({"properties": {name: {} for name in _FIELDS}}, {}),
    "many needed fields": ({"required": ["x"] * 8000}, {"x": 1}),
    "a long reference": ({"$ref": "#/$defs" + "/x" * 8000}, 1),
    "many types": ({"type": ["null"] * 8000 + ["object"]}, {}),
    "a large value": ({"const": _FIELDS}, _FIELDS),
    "many looks at many fields": ({"allOf": [{"minProperties": 1}] * 50}, _FIELDS),
}


def ends_soon(schema: dict[str, Any], value: Any) -> str:
    began = time.thread_time()
    with pytest.raises(Misfit) as flaw:
        Values(schema).filled(value)
    assert time.thread_time() - began < SECONDS_MAX
    return str(flaw.value)


@pytest.mark.parametrize(("schema", "item"), list(_CASES.values()), ids=list(_CASES))
def test_a_short_schema_for_each_item_asks_for_no_endless_work(
    schema: dict[str, Any], item: Any
) -> None:
    whole = {"$defs": {"x": _nested(8000)}, "items": schema}
    assert "takes too long" in ends_soon(whole, [item] * MANY)


def _nested(depth: int) -> dict[str, Any]:
    whole: dict[str, Any] = {"minimum": 0}
    for _ in range(depth):
        whole = {"x": whole}
    return whole["x"]  # type: ignore[no-any-return]


def test_many_items_are_compared_once_each() -> None:
    items = list(range(MANY))
    assert Values({"uniqueItems": True}).filled(items) == items
    assert "twice" in ends_soon({"uniqueItems": True}, [*items, 7])


@pytest.mark.parametrize(
    ("items", "has_twice"),
    [
        ([1, 1.0], True),
        ([1, True], False),
        ([0, False, None, "", "0"], False),
        ([{"a": 1, "b": [2]}, {"b": [2], "a": 1.0}], True),
        ([{"a": [1]}, {"a": [True]}], False),
        ([[], {}], False),
        ([2**61, 2**61], True),
    ],
)
def test_items_are_equal_as_json(items: list[Any], has_twice: bool) -> None:
    if has_twice:
        assert "twice" in ends_soon({"uniqueItems": True}, items)
    else:
        assert Values({"uniqueItems": True}).filled(items) == items


def test_numbers_that_share_one_hash_are_compared_once_each() -> None:
    prime = 2**61 - 1
    items = [2**62 + prime * number for number in range(20_000)]
    began = time.thread_time()
    assert Values({"uniqueItems": True}).filled(items) == items
    assert time.thread_time() - began < SECONDS_MAX


def test_defaults_fill_no_memory() -> None:
    schema = {"items": {"properties": {"d": {"default": "x" * 30_000}}}}
    tracemalloc.start()
    try:
        assert "takes too long" in ends_soon(schema, [{} for _ in range(MANY)])
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_refusal_is_short_whatever_the_schema_holds() -> None:
    choices = {f"f{n}": {"$ref": "#/$defs/e"} for n in range(300)}
    schema = {
        "$defs": {"e": {"enum": ["x" * 30_000]}},
        "anyOf": [{"properties": {name: each}} for name, each in choices.items()],
    }
    assert len(ends_soon(schema, dict.fromkeys(choices, 1))) < 2000


def test_an_honest_value_with_many_items_fits() -> None:
    row = {
        "type": "object",
        "properties": {
            **{f"f{n}": {"type": ["string", "null"], "default": None} for n in range(20)},
            "kind": {"enum": [f"kind {n}" for n in range(100)]},
        },
        "required": ["kind"],
        "additionalProperties": False,
    }
    rows = [{"f0": f"row {n}", "kind": f"kind {n % 100}"} for n in range(10_000)]
    filled = Values({"type": "array", "items": row}).filled(rows)
    assert filled[-1]["f1"] is None


def test_an_honest_value_that_lies_beside_a_long_choice_fits() -> None:
    """Each item is refused once, by the first alternative. The refusal does not list them all."""
    named = {"enum": [f"a name of some length {number}" for number in range(1000)]}
    items = list(range(1000))
    assert Values({"items": {"anyOf": [named, {"type": "integer"}]}}).filled(items) == items
