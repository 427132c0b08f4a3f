"""
Find the line of a key in a TOML text. tomllib reports lines for broken syntax only, so the text is
parsed again, statement by statement.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from tomllib import loads
from typing import Any

Path = tuple[str, ...]

# Strings and comments, in which a newline or a bracket does not count, in a text that parses. Up to
# two quotes may stand before the three that end a long string.
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
    Return the line, from 1, of the statement that first mentions each table and key of a valid
    text.

    >>> places_of('[serve]\\n# here:\\nport = 1\\n')
    {('serve',): 1, ('serve', 'port'): 3}
    """
    places: dict[Path, int] = {}
    for line, table, mentioned in _statements(text.replace("\r\n", "\n")):
        for path in _paths(mentioned):
            places.setdefault((*table, *path), line)
    return places


def too_deep(text: str, deepest: int) -> int | None:
    """
    Return the line on which a text nests deeper than `deepest`, by brackets or by dots, or None.
    The text is not parsed as TOML.

    >>> texts = "a.b.c = 1", "x = 1\\na.b.c.d = 1", "x = [[[[1]]]]", "x = 'a.b.c.d'"
    >>> tuple(too_deep(text, 3) for text in texts)
    (None, 2, 1, None)
    """
    if text.count(".") + text.count("[") + text.count("{") < deepest:
        return None
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token["opens"] is not None) - (token["closes"] is not None)
        if depth > deepest:
            return text.count("\n", 0, token.start()) + 1
    plain = _TOKEN.sub(
        lambda token: (
            token[0]
            if len(token[0]) == 1
            else "".join("\n" if each == "\n" else "q" for each in token[0])
        ),
        text,
    )
    dotted = re.search(rf"(?:[\w-]+[ \t]*\.[ \t]*){{{deepest},}}", plain)
    return plain.count("\n", 0, dotted.start()) + 1 if dotted is not None else None


def line_of(places: Mapping[Path, int], path: Sequence[str]) -> int | None:
    """Return the line of the key, or of the nearest table around it."""
    return next(
        (
            places[key]
            for length in range(len(path), 0, -1)
            if (key := tuple(path[:length])) in places
        ),
        None,
    )


def _statements(text: str) -> Iterator[tuple[int, Path, dict[str, Any]]]:
    """
    Yield each statement with its first line, its table, and its value when parsed as a file of its
    own.
    """
    table: Path = ()
    line = 1
    for statement in _split(text):
        mentioned = loads(statement)
        if statement.lstrip().startswith("["):
            table = _table(mentioned)
            yield line, (), mentioned
        elif mentioned:
            yield line, table, mentioned
        line += statement.count("\n")


def _table(header: Any) -> Path:
    """Return the path of a header, which mentions one key at each level."""
    path = []
    while header:
        if isinstance(header, list):
            header = header[0]
        else:
            ((key, header),) = header.items()
            path.append(key)
    return tuple(path)


def _split(text: str) -> Iterator[str]:
    """Split at the newlines that end a statement: those outside strings and brackets."""
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
