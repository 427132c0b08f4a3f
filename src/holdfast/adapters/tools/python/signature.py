"""
Reads a function's signature: its parameters with their types, the parameters that take the
`ToolCall`, and a digest of its code.

A parameter that a model must not or cannot fill in is refused here, when the tool is made, and not
in the middle of a turn.
"""

import dataclasses
import hashlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.errors import Unusable
from holdfast.ports.tools import ToolCall

# Packages whose `Annotated` metadata are argument checks that only Pydantic runs.
_CHECKING = ("pydantic", "pydantic_core", "annotated_types")


def parameters_of(
    function: Callable[..., Any], name: str
) -> tuple[dict[str, tuple[Any, Any]], tuple[str, ...]]:
    """Return (name -> type and default, the parameters that take the ToolCall)."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except NameError as exc:
        raise _unknown_type(name, exc) from exc
    except (TypeError, ValueError) as exc:
        raise Unusable(
            f"{function!r} is not a function with readable parameters",
            hint="write a function that calls it, and decorate that",
        ) from exc
    fields: dict[str, tuple[Any, Any]] = {}
    injected: list[str] = []
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Unusable(
                f"{name} takes {parameter}, which a model can't name",
                hint="use named parameters only",
            )
        kind = hints.get(parameter.name)
        if kind is None and parameter.annotation is parameter.empty:
            raise Unusable(
                f"parameter {parameter.name!r} of {name} has no type",
                hint=_untyped_hint(parameter.name),
            )
        if _takes_the_call(kind):
            injected.append(parameter.name)
        else:
            _refuse_what_would_be_left_out(kind, f"{parameter.name!r} of {name}")
            fields[parameter.name] = (kind, parameter.default)
    return fields, tuple(injected)


def _unknown_type(name: str, exc: NameError) -> Unusable:
    return Unusable(
        f"a type of {name} is not known here: {exc}",
        hint="its annotations must be importable from its module, not names inside of a function",
    )


def _untyped_hint(parameter: str) -> str:
    if parameter in ("self", "cls"):
        return (
            "a method has its object only once there is one: decorate that one's, as in"
            " holdfast.tool(shop.restart)"
        )
    return "annotate it: the model needs its type"


def _takes_the_call(kind: Any) -> bool:
    """Return whether the type is `ToolCall`, also as `ToolCall | None`, `Annotated` or an alias."""
    kind = _meant(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return all(each is type(None) or _takes_the_call(each) for each in typing.get_args(kind))
    return kind is ToolCall


def _meant(kind: Any) -> Any:
    """Return the type behind `Annotated`, `NewType` and `type X = ...`."""
    while True:
        if typing.get_origin(kind) is typing.Annotated:
            kind = typing.get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif (
            type(kind).__name__ == "TypeAliasType"
        ):  # from typing (Python 3.12 and later) or typing_extensions
            kind = kind.__value__
        else:
            return kind


def _refuse_what_would_be_left_out(kind: Any, parameter: str) -> None:
    try:
        found = list(_types_in(kind, set()))
    except NameError as exc:
        raise _unknown_type(parameter, exc) from exc
    for each in found:
        if isinstance(each, type) and issubclass(each, ToolCall):
            # A model would fill it in, and so choose for whom the tool acts.
            raise Unusable(
                f"{parameter} has a ToolCall inside",
                hint=(
                    "take it as a parameter of its own: it is filled in, and not shown to the model"
                ),
            )
        if (
            isinstance(each, type)
            and dataclasses.is_dataclass(each)
            and hasattr(each, "__pydantic_validator__")
        ):
            raise Unusable(
                f"{parameter}: {each.__name__} is a Pydantic dataclass, whose checks would be left "
                "out",
                hint="make it a BaseModel",
            )
        for note in (
            typing.get_args(each)[1:] if typing.get_origin(each) is typing.Annotated else ()
        ):
            if type(note).__module__.partition(".")[0] in _CHECKING:
                raise Unusable(
                    f"{parameter}: {note!r} would be left out",
                    hint=(
                        "use msgspec.Meta, as in Annotated[int, msgspec.Meta(ge=0)], or a "
                        "Pydantic model"
                    ),
                )


def _types_in(kind: Any, seen: set[Any]) -> Iterator[Any]:
    """
    Yield a type and every type inside it. Pydantic checks the types inside its models, so only a
    ToolCall is reported from there.
    """
    yield kind
    meant = _meant(kind)
    if meant is not kind:
        yield meant
    if isinstance(meant, type) and meant not in seen:
        seen.add(meant)
        model = getattr(meant, "model_fields", None)
        if isinstance(model, dict):
            inside = [
                part for field in model.values() for part in _types_in(field.annotation, seen)
            ]
            yield from (part for part in inside if part is ToolCall)
        elif (
            dataclasses.is_dataclass(meant)
            or issubclass(meant, msgspec.Struct)
            or typing.is_typeddict(meant)
            or hasattr(meant, "_fields")
        ):
            for each in typing.get_type_hints(meant, include_extras=True).values():
                yield from _types_in(each, seen)
    origin = typing.get_origin(meant)
    if origin is not None and origin is not typing.Literal:
        for each in (origin, *typing.get_args(meant)):
            yield from _types_in(each, seen)


def code_digest(function: Callable[..., Any]) -> str:
    """
    Identify the code by name and, where available, by source. For a decorated function, the sources
    of its decorators count too.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    sources = [_source(function)]
    around = function
    while hasattr(
        around, "__wrapped__"
    ):  # each level is another object, because functools.wraps makes no cycles
        sources.append(_source(getattr(around, "__code__", None)))
        around = around.__wrapped__
    source = "\0".join(sources)
    return f"{name}#{hashlib.blake2b(source.encode(errors='replace'), digest_size=16).hexdigest()}"


def _source(of: Any) -> str:
    try:
        return inspect.getsource(of)
    except (OSError, TypeError):
        return ""
