"""
What a kept fold depends on, as one short digest: the fields and defaults of every type in it, the
code that folds, and the constants and tables that it reads.

A cache of a fold says under which layout it was made; what another version of this program made of
the same records is not read. A layout is the same in every process: nothing of it hangs on an
address or on the order of a set. Pure.
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
    """32 hex digits. `constants` are what the code reads by name: `constants_of` its modules."""
    fold = sorted((_of_function(each) for each in functions), key=repr)
    fields = [
        [name, list(each.__struct_fields__), said(each.__struct_defaults__)]
        for name, each in sorted(structs.items())
    ]
    return blake3(msgspec.json.encode([fold, fields, constants])).hexdigest(length=16)


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """Its own, and those of its classes: a property is code as well."""
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
    return getattr(member, "__wrapped__", member)  # of one whose results are kept


def constants_of(module: ModuleType) -> list[Any]:
    """
    By name, one value or a whole table: a state that was kept under another bound, or by another
    table, is another state.
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
    A constant in words. One of a kind that has none is a mistake of whoever wrote it, found at
    once: it would be left out unseen.
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


_FACTORY = type(_Made.__struct_defaults__[0])  # msgspec has no name for it


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
