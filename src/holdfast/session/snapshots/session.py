"""
Encode a state as bytes and decode it, exactly: a cache of a fold, never a source.

Every value names its type from a closed list; no other type is made from bytes. A state of another
program's layout (one field more, one field less) is not an error: it gives None, and the journal is
folded instead. The store that keeps the bytes checks who wrote them and which record they stand
for.
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import ids, limits
from holdfast.session import events, state, transitions
from holdfast.session import persistent as trail
from holdfast.session.authority import context as authority
from holdfast.session.authority import legacy, plan
from holdfast.session.authority import restore as restoring
from holdfast.session.evolve import approvals as evolve_approvals
from holdfast.session.evolve import fold as evolve
from holdfast.session.evolve import inputs as evolve_inputs
from holdfast.session.evolve import lifecycle as evolve_life
from holdfast.session.evolve import model_calls as evolve_model_calls
from holdfast.session.evolve import running_turn as evolve_running
from holdfast.session.evolve import turn as evolve_turn
from holdfast.session.evolve import view as evolve_view
from holdfast.session.features.delegates import evolve as evolve_delegates
from holdfast.session.features.forms import form
from holdfast.session.features.jobs import evolve as evolve_jobs
from holdfast.session.features.memory import items as memory
from holdfast.session.features.reminders import cron, schedule
from holdfast.session.features.reminders import evolve as evolve_reminders
from holdfast.session.persistent import PersistentList, Window
from holdfast.session.snapshots.layout import constants_of, functions_of, layout_of, modules_of
from holdfast.session.state import Deduplicated, SessionState, TurnResult, ViewEntry
from holdfast.session.view import messages, sizes, titles


def _structs(*modules: Any) -> dict[str, type[msgspec.Struct]]:
    return {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, msgspec.Struct)
        and each.__module__ == module.__name__
    }


_EVENTS, _STATE = modules_of(events), modules_of(state)
_STRUCTS = _structs(authority, plan, *_EVENTS, form, messages, schedule, *_STATE)
_ENUMS: dict[str, type[StrEnum]] = {
    name: each
    for module in (authority, *_STATE)
    for name, each in vars(module).items()
    if isinstance(each, type) and issubclass(each, StrEnum)
}

FOLD = (
    authority,
    plan,
    cron,
    *_EVENTS,
    evolve,
    evolve_approvals,
    evolve_delegates,
    evolve_inputs,
    evolve_jobs,
    evolve_life,
    evolve_model_calls,
    evolve_reminders,
    evolve_running,
    evolve_turn,
    evolve_view,
    form,
    legacy,
    memory,
    messages,
    restoring,
    schedule,
    sizes,
    *_STATE,
    ids,
    titles,
    trail,
    transitions,
)
"""
The modules whose functions, classes and tables a fold runs through. A module missing here would let
a snapshot of older code be believed.
"""

_PLAIN = (str, int, float, bool, type(None))


def layout() -> str:
    code = [each for module in FOLD for each in functions_of(module)]
    return layout_of(code, _STRUCTS, [constants_of(module) for module in (*FOLD, limits)])


LAYOUT = layout()
"""
Changes with every field and default, with the code that folds, and with the values that the code
reads by name. A snapshot of another version is not read.
"""


class _Bulk(msgspec.Struct, frozen=True, array_like=True):
    """
    The collections that grow with a session's length. Their types are fixed, so that msgspec reads
    them in one step; the rest is small and names its types.
    """

    entries: list[ViewEntry]  # of the shared view
    # The views that open turns started from: how many of these entries, or the entries themselves
    # where a compaction came since.
    bases: dict[str, int | list[ViewEntry]]
    dedup: list[dict[str, Deduplicated]]
    results: list[dict[str, TurnResult]]


_EMPTY: PersistentList[ViewEntry] = PersistentList()


_decode_bulk = msgspec.json.Decoder(_Bulk).decode


def encode_state(value: SessionState) -> bytes:
    """Three lines: the layout, the collections that grow, the rest."""
    bulk, rest = _split(value)
    return b"\n".join((LAYOUT.encode(), msgspec.json.encode(bulk), msgspec.json.encode(rest)))


def decode_state(data: bytes) -> SessionState | None:
    """Return the exact state, or None if the bytes have another layout."""
    layout_end, bulk_end = data.find(b"\n"), data.rfind(b"\n")
    if data[:layout_end] != LAYOUT.encode():
        return None
    try:
        rest = msgspec.json.decode(data[bulk_end + 1 :])
        found = _joined(_in(rest), _decode_bulk(memoryview(data)[layout_end + 1 : bulk_end]))
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    return found


def _split(value: SessionState) -> tuple[_Bulk, Any]:
    entries, (dedup_size, dedup), (results_size, results) = (
        value.view.entries,
        value.dedup.parts(),
        value.results.parts(),
    )
    bases: dict[str, int | list[ViewEntry]] = {
        turn_id: len(turn.base.entries)
        if entries.continues(turn.base.entries)
        else list(turn.base.entries)
        for turn_id, turn in value.turns.items()
    }
    bulk = _Bulk(list(entries), bases, list(dedup), list(results))
    rest = replace(
        value,
        view=replace(value.view, entries=_EMPTY),
        turns={
            turn_id: replace(turn, base=replace(turn.base, entries=_EMPTY))
            for turn_id, turn in value.turns.items()
        },
        dedup=Window(dedup_size),
        results=Window(results_size),
    )
    return bulk, _out(rest)


def _joined(rest: Any, bulk: _Bulk) -> SessionState | None:
    if not isinstance(rest, SessionState):
        return None
    entries = PersistentList.of(bulk.entries)
    turns = {
        turn_id: replace(turn, base=replace(turn.base, entries=_base(entries, bulk, turn_id)))
        for turn_id, turn in rest.turns.items()
    }
    return replace(
        rest,
        view=replace(rest.view, entries=entries),
        turns=turns,
        dedup=Window(rest.dedup.parts()[0], tuple(bulk.dedup)),
        results=Window(rest.results.parts()[0], tuple(bulk.results)),
    )


def _base(
    entries: PersistentList[ViewEntry], bulk: _Bulk, turn_id: str
) -> PersistentList[ViewEntry]:
    kept = bulk.bases[turn_id]
    return entries.first(kept) if isinstance(kept, int) else PersistentList.of(kept)


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
    if kind is PersistentList:
        return ["PersistentList", *map(_out, value)]
    if kind is Window:
        size, chunks = value.parts()
        return [
            "Window",
            size,
            *([[key, _out(each)] for key, each in chunk.items()] for chunk in chunks),
        ]
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
        case "PersistentList":
            trail: PersistentList[Any] = PersistentList()
            return trail.extend(map(_in, rest))
        case "Window":
            return Window.of(
                rest[0], (((key, _in(each)) for key, each in chunk) for chunk in rest[1:])
            )
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
