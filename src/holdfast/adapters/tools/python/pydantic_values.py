"""
Pydantic models among the arguments: their schema, how they are read, and how they are written so
that reading returns the same value.

This module never imports Pydantic; the program that defines such a model does. msgspec calls these
hooks for every type that it does not know. A hook raises NotImplementedError for a type that it
does not know either, as msgspec expects.
"""

import sys
from typing import Any, cast

import msgspec

from holdfast.ports.tools import InvalidArguments


def is_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")  # without this import, no model can exist
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def schema_of_model(kind: type) -> dict[str, Any]:
    if is_model(kind):
        return cast(
            "dict[str, Any]", cast("Any", kind).model_json_schema(ref_template="#/$defs/{model}")
        )
    raise NotImplementedError


def read_model(kind: type, value: Any) -> Any:
    if not is_model(kind):
        raise NotImplementedError
    model = cast("Any", kind)
    try:
        # As JSON, so that strictness follows JSON: a date may be a string, a number may not.
        return model.model_validate_json(msgspec.json.encode(value), strict=True, extra="forbid")
    except ValueError as exc:
        problems = exc.errors() if hasattr(exc, "errors") else []
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems[:5])
        raise ValueError(said or str(exc)) from None


def write_model(value: Any) -> Any:
    """
    Write a model as it would be read: under its aliases, and without computed fields.

    A model may hide parts of itself, such as a `SecretStr` or a field with `exclude=True`. Such a
    model is refused, because the prompt would differ from the values that run.
    """
    if not is_model(type(value)):
        raise NotImplementedError
    written = value.model_dump(mode="json", by_alias=True, round_trip=True)
    try:
        again = read_model(type(value), written)
    except ValueError as exc:
        raise InvalidArguments(f"{type(value).__name__} writes what it can't read: {exc}") from exc
    for name in type(value).model_fields:
        if not _alike(getattr(again, name), getattr(value, name)):
            raise InvalidArguments(
                f"{type(value).__name__} does not write its {name!r} as it is: what is shown would "
                "not be what runs"
            )
    return written


def dumped_model(value: Any) -> Any:
    """Write a model as a result. It is never read back, so a model may hide fields."""
    if not is_model(type(value)):
        raise NotImplementedError
    return value.model_dump(mode="json")


def _alike(one: Any, other: Any) -> bool:
    """
    Return whether the public fields are equal. A model's private attributes may differ each time.
    """
    if type(one) is not type(other):
        return False
    if is_model(type(one)):
        return all(
            _alike(getattr(one, name), getattr(other, name)) for name in type(one).model_fields
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _alike(each, other[key]) for key, each in one.items()
        )
    return bool(one == other)
