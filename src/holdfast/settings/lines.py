"""Where in a TOML text a key stands. tomllib says it for broken syntax only, so the text is given to it again, statement by statement."""

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any


def line_of(text: str, path: Sequence[str]) -> int | None:
    """
    The line, from 1, of the statement that first mentions `path`, in a text that parses; for what is inside of a value, that of the value.

    >>> line_of('[serve]\\n# here:\\nport = 1\\n', ("serve", "port"))
    3
    """
    statements = list(_statements(text))
    for length in range(len(path), 0, -1):
        for line, mentioned in statements:
            if _has(mentioned, path[:length]):
                return line
    return None


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each with the line it begins on, and what it would be as a file of its own, its header repeated."""
    lines = text.replace("\r\n", "\n").split("\n")
    header = ""
    start = 0
    while start < len(lines):
        end, alone = _whole(lines, start)
        if lines[start].lstrip().startswith("["):
            header = lines[start]
            yield start + 1, alone
        elif alone:
            yield start + 1, tomllib.loads("\n".join([header, *lines[start:end]]))
        start = end


def _whole(lines: list[str], start: int) -> tuple[int, dict[str, Any]]:
    """A value may go on for many lines: until they parse."""
    for end in range(start + 1, len(lines) + 1):
        try:
            return end, tomllib.loads("\n".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
    return len(lines), {}


def _has(found: Any, path: Sequence[str]) -> bool:
    for part in path:
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True
