"""
A state as bytes and back, exactly: a cache of a fold, never a source.

Every value says its type by a name from a closed list; nothing else is made from bytes. A state of another layout than this program's (a field more, a field less) is no
error: it gives None, and the journal is folded instead. Who wrote the bytes, and which record they stand for, is checked by whoever keeps them.
"""

from collections.abc import Iterator
from enum import StrEnum
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from holdfast import limits
from holdfast.session import (
    authority,
    events,
    evolve,
    evolve_approvals,
    evolve_delegates,
    evolve_inputs,
    evolve_jobs,
    evolve_life,
    evolve_reminders,
    evolve_running,
    evolve_turn,
    evolve_view,
    legacy,
    memory,
    messages,
    restoring,
    schedule,
    sizes,
    state,
    trail,
    transitions,
    turn_ids,
)
from holdfast.session.layout import layout_of
from holdfast.session.state import SessionState
from holdfast.session.trail import Trail, Window


def _structs(*modules: Any) -> dict[str, type[msgspec.Struct]]:
    return {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
    }


_STRUCTS = _structs(authority, events, messages, schedule, state)
_ENUMS: dict[str, type[StrEnum]] = {
    name: each for module in (authority, state) for name, each in vars(module).items() if isinstance(each, type) and issubclass(each, StrEnum)
}

FOLD = (
    authority,
    events,
    evolve,
    evolve_approvals,
    evolve_delegates,
    evolve_inputs,
    evolve_jobs,
    evolve_life,
    evolve_reminders,
    evolve_running,
    evolve_turn,
    evolve_view,
    legacy,
    memory,
    messages,
    restoring,
    schedule,
    sizes,
    state,
    trail,
    transitions,
    turn_ids,
)
"""The modules whose functions and classes a fold runs through. One that is missing here would let a snapshot of older code be believed."""

_PLAIN = (str, int, float, bool, type(None))


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Its own, and those of its classes: a property is code as well. What it imports from us is in a module of `FOLD` too."""
    for each in vars(module).values():
        if getattr(each, "__module__", None) != module.__name__:
            continue
        if isinstance(each, FunctionType):
            yield each
        elif isinstance(each, type):
            yield from (found for member in vars(each).values() if isinstance(found := _plain_function(member), FunctionType))


def _plain_function(member: object) -> object:
    if isinstance(member, property):
        return member.fget
    return member.__func__ if isinstance(member, classmethod | staticmethod) else member


def _numbers(module: ModuleType) -> list[Any]:
    """Its constants of one value, such as how much is remembered: a state that was kept under another bound is another state."""
    return [[name, repr(each)] for name, each in sorted(vars(module).items()) if type(each) in _PLAIN and not name.startswith("__")]


def layout() -> str:
    code = [each for module in FOLD for each in _functions(module)]
    return layout_of(code, _STRUCTS, numbers=[_numbers(module) for module in (*FOLD, limits)])


LAYOUT = layout()
"""Changes with every field of every type, and with the code that folds: what another version of this program made of the same records is not read."""


def encode_state(value: SessionState) -> bytes:
    return msgspec.json.encode([LAYOUT, _out(value)])


def decode_state(data: bytes) -> SessionState | None:
    """The very state, or None when it is not of this layout."""
    try:
        layout, value = msgspec.json.decode(data, type=tuple[str, Any])
        found = _in(value) if layout == LAYOUT else None
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    return found if isinstance(found, SessionState) else None


def _out(value: Any) -> Any:  # one line per kind
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, msgspec.Struct):
        return [kind.__name__, *(_out(getattr(value, name)) for name in kind.__struct_fields__)]
    if kind is tuple:
        return ["()", *map(_out, value)]
    if kind is dict:
        return ["{}", *([_out(key), _out(each)] for key, each in value.items())]
    if kind is Trail:
        return ["Trail", *map(_out, value)]
    if kind is Window:
        size, chunks = value.parts()
        return ["Window", size, *([[key, _out(each)] for key, each in chunk.items()] for chunk in chunks)]
    if kind is frozenset:
        return ["set", *sorted((_out(each) for each in value), key=repr)]
    if isinstance(value, StrEnum):
        return ["enum", kind.__name__, value.value]
    if kind is msgspec.Raw:
        return ["raw", bytes(value).decode()]
    if kind is list:
        return ["[]", *map(_out, value)]
    raise TypeError(f"a state holds no {kind.__name__}")


def _in(value: Any) -> Any:
    if type(value) is not list:
        return value
    name, *rest = value
    struct = _STRUCTS.get(name)
    if struct is not None:
        return struct(**dict(zip(struct.__struct_fields__, map(_in, rest), strict=True)))
    match name:
        case "()":
            return tuple(map(_in, rest))
        case "{}":
            return {_in(key): _in(each) for key, each in rest}
        case "Trail":
            trail: Trail[Any] = Trail()
            return trail.extend(map(_in, rest))
        case "Window":
            return Window.of(rest[0], (((key, _in(each)) for key, each in chunk) for chunk in rest[1:]))
        case "set":
            return frozenset(map(_in, rest))
        case "enum":
            return _ENUMS[rest[0]](rest[1])
        case "raw":
            return msgspec.Raw(rest[0].encode())
        case "[]":
            return list(map(_in, rest))
        case _:
            raise ValueError(f"a state holds no {name}")
