"""
The terminal output of `holdfast chat`.

Text of a model, a tool or another person stands behind a bar on every line. It is wrapped here, not
by the terminal, and control, invisible and bidirectional characters are made visible. So no such
line can pass for a line of Holdfast, above all not for a prompt. An approval's display is printed
complete, as it was journalled.
"""

import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.cli.shared.terminal import Styled

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_MIN = 20  # narrower terminals are treated as this wide
_CONTINUED = "  ~ "
_SIXTEEN_BITS = 0xFFFF


def plain(text: str) -> str:
    r"""
    Return foreign text that is safe to print: each doubtful character becomes an escape.

    >>> plain("ok\x1b[2K\u202e\u00a0done")
    'ok\\u001b[2K\\u202e done'
    """
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def _visible(char: str) -> str:
    if char == "\n" or char.isprintable():
        return char
    if char in "\t\u00a0\u202f":
        return " "
    return f"\\u{ord(char):04x}" if ord(char) <= _SIXTEEN_BITS else f"\\U{ord(char):08x}"


class Screen:
    """One per chat. Writes Holdfast's own lines, and one foreign stream at a time."""

    def __init__(self) -> None:
        self._out = Styled()
        self._style = ""
        self._bar = ""
        self._column = 0  # in the stream's line; 0 if no stream line is open

    @property
    def console(self) -> "Console":
        return self._out.console

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line of Holdfast."""
        self.end_stream()
        self._out.print((text, style))

    def tell(self, speaker: str, text: str, style: str = "") -> None:
        """Print the whole text of another speaker."""
        self.end_stream()
        self.say(f"{plain(speaker)}:", "bold")
        self.stream(text, style=style)
        self.end_stream()

    def show(self, display: str) -> None:
        """Print every character of an approval's display. Long lines continue behind a mark."""
        self.end_stream()
        width = self._width() - len(_CONTINUED)
        for line in display.split("\n"):
            for number, part in enumerate(_cut(line, width)):
                self._out.print((_CONTINUED if number else "  ") + part)

    def stream(self, text: str, *, style: str = "", bar: str = "| ") -> None:
        """Print a piece of a stream. A piece of another kind begins on a new line."""
        if self._column and (style, bar) != (self._style, self._bar):
            self.end_stream()
        self._style, self._bar = style, bar
        # Ask once: a command may print a megabyte at a time, and the driver of its turn waits for
        # this terminal.
        width = self._width()
        self._out.print(
            ("".join([self._placed(char, width) for char in plain(text)]), style), end=""
        )
        sys.stdout.flush()

    def _placed(self, char: str, width: int) -> str:
        """Return the character, after the line break and the bar that it needs."""
        cells, before = (0 if char == "\n" else _cells(char)), ""
        if self._column == 0 or self._column + cells > width:
            before = ("\n" if self._column else "") + self._bar
            self._column = len(self._bar)
        self._column = 0 if char == "\n" else self._column + cells
        return before + char

    def end_stream(self) -> None:
        if self._column:
            self._column = 0
            self._out.print()

    @staticmethod
    def _width() -> int:
        return max(_WIDTH_MIN, shutil.get_terminal_size().columns)


def _cut(line: str, width: int) -> Iterator[str]:
    part, used = "", 0
    for char in line:
        cells = _cells(char)
        if used + cells > width:
            yield part
            part, used = "", 0
        part, used = part + char, used + cells
    yield part


def _cells(char: str) -> int:
    if char.isascii() and char.isprintable():
        return 1
    from rich.cells import cell_len

    return cell_len(char)
