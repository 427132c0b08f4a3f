"""
A command's output and exit code.

With `--json`, stdout holds JSON and nothing else; text for people goes to stderr. Without it,
results go to stdout as text and errors to stderr. Everything passes `terminal.printable` or
`terminal.printable_json`. A closed pipe is not an error: the work is done, and the exit code
reports it.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, TextIO

from holdfast.cli.shared.terminal import printable, printable_json, write_styled
from holdfast.errors import Busy, HoldfastError, NotSaved, Refused, Untrusted

EXIT_OF_OUTCOME = {
    "completed": 0,
    "queued": 0,
    "running": 0,
    "failed": 1,
    "cancelled": 1,
    "waiting": 3,
    "sealed": 4,
    "superseded": 6,
}
EXIT_OF_SEVERAL = (4, 5, 1, 6, 3, 0)
"""For several sessions: the first of these codes that is present."""

_EXIT_OF_CODE = {
    "sealed": 4,
    "not_saved": 5,
    "busy": 5,
    "in_doubt": 5,
    "newer_version": 5,
    "cannot_drive": 5,
}
"""Refusals whose code has the meaning of another error class."""

# More than anyone reads without a pager. Fitting ten thousand rows to a terminal's width takes
# seconds.
_FITTED_ROWS_MAX = 500

_GAP = "  "
_LAST_COLUMN_LEAST = 16  # a narrower column folds text into single syllables


def exit_code_of(error: HoldfastError) -> int:
    """
    >>> exit_code_of(Refused("no", code="wrong_approver")), exit_code_of(Refused("no", code="sealed"))
    (6, 4)
    """
    return _EXIT_OF_CODE.get(error.code, error.exit_code)


def exit_code_of_several(codes: Iterable[int]) -> int:
    """
    >>> exit_code_of_several([0, 3, 1]), exit_code_of_several([])
    (1, 0)
    """
    present = set(codes)
    return next((code for code in EXIT_OF_SEVERAL if code in present), max(present, default=0))


def is_sealed(error: HoldfastError) -> bool:
    return isinstance(error, Untrusted) or error.code == "sealed"


def error_from_os(exc: OSError) -> HoldfastError:
    """Translate an error of the operating system into the error class that fits the next step."""
    what = f"{exc.strerror or exc}" + (f": {exc.filename}" if exc.filename else "")
    if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NotSaved(
            what,
            hint="make room on the disk, then try again; nothing that was acknowledged is lost",
        )
    if exc.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return Refused(
            what,
            code="not_permitted",
            hint="check who owns the home and its mode, or name another one with --home; `holdfast "
            "doctor` looks",
        )
    return Busy(what, code="io", hint="`holdfast doctor` looks for the reason")


class Output:
    """The output of one command."""

    def __init__(self) -> None:
        self.json = False
        # Set when the reader of stdout has gone. Followers then stop.
        self.closed = False

    def object(self, value: Any) -> None:
        """Write one JSON object on its own line. It is UTF-8, as JSON is, in every locale."""
        self._written(lambda stream: _write_json(value, stream))

    def result(self, value: Any, text: str) -> None:
        """Write the command's result: `value` for a program, `text` for a person."""
        if self.json:
            self.object(value)
        else:
            self.text(text)

    def text(self, text: str) -> None:
        """Write text for people to the stream of the command's result."""
        if text:
            self._write(printable(text).rstrip("\n") + "\n")

    def piece(self, text: str) -> None:
        """Write a part of a continuing text unchanged, without a line of its own."""
        self._write(printable(text))

    def note(self, text: str) -> None:
        """Write a note for people, beside the result."""
        _write_quietly(printable(text).rstrip("\n") + "\n", sys.stderr)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if not self.json and rows:
            made = _table(
                heads,
                [
                    [
                        cell if cell.isprintable() else printable(cell).replace("\n", " ")
                        for cell in row
                    ]
                    for row in rows
                ],
            )
            self._written(lambda stream: write_styled(made, stream))

    def error(self, error: HoldfastError, **beside: Any) -> None:
        """Write an error. `beside` are further fields of the command's JSON."""
        if self.json and not self.closed:
            self.failure({**beside, "error": error_fields(error)})
        else:
            self.told(error.message, error.hint, kept=getattr(error, "quarantined", ()))

    def failure(self, fields: dict[str, Any]) -> None:
        """
        Write an object that contains an error. It may repeat an argument, and logs keep the output,
        so known secrets are hidden (S1).
        """
        import msgspec

        from holdfast.secrecy import known

        self.object(msgspec.Raw(known().hidden_json(_encoded(fields))))

    def told(self, message: str, hint: str, *, kept: Sequence[str] = ()) -> None:
        lines = [
            f"error: {message}",
            *(f"  kept: {each}" for each in kept),
            *([f"hint: {hint}"] if hint else []),
        ]
        from holdfast.secrecy import known

        self.note(known().hidden("\n".join(lines)))

    def stored(self, lines: Iterable[bytes]) -> None:
        """Write stored bytes, and nothing else. A terminal gets the same JSON with escapes."""

        def write(stream: TextIO) -> None:
            stream.flush()
            stream.buffer.writelines(map(printable_json, lines) if stream.isatty() else lines)

        self._written(write)

    def _write(self, text: str) -> None:
        self._written(lambda stream: stream.write(text))

    def _written(self, write: Callable[[TextIO], Any]) -> None:
        if self.closed or sys.stdout is None:
            self.closed = True
            return
        try:
            write(sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:
            self.closed = True
            _to_nowhere(sys.stdout)
        except OSError as exc:
            self.closed = True
            _to_nowhere(sys.stdout)
            raise HoldfastError(
                f"the result could not be written: {exc.strerror}",
                code="output",
                hint="what the command did stands",
            ) from exc


def error_fields(error: HoldfastError) -> dict[str, Any]:
    fields: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
    kept = getattr(error, "quarantined", ())
    return {**fields, "quarantine": list(kept)} if kept else fields


def encoded(value: Any) -> str:
    return _encoded(value).decode()


def _encoded(value: Any) -> bytes:
    import msgspec

    try:
        return printable_json(msgspec.json.encode(value))
    except UnicodeEncodeError:  # half a character, from a system name that is not UTF-8
        return printable_json(msgspec.json.encode(_whole(msgspec.to_builtins(value))))


def _write_json(value: Any, stream: TextIO) -> None:
    """
    Write JSON as UTF-8, whatever the stream's encoding is. Megabytes are not converted to text and
    back.
    """
    data = _encoded(value)
    raw = getattr(stream, "buffer", None)
    if raw is None:
        stream.write(data.decode() + "\n")
        return
    stream.flush()
    left = memoryview(data + b"\n")
    while left:  # an unbuffered stream may accept only a part
        taken = raw.write(left)
        if taken is None:
            raise BlockingIOError(errno.EAGAIN, "stdout takes no more now")
        left = left[taken:]


def _whole(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_whole(key): _whole(each) for key, each in value.items()}
        case list() | tuple():
            return [_whole(each) for each in value]
        case _:
            return value


def _write_quietly(text: str, stream: IO[str] | None) -> None:
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        _to_nowhere(stream)


def _to_nowhere(stream: IO[str]) -> None:
    """Redirect the stream so that buffered output does not fail again when Python exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if sys.stdout is not None and sys.stdout.isatty() and len(rows) <= _FITTED_ROWS_MAX:
        return _rich_table(heads, rows)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in (heads, *rows)]
    return "\n".join(lines) + "\n"


def _rich_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """
    Return a table made by Rich, which knows the terminal's width and NO_COLOR. Nothing is cut off:
    an id is there to be copied, and a detail to be read.

    Only the last column is folded. If the others leave no room for it, each row becomes a few
    lines.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = [max(cell_len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    if (
        sum(widths[:-1]) + len(_GAP) * (len(widths) - 1) + min(widths[-1], _LAST_COLUMN_LEAST)
        > console.width
    ):
        return "".join(_block(heads, row) for row in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads[:-1]:
        table.add_column(head, no_wrap=True)
    table.add_column(heads[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _block(heads: Sequence[str], row: Sequence[str]) -> str:
    width = max(map(len, heads[1:]), default=0)
    told = [
        f"{_GAP}{head.lower().ljust(width)}{_GAP}{cell}"
        for head, cell in zip(heads[1:], row[1:], strict=True)
        if cell
    ]
    return "\n".join([row[0], *told]) + "\n"
