"""Wrap text at words, at any width, without losing a character."""

import re
from collections.abc import Iterator
from functools import lru_cache

WIDTH_MIN = 20  # narrower terminals are treated as this wide
_FRAME, _CONTINUED = "| ", "~ "
_LABEL = re.compile(r"\s*\S(?:.*?\S)?\s{2,}(?=\S)")
_WORDS = re.compile(r"`[^`]*`\S*|\S+")  # a command between backticks is one word


def wrap_words(text: str, width: int, *, indent: str = "") -> Iterator[str]:
    """
    Yield the lines of a text. A line breaks behind the last space that fits. A longer word breaks
    where the line ends. `indent` begins each continued line.

    >>> list(wrap_words("one two three", 8, indent="  "))
    ['one two ', '  three']
    """
    for line in text.split("\n"):
        yield from _wrapped(line, width, indent)


def wrap_for_terminal(text: str, width: int) -> str:
    """
    Wrap the lines of a command's output.

    Lines that begin with `$` and commands between backticks stay whole, because people copy them.
    A line of foreign text begins with a bar, and continues behind a mark at any width, so that none
    of it can pass for a line of Holdfast. The value beside a label stays in its column.

    >>> print(wrap_for_terminal("who   alice asked for it\\n| aaaa bbbb ccccc", 16))
    who   alice
          asked for
          it
    | aaaa bbbb
    ~ ccccc
    """
    return "\n".join(part for line in text.split("\n") for part in _lines(line, width))


def _lines(line: str, width: int) -> Iterator[str]:
    if _cells(line) <= width or line.lstrip().startswith("$ "):
        yield line
    elif line.startswith(_FRAME):
        parts = wrap_words(line[len(_FRAME) :], width - len(_FRAME))
        for number, part in enumerate(parts):
            yield (_CONTINUED if number else _FRAME) + part.rstrip()
    else:
        label = _LABEL.match(line)
        indent = label.end() if label and label.end() <= width // 2 else _indent_of(line) + 2
        yield from _filled(line, width, indent)


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def _filled(line: str, width: int, indent: int) -> Iterator[str]:
    """Break only between words. The terminal breaks a longer one, which can then be copied."""
    shown, end = "", 0
    for word in _WORDS.finditer(line):
        more = line[end : word.end()]
        fits_below = indent + _cells(word[0]) <= width
        if shown.strip() and fits_below and _cells(shown + more) > width:
            yield shown
            shown = " " * indent + word[0]
        else:
            shown += more
        end = word.end()
    yield shown + line[end:].rstrip()


def _wrapped(line: str, width: int, indent: str) -> Iterator[str]:
    # One column stays free for the space behind the last word: it must not begin a line.
    room, before = width - 1, ""
    part, used, space = "", 0, 0
    for char in line:
        cells = cell_width(char)
        if used + cells > room and part:
            if char == " ":
                part += char
                yield before + part
                part, used, space, before, room = "", 0, 0, indent, width - 1 - len(indent)
                continue
            at = space or len(part)
            yield before + part[:at]
            part = part[at:]
            used, space, before, room = (
                sum(map(cell_width, part)),
                0,
                indent,
                width - 1 - len(indent),
            )
        part, used = part + char, used + cells
        if char == " ":
            space = len(part)
    yield before + part


def _cells(text: str) -> int:
    return sum(map(cell_width, text))


@lru_cache(maxsize=4096)
def cell_width(char: str) -> int:
    """Return how many columns of a terminal a character takes."""
    if char.isascii() and char.isprintable():
        return 1
    from rich.cells import cell_len

    return cell_len(char)
