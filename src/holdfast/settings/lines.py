"""Where in a TOML text a key stands. tomllib says it for broken syntax only, so the text is given to it again, statement by statement."""

import re
from collections.abc import Iterator, Mapping, Sequence
from tomllib import loads
from typing import Any

Path = tuple[str, ...]

# What a newline, or a bracket, may stand in without meaning one, in a text that parses. Up to two quotes may stand before the three that end a long text.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|(?P<opens>[\[{])|(?P<closes>[\]}])|(?P<newline>\n)",
    re.DOTALL,
)


def places_of(text: str) -> dict[Path, int]:
    """
    The line, from 1, of the statement that first mentions each table and key of a text that parses.

    >>> places_of('[serve]\\n# here:\\nport = 1\\n')
    {('serve',): 1, ('serve', 'port'): 3}
    """
    places: dict[Path, int] = {}
    for line, mentioned in _statements(text.replace("\r\n", "\n")):
        for path in _paths(mentioned):
            places.setdefault(path, line)
    return places


def line_of(places: Mapping[Path, int], path: Sequence[str]) -> int | None:
    """Of the key, or of what it is inside of."""
    return next((places[key] for length in range(len(path), 0, -1) if (key := tuple(path[:length])) in places), None)


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each with the line it begins on, and what it would be as a file of its own, its header repeated."""
    header, line = "", 1
    for statement in _split(text):
        if statement.lstrip().startswith("["):
            header = statement
            yield line, loads(statement)
        elif loads(statement):
            yield line, loads(header + statement)
        line += statement.count("\n")


def _split(text: str) -> Iterator[str]:
    """At the newlines that end a statement: those of no text and no bracket."""
    start = depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token["opens"] is not None) - (token["closes"] is not None)
        if token["newline"] is not None and depth == 0:
            yield text[start : token.end()]
            start = token.end()
    yield text[start:]


def _paths(mentioned: Mapping[str, Any]) -> Iterator[Path]:
    for key, value in mentioned.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *rest) for rest in _paths(value))
