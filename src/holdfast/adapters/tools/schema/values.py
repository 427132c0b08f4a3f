"""
Checks values against a JSON schema and fills in its defaults.

A schema may come from anybody, so a check reads no address, runs no regular expression of the
schema, and is bounded in work. `pattern` and `format` are left to the tool. References must point
into the schema itself.
"""

import math
from collections.abc import Callable
from typing import Any

from holdfast.adapters.tools.schema.work import STEP, TooMuchWork, Work

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


class Values:
    """The values that one schema accepts."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema

    def filled(self, value: Any) -> Any:
        """Return the value with defaults filled in at every depth. Raise Misfit."""
        try:
            return _Check(self._root).fit(value, self._root, "")
        except (TooMuchWork, RecursionError) as exc:
            raise Misfit("the schema takes too long to check") from exc


class _Check:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._work = Work()

    def fit(self, value: Any, schema: Any, at: str) -> Any:
        self._work.spend(STEP)
        if schema is True or schema == {}:
            return value
        if not isinstance(schema, dict):
            raise Misfit(f"{_place(at)} is not allowed")
        if "default" in schema and self._work.equal(schema["default"], value):
            return value  # a framework may declare a default that its own type refuses
        if "$ref" in schema:
            value = self.fit(value, self._target(schema["$ref"]), at)
        self._check_type(value, schema, at)
        self._check_listed(value, schema, at)
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
        parts = reference[1:].split("/")[1:]
        self._work.spend(len(parts))
        for part in parts:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise Misfit(f"the schema refers to {reference!r}, which is not in it")
        return found

    def _object(self, value: dict[str, Any], schema: dict[str, Any], at: str) -> dict[str, Any]:
        properties, required = schema.get("properties") or {}, schema.get("required") or ()
        self._work.spend(len(properties) + len(required) + len(value))
        _check_size(len(value), schema, at, "minProperties", "maxProperties", "fields")
        found: dict[str, Any] = {}
        for name, member in properties.items():
            if name in value:
                found[name] = self.fit(value[name], member, _below(at, name))
            elif (default := self._default(member)) is not _NONE:
                found[name] = self._work.copied(default)
        for name in required:
            if name not in value and name not in found:
                raise Misfit(f"the field {_below(at, name)!r} is missing")
        rest = schema.get("additionalProperties", True)
        for name, member in value.items():
            if name in properties:
                continue
            if rest is False and not schema.get("patternProperties"):
                known = ", ".join(properties) or "none"
                text = self._work.text(f"no field {_below(at, name)!r}; the fields are ", known)
                raise Misfit(text)
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
        if schema.get("uniqueItems") and self._work.has_twice(found):
            raise Misfit(f"{_place(at)} has an item twice")
        return found

    def _check_type(self, value: Any, schema: dict[str, Any], at: str) -> None:
        wanted = schema.get("type")
        if wanted is None or (value is None and schema.get("nullable") is True):
            return
        names = wanted if isinstance(wanted, list) else [wanted]
        self._work.spend(len(names))
        if not any(name in _TYPES and _TYPES[name](value) for name in names):
            words = " or ".join(map(str, names))
            raise Misfit(self._work.text(f"{_place(at)} must be ", words))

    def _check_listed(self, value: Any, schema: dict[str, Any], at: str) -> None:
        if "const" in schema and not self._work.equal(schema["const"], value):
            raise Misfit(self._work.text(f"{_place(at)} must be ", repr(schema["const"])))
        choices = schema.get("enum")
        if choices is not None and not any(self._work.equal(each, value) for each in choices):
            raise Misfit(self._work.listed(f"{_place(at)} must be one of ", choices))

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
            text = "; or ".join(dict.fromkeys(flaws)) or f"{_place(at)} fits nothing"
            raise Misfit(self._work.text(text))
        return found

    def _fits(self, value: Any, schema: Any, at: str) -> bool:
        try:
            self.fit(value, schema, at)
        except Misfit:
            return False
        return True


_NONE = object()
_REFERENCES_MAX = 16  # in a row, for one default; a longer chain is a circle


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


_NAME_CHARS_MAX = 200  # of one field, in the place that a refusal names


def _below(at: str, name: str) -> str:
    name = name[:_NAME_CHARS_MAX]
    return f"{at}.{name}" if at else name


def _place(at: str) -> str:
    return f"{at!r}" if at else "the value"
