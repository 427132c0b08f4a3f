"""
A short digest of everything that a cached fold depends on: the fields and defaults of every type in
it, the code that folds, and the constants and tables that the code reads.

A cached fold names the layout under which it was made. A cache from another version of this program
is not read. A layout is the same in every process: it does not depend on an address or on the order
of a set. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum, EnumMeta
from types import CodeType, FunctionType, ModuleType
from typing import Any

import msgspec
from blake3 import blake3

from holdfast.session.persistent import PersistentList, Window

_PLAIN = (str, int, float, bool, bytes, type(None), timedelta, type(msgspec.NODEFAULT))
_TABLES = (dict, list, tuple, set, frozenset, msgspec.Struct, Enum, EnumMeta, re.Pattern)


def layout_of(
    functions: Iterable[FunctionType],
    structs: Mapping[str, type[msgspec.Struct]],
    constants: Sequence[Any] = (),
) -> str:
    """
    Return 32 hex digits. `constants` are the values that the code reads by name: `constants_of` its
    modules.
    """
    fold = sorted((_of_function(each) for each in functions), key=repr)
    fields = [
        [name, list(each.__struct_fields__), said(each.__struct_defaults__)]
        for name, each in sorted(structs.items())
    ]
    return blake3(msgspec.json.encode([fold, fields, constants])).hexdigest(length=16)


def modules_of(package: ModuleType) -> tuple[ModuleType, ...]:
    """Return a package and its imported modules, by name: `functions_of` looks at one at a time."""
    inside = f"{package.__name__}."
    found = [
        each
        for each in vars(package).values()
        if isinstance(each, ModuleType) and each.__name__.startswith(inside)
    ]
    return (package, *sorted(found, key=lambda each: each.__name__))


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the module's own functions and those of its classes: a property is code as well."""
    for each in vars(module).values():
        if getattr(each, "__module__", None) != module.__name__:
            continue
        members = vars(each).values() if isinstance(each, type) else (each,)
        yield from (
            found
            for member in members
            if isinstance(found := _plain_function(member), FunctionType)
        )


def _plain_function(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return getattr(member, "__wrapped__", member)  # the function behind a cached one


def constants_of(module: ModuleType) -> list[Any]:
    """
    Return the module's constants by name, single values and whole tables. A state that was cached
    under another bound or another table is another state.
    """
    return [
        [name, said(each)]
        for name, each in sorted(vars(module).items())
        if not name.startswith("__")
        and isinstance(each, _PLAIN + _TABLES)
        and not (isinstance(each, EnumMeta) and each.__module__ != module.__name__)
    ]


def said(value: Any) -> Any:  # noqa: PLR0911  # one line per kind
    """
    Describe a constant. An unknown kind raises an error at once; otherwise it would be left out
    unnoticed.
    """
    if type(value) in _PLAIN:
        return repr(value)
    match value:
        case EnumMeta():
            return [value.__qualname__, *map(said, value.__members__.values())]
        case Enum():
            return [type(value).__qualname__, value.name, repr(value.value)]
        case dict():
            return ["{}", *([said(key), said(each)] for key, each in value.items())]
        case list() | tuple():
            return [type(value).__name__, *map(said, value)]
        case set() | frozenset():
            return ["set", *sorted(map(said, value), key=repr)]
        case msgspec.Struct() | PersistentList() | Window():
            names: tuple[str, ...] = getattr(value, "__struct_fields__", ()) or getattr(
                value, "__slots__", ()
            )
            return [type(value).__qualname__, *(said(getattr(value, name)) for name in names)]
        case re.Pattern(pattern=pattern, flags=flags):
            return ["pattern", repr(pattern), flags]
        case msgspec.json.Decoder(type=kind):
            return ["decoder", said(kind)]
        case FunctionType() | type():
            return [value.__module__, value.__qualname__]
        case _ if type(value) is _FACTORY:
            return ["factory", said(value.factory)]
        case _:
            raise TypeError(f"a layout has no words for a {type(value).__qualname__}")


class _Made(msgspec.Struct):
    each: dict[str, str] = msgspec.field(default_factory=dict)


_FACTORY = type(_Made.__struct_defaults__[0])  # msgspec has no public name for it


def _of_function(function: FunctionType) -> list[Any]:
    return [
        *_of_code(function.__code__),
        said(function.__defaults__),
        said(function.__kwdefaults__),
    ]


def _of_code(code: CodeType) -> list[Any]:
    inner = [_of_constant(each) for each in code.co_consts]
    return [code.co_qualname, code.co_code.hex(), code.co_names, inner]


def _of_constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _of_code(value)
    return said(value) if isinstance(value, frozenset) else repr(value)
