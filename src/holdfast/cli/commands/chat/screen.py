"""
The terminal output of `holdfast chat`.

Text of a model, a tool or another person stands behind a bar on every line. It is wrapped here, not
by the terminal, and control, invisible and bidirectional characters are made visible. So no such
line can pass for a line of Holdfast, above all not for a prompt. An approval's display is printed
complete, as it was journalled.
"""

import shutil
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.cli.output.risk_text import MarkedLine
from holdfast.cli.output.terminal import Styled, show_status
from holdfast.cli.output.word_wrap import WIDTH_MIN, cell_width, wrap_words

if TYPE_CHECKING:
    from rich.console import Console

_CONTINUED = "  ~ "  # of a line of foreign text
_INDENTED = "    "  # of a line of Holdfast's own
_FRAME = "| "  # begins each line of foreign text in a display
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
        self._word = ""  # the end of the stream that has not been placed on a line yet
        self._work: tuple[str, float] | None = None  # its name, and when it began
        self._shows_work = False

    @property
    def console(self) -> "Console":
        return self._out.console

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line of Holdfast, wrapped at words."""
        self.end_stream()
        self._clear_work()
        for line in text.split("\n"):
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            for part in wrap_words(line, self._width(), indent=indent):
                self._out.print((part, style))

    # --- the line that shows that the model or a tool is at work

    def works(self, name: str | None, since: float | None = None) -> None:
        """
        Remember what began, such as `thinking`, or that it ended. `since` is an earlier beginning.
        """
        began = time.monotonic() if since is None else since
        self._work = None if name is None else (plain(name), began)
        self._clear_work()

    def tick(self) -> None:
        """Show how long the work has taken. Called once a second."""
        if self._work is None or self._column or self._word:
            return
        name, since = self._work
        text = f"{name}, {int(time.monotonic() - since)} s. Ctrl-C stops it."
        show_status(text[: self._width() - 1])
        self._shows_work = True

    def _clear_work(self) -> None:
        if self._shows_work:
            self._shows_work = False
            show_status("")

    def tell(self, speaker: str, text: str, style: str = "") -> None:
        """Print the whole text of another speaker."""
        self.end_stream()
        self.say(f"{plain(speaker)}:", "bold")
        self.stream(text, style=style)
        self.end_stream()

    def show(self, lines: Iterable[MarkedLine]) -> None:
        """
        Print every character of an approval's display. Long lines of foreign text continue behind a
        mark. A risky part stands out, and its reason follows on the next line.
        """
        self.end_stream()
        self._clear_work()
        width = self._width()
        for line in lines:
            done = 0
            continued = _CONTINUED if line.text.startswith(_FRAME) else _INDENTED
            for number, part in enumerate(wrap_words(line.text, width - len(_CONTINUED))):
                styled = _styled(part, line.marks, done)
                self._out.print(continued if number else "  ", *styled)
                done += len(part)
            for reason in line.reasons:
                self.say(f"    ^ {reason}", "bold yellow")

    def stream(self, text: str, *, style: str = "", bar: str = "| ") -> None:
        """
        Print a piece of a stream, wrapped at words: a word waits until its end is known. A piece of
        another kind begins on a new line.
        """
        if (self._column or self._word) and (style, bar) != (self._style, self._bar):
            self.end_stream()
        self._clear_work()
        self._style, self._bar = style, bar
        # Ask once: a command may print a megabyte at a time, and the driver of its turn waits for
        # this terminal.
        width = self._width()
        out: list[str] = []
        for char in plain(text):
            if char in " \n":
                out.append(self._placed(self._word, width))
                out.append(self._space(char, width))
                self._word = ""
            else:
                self._word += char
                if len(self._word) >= width:
                    out.append(self._placed(self._word, width))
                    self._word = ""
        self._out.print(("".join(out), style), end="")
        sys.stdout.flush()

    def _placed(self, word: str, width: int) -> str:
        """
        Return the word, after the line break and the bar that it needs. One column stays free for
        the space behind it: it must not begin a line.
        """
        cells = sum(map(cell_width, word))
        if not word:
            return ""
        if cells > width - 1 - len(self._bar):
            return "".join(self._put(char, cell_width(char), width - 1) for char in word)
        return self._put(word, cells, width - 1)

    def _put(self, text: str, cells: int, width: int) -> str:
        before = ""
        if self._column == 0 or self._column + cells > width:
            before = ("\n" if self._column else "") + self._bar
            self._column = len(self._bar)
        self._column += cells
        return before + text

    def _space(self, char: str, width: int) -> str:
        if char == "\n":
            before = self._bar if self._column == 0 else ""
            self._column = 0
            return before + char
        return self._put(char, 1, width)

    def end_stream(self) -> None:
        if self._word:
            self._out.print((self._placed(self._word, self._width()), self._style), end="")
            self._word = ""
        if self._column:
            self._column = 0
            self._out.print()

    @staticmethod
    def _width() -> int:
        return max(WIDTH_MIN, shutil.get_terminal_size().columns)


def _styled(
    part: str, marks: tuple[tuple[int, int], ...], offset: int
) -> list[str | tuple[str, str]]:
    """Return the part of a line in pieces. The marks are offsets in the whole line."""
    pieces: list[str | tuple[str, str]] = []
    at = 0
    for start, end in marks:
        first, last = max(start - offset, at), min(end - offset, len(part))
        if first >= last:
            continue
        pieces += [part[at:first], (part[first:last], "bold red")]
        at = last
    return [*pieces, part[at:]]
