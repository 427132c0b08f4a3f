"""
Generate `docs/reference/events.md` from the events:
`python -m proof.generated_docs.events > docs/reference/events.md`.

A test compares the committed file with this output, so the page lists every event, every field and
the present version.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from holdfast.session import events
from holdfast.session.codec import EVENT_TYPES, VERSIONS
from holdfast.session.home import events as home_events
from holdfast.session.home.events import HOME_EVENTS

_INHERITED = {inspect.getdoc(events.Event), inspect.getdoc(home_events.HomeEvent)}


def document() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Events"
    yield ""
    yield (
        "Written by `python -m proof.generated_docs.events` from `session/events/` and"
        " `session/home/events.py`; do not edit it by hand."
    )
    yield ""
    yield (
        "An event is a fact, in the past tense, and the body of one record; how a record is framed"
        " and sealed is in `journal-format.md`."
    )
    yield "Times inside are Unix milliseconds."
    yield "A field with a default is left out of the body when it has that default."
    yield (
        "A stored name never changes its meaning: a new shape is a new version, and older ones are"
        " read for ever."
    )
    yield from ("", "## In a session's journal", "")
    yield from _chapter(EVENT_TYPES, VERSIONS)
    yield from ("## In the home's journal", "")
    yield from _chapter(HOME_EVENTS, dict.fromkeys(HOME_EVENTS, 1))
    yield (
        "Besides these, each segment begins with a `segment_opened` record and may end with"
        " `segment_closed`: the journal's own."
    )


def _chapter(kinds: Mapping[str, type[Any]], versions: Mapping[str, int]) -> Iterator[str]:
    for name, kind in kinds.items():
        yield f"### `{name}` (version {versions[name]})"
        yield ""
        said = inspect.getdoc(kind) or ""
        if said and said not in _INHERITED:
            yield from (
                *re.split(r"(?<=\.) (?=[A-Z`])", " ".join(said.split())),
                "",
            )  # one sentence per line
        yield from ("| field | type | without it |", "|---|---|---|")
        for field in msgspec.structs.fields(kind):
            yield f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} |"
        yield ""


def _type(kind: Any) -> str:
    return f"`{_spelled(kind)}`".replace("|", "\\|")


def _spelled(kind: Any) -> str:
    """Spell a type the same way in every Python version."""
    parts = get_args(kind)
    if not parts:
        return "..." if kind is ... else "None" if kind is type(None) else str(kind.__name__)
    origin = get_origin(kind)
    if origin is Literal:
        return " | ".join(repr(each) for each in parts)
    if origin in (Union, UnionType):
        return " | ".join(map(_spelled, parts))
    return f"{origin.__name__}[{', '.join(map(_spelled, parts))}]"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return (
        f"`{value!r}`"
        if value is None or isinstance(value, bool | int | str | tuple | dict)
        else "empty"
    )


if __name__ == "__main__":
    sys.stdout.write(document())
