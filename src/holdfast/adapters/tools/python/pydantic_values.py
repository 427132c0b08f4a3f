"""
Pydantic models among the arguments: their schema, how they are read, and how they are written down
so that reading gives the same again.

Pydantic is imported by whoever has such a model, never here. msgspec asks these for every type that
it does not know itself; that one is not known here either is told by NotImplementedError, as its
hooks do.
"""

import sys
from typing import Any, cast

import msgspec

from holdfast.ports.tools import InvalidArguments


def is_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")  # a type of it can't be here unless it was imported
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
        # As JSON, so that strict means what it means in JSON: a date may be a string, a number may
        # not.
        return model.model_validate_json(msgspec.json.encode(value), strict=True, extra="forbid")
    except ValueError as exc:
        problems = exc.errors() if hasattr(exc, "errors") else []
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems[:5])
        raise ValueError(said or str(exc)) from None


def write_model(value: Any) -> Any:
    """
    As it would be read: under its aliases, and without what it computes.

    What a model hides of itself, such as a `SecretStr` or a field with `exclude=True`, would be
    shown to nobody and run as something else: refused.
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
                f"{type(value).__name__} does not write its {name!r} as it is: what is shown would not be what runs"
            )
    return written


def dumped_model(value: Any) -> Any:
    """As a result is told: nobody reads it back, so a model may hide what it likes."""
    if not is_model(type(value)):
        raise NotImplementedError
    return value.model_dump(mode="json")


def _alike(one: Any, other: Any) -> bool:
    """Equal in what was said: private attributes of a model may be others each time."""
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
