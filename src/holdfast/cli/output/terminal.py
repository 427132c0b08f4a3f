"""
The one way to a terminal: all output to stdout and stderr passes `printable`, so that no stored
text moves the cursor or hides anything.

`prepare_streams` puts a guard around both streams. Prints of tools, log lines, warnings and
tracebacks pass it too. The command line's own colours go around it through `Styled`, which makes
the text printable first. Nothing else in this package may write; a test reads the sources for that.
"""

import codecs
import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console

_AS_ESCAPES = "holdfast_escapes"
_BASIC_PLANE = 0xFFFF
_NOT_ASCII = re.compile(r"[^\x20-\x7e]+")


def printable(text: str) -> str:
    r"""
    Return text that moves no cursor and hides nothing.

    >>> printable("a\x1b[2Kb"), printable("a\u2028b"), printable("a\x9bb\x7f")
    ('a\\x1b[2Kb', 'a\\u2028b', 'a\\x9bb\\x7f')
    """
    return "\n".join(
        line if line.isprintable() else "".join(map(_shown, line)) for line in text.split("\n")
    )


def printable_json(data: bytes) -> bytes:
    r"""
    Return the same JSON with such characters written as JSON escapes. Its meaning does not change.

    >>> printable_json('{"a":"\x9b\u202e\x7f"}'.encode())
    b'{"a":"\\u009b\\u202e\\u007f"}'
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    return _NOT_ASCII.sub(
        lambda run: "".join(map(_json_shown, run[0])), data.decode("utf-8", "replace")
    ).encode()


def _shown(char: str) -> str:
    return ascii(char)[1:-1] if _is_hidden(char) and char != "\t" else char


def _json_shown(char: str) -> str:
    if (
        not _is_hidden(char) or char in "\n\t\r"
    ):  # raw ones stand between values only; inside a JSON string they are escaped
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _is_hidden(char: str) -> bool:
    """
    Return whether a character is a control, format, surrogate or unassigned one, or a separator
    that only some programs treat as a line end.
    """
    return unicodedata.category(char)[0] == "C" or char in "\u2028\u2029"


class Guarded:
    """A text stream that any code may write to. `styled` is for text that `Styled` has made."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = (
            stream  # the stream for rich, once `Styled` has made the text printable
        )

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def styled(self, text: str) -> int:
        return self.rich_proxied_file.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def guard_streams() -> None:
    """Guard the present streams. A second call changes nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Guarded):
            setattr(sys, name, cast(TextIO, Guarded(stream)))


@contextmanager
def output_above_the_line() -> Iterator[TextIO]:
    """
    Write new output above the line that the person is typing, and only whole lines: the line that
    is being typed is drawn again after each write, and would stand in the middle of a half one.
    """
    from prompt_toolkit.patch_stdout import StdoutProxy

    class WholeLines(StdoutProxy):
        def flush(self) -> None:
            """Do nothing. Each print is flushed, also one that ends in the middle of a line."""

        def close(self) -> None:
            super().flush()
            super().close()

    with WholeLines(raw=True) as proxy:
        streams = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = cast("TextIO", proxy)
        guard_streams()
        try:
            yield sys.stdout
        finally:
            sys.stdout, sys.stderr = streams


def prepare_streams() -> None:
    """
    Show characters that can't be encoded as escapes. They must not cause a failure after the work
    was done.
    """
    codecs.register_error(_AS_ESCAPES, _escapes)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_AS_ESCAPES)
    guard_streams()


def write_styled(text: str, stream: TextIO) -> None:
    """Write text with the command line's own colours. Its content is already printable."""
    styled = getattr(stream, "styled", stream.write)
    styled(text)


_CLEAR_LINE = "\r\x1b[K"


def show_status(text: str) -> None:
    """Write a dim line that the next output replaces. An empty text removes it."""
    shown = f"\x1b[2m{printable(text)}\x1b[0m" if text else ""
    write_styled(_CLEAR_LINE + shown, sys.stdout)
    sys.stdout.flush()


class Styled:
    """
    Coloured lines. Looks up sys.stdout at every print, because prompt_toolkit replaces it while the
    user types.
    """

    def __init__(self) -> None:
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        return self._console

    def print(self, *parts: "str | tuple[str, str]", end: str = "\n") -> None:
        """Each part is a text, or a text and its style."""
        from rich.text import Text

        made = [
            (printable(part), "") if isinstance(part, str) else (printable(part[0]), part[1])
            for part in parts
        ]
        self.console.print(Text.assemble(*made), end=end)


def _escapes(error: UnicodeError) -> tuple[str, int]:
    """
    Write escapes as rendering does, with four or eight digits. Rendering doubles a backslash that
    would read like an escape, so two different prompts never look the same.

    `backslashreplace` would write some with two digits, and a command may contain such a text
    itself.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = map(ord, error.object[error.start : error.end])
    return "".join(
        f"\\u{each:04x}" if each <= _BASIC_PLANE else f"\\U{each:08x}" for each in missing
    ), error.end
