"""
Checks values against a JSON schema and fills in its defaults.

A schema may come from anybody, so a check reads no address, runs no regular expression of the
schema, and is bounded in work. `pattern` and `format` are left to the tool. References must point
into the schema itself.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

_CHECKS_MAX = 100_000
"""Steps of one check. Nested alternatives that need more are an attack, not a request."""

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
    ),
}


class Misfit(Exception):
    """The value does not fit the schema. The message names the place."""


class _TooMuchWork(Exception):
    """Not a Misfit: the next alternative must not be tried."""


class Values:
    """The values that one schema accepts."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema

    def filled(self, value: Any) -> Any:
        """Return the value with defaults filled in at every depth. Raise Misfit."""
        try:
            return _Check(self._root).fit(value, self._root, "")
        except (_TooMuchWork, RecursionError) as exc:
            raise Misfit("the schema takes too long to check") from exc


class _Check:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _CHECKS_MAX

    def fit(self, value: Any, schema: Any, at: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchWork
        if schema is True or schema == {}:
            return value
        if not isinstance(schema, dict):
            raise Misfit(f"{_place(at)} is not allowed")
        if "default" in schema and _equal(schema["default"], value):
            return value  # a framework may declare a default that its own type refuses
        if "$ref" in schema:
            value = self.fit(value, self._target(schema["$ref"]), at)
        _check_type(value, schema, at)
        _check_listed(value, schema, at)
        if isinstance(value, dict):
            value = self._object(value, schema, at)
        elif isinstance(value, list):
            value = self._array(value, schema, at)
        elif isinstance(value, str):
            _check_size(len(value), schema, at, "minLength", "maxLength", "characters")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            _check_number(value, schema, at)
        return self._combined(value, schema, at)

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Misfit(f"the schema refers to {reference!r}, which is not in it")
        found: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise Misfit(f"the schema refers to {reference!r}, which is not in it")
        return found

    def _object(self, value: dict[str, Any], schema: dict[str, Any], at: str) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        _check_size(len(value), schema, at, "minProperties", "maxProperties", "fields")
        found: dict[str, Any] = {}
        for name, member in properties.items():
            if name in value:
                found[name] = self.fit(value[name], member, _below(at, name))
            elif (default := self._default(member)) is not _NONE:
                found[name] = copy.deepcopy(default)
        for name in schema.get("required") or ():
            if name not in value and name not in found:
                raise Misfit(f"the field {_below(at, name)!r} is missing")
        rest = schema.get("additionalProperties", True)
        for name, member in value.items():
            if name in properties:
                continue
            if rest is False and not schema.get("patternProperties"):
                known = ", ".join(properties) or "none"
                raise Misfit(f"no field {_below(at, name)!r}; the fields are {known}")
            found[name] = (
                self.fit(member, rest, _below(at, name)) if isinstance(rest, dict) else member
            )
        return found

    def _default(self, schema: Any) -> Any:
        seen = 0
        while isinstance(schema, dict) and "default" not in schema and "$ref" in schema:
            seen += 1
            if seen > _REFERENCES_MAX:
                return _NONE
            schema = self._target(schema["$ref"])
        return schema.get("default", _NONE) if isinstance(schema, dict) else _NONE

    def _array(self, value: list[Any], schema: dict[str, Any], at: str) -> list[Any]:
        _check_size(len(value), schema, at, "minItems", "maxItems", "items")
        first = schema.get("prefixItems") or ()
        rest = schema.get("items", True)
        if isinstance(rest, list):  # the older spelling of `prefixItems`
            first, rest = rest, schema.get("additionalItems", True)
        found = [
            self.fit(each, first[index] if index < len(first) else rest, f"{at}[{index}]")
            for index, each in enumerate(value)
        ]
        if schema.get("uniqueItems") and any(
            _equal(one, other) for index, one in enumerate(found) for other in found[:index]
        ):
            raise Misfit(f"{_place(at)} has an item twice")
        return found

    def _combined(self, value: Any, schema: dict[str, Any], at: str) -> Any:
        for each in schema.get("allOf") or ():
            value = self.fit(value, each, at)
        if (choices := schema.get("anyOf")) is not None:
            value = self._fitting(value, choices, at)[0]
        if (choices := schema.get("oneOf")) is not None:
            fitting = self._fitting(value, choices, at)
            if len(fitting) > 1:
                raise Misfit(f"{_place(at)} fits more than one of its alternatives")
            value = fitting[0]
        if "not" in schema and self._fits(value, schema["not"], at):
            raise Misfit(f"{_place(at)} is not allowed")
        if "if" in schema:
            branch = "then" if self._fits(value, schema["if"], at) else "else"
            value = self.fit(value, schema.get(branch, True), at)
        return value

    def _fitting(self, value: Any, choices: Any, at: str) -> list[Any]:
        """Return the value as each alternative that it fits fills it in. Raise if none fits."""
        found, flaws = [], []
        for each in choices:
            try:
                found.append(self.fit(value, each, at))
            except Misfit as exc:
                flaws.append(str(exc))
        if not found:
            raise Misfit("; or ".join(dict.fromkeys(flaws)) or f"{_place(at)} fits nothing")
        return found

    def _fits(self, value: Any, schema: Any, at: str) -> bool:
        try:
            self.fit(value, schema, at)
        except Misfit:
            return False
        return True


_NONE = object()
_REFERENCES_MAX = 16  # in a row, for one default; a longer chain is a circle


def _check_type(value: Any, schema: dict[str, Any], at: str) -> None:
    wanted = schema.get("type")
    if wanted is None or (value is None and schema.get("nullable") is True):
        return
    names = wanted if isinstance(wanted, list) else [wanted]
    if not any(name in _TYPES and _TYPES[name](value) for name in names):
        raise Misfit(f"{_place(at)} must be {' or '.join(map(str, names))}")


def _check_listed(value: Any, schema: dict[str, Any], at: str) -> None:
    if "const" in schema and not _equal(schema["const"], value):
        raise Misfit(f"{_place(at)} must be {schema['const']!r}")
    choices = schema.get("enum")
    if choices is not None and not any(_equal(each, value) for each in choices):
        raise Misfit(f"{_place(at)} must be one of {', '.join(map(repr, choices))}")


def _check_size(
    size: int, schema: dict[str, Any], at: str, least: str, most: str, unit: str
) -> None:
    if least in schema and size < schema[least]:
        raise Misfit(f"{_place(at)} has {size} {unit}; {schema[least]} are the least")
    if most in schema and size > schema[most]:
        raise Misfit(f"{_place(at)} has {size} {unit}; {schema[most]} are the most")


def _check_number(value: float, schema: dict[str, Any], at: str) -> None:
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if value < least or value <= _exclusive(schema, "exclusiveMinimum", least, -math.inf):
        raise Misfit(f"{_place(at)} is {value}, which is too small")
    if value > most or value >= _exclusive(schema, "exclusiveMaximum", most, math.inf):
        raise Misfit(f"{_place(at)} is {value}, which is too large")
    step = schema.get("multipleOf")
    if step and not math.isclose(value / step, round(value / step), abs_tol=1e-9):
        raise Misfit(f"{_place(at)} must be a multiple of {step}")


def _exclusive(schema: dict[str, Any], key: str, bound: float, none: float) -> float:
    found = schema.get(key)
    if isinstance(found, bool):  # the older spelling: it changes the meaning of `minimum`
        return bound if found else none
    return none if found is None else found


def _equal(one: Any, other: Any) -> bool:
    """Compare as JSON: True is not 1, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _place(at: str) -> str:
    return f"{at!r}" if at else "the value"
