"""
A command's output and exit code.

With `--json`, stdout holds JSON and nothing else; text for people goes to stderr. Without it,
results go to stdout as text and errors to stderr. Everything passes `terminal.printable` or
`terminal.printable_json`. A closed pipe is not an error: the work is done, and the exit code
reports it.
"""

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, TextIO

from holdfast.cli.output.table import table_text
from holdfast.cli.output.terminal import printable, printable_json, write_styled
from holdfast.cli.output.word_wrap import WIDTH_MIN, wrap_for_terminal
from holdfast.errors import Busy, HoldfastError, NotSaved, Refused, Untrusted


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
            hint=(
                "check who owns the home and its mode, or name another one with --home; `holdfast "
                "doctor` looks"
            ),
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
        """Write text for people to the stream of the result. A terminal gets it wrapped."""
        if text:
            self._write(_fitted(printable(text).rstrip("\n"), sys.stdout) + "\n")

    def verbatim(self, text: str) -> None:
        """Write text that a program may read, line by line as it is: SQL, settings, a unit."""
        self._write(printable(text).rstrip("\n") + "\n")

    def piece(self, text: str) -> None:
        """Write a part of a continuing text unchanged, without a line of its own."""
        self._write(printable(text))

    def styled(self, text: str) -> None:
        """Write text that `Styled` has made printable, with its colours."""
        self._written(lambda stream: write_styled(text, stream))

    def note(self, text: str) -> None:
        """Write a note for people, beside the result."""
        _write_quietly(_fitted(printable(text).rstrip("\n"), sys.stderr) + "\n", sys.stderr)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if not self.json and rows:
            made = table_text(
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
            self.print_error(error.message, error.hint, kept=getattr(error, "quarantined", ()))

    def failure(self, fields: dict[str, Any]) -> None:
        """
        Write an object that contains an error. It may repeat an argument, and logs keep the output,
        so known secrets are hidden (S1).
        """
        import msgspec

        from holdfast.secrecy import known

        self.object(msgspec.Raw(known().hidden_json(_encoded(fields))))

    def print_error(self, message: str, hint: str, *, kept: Sequence[str] = ()) -> None:
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
                hint="the work of the command stands",
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


def _fitted(text: str, stream: IO[str] | None) -> str:
    if stream is None or not stream.isatty():
        return text
    return wrap_for_terminal(text, max(WIDTH_MIN, shutil.get_terminal_size().columns))


def _write_quietly(text: str, stream: IO[str] | None) -> None:
    if stream is None:
        return
    try:
        stream.write(text)
    except OSError:
        _to_nowhere(stream)
    _flush_or_drop(stream)


def flush_results() -> None:
    """Flush stdout before Python exits: it may still hold help that a full disk did not take."""
    _flush_or_drop(sys.stdout)


def _flush_or_drop(stream: IO[str] | None) -> None:
    if stream is None:
        return
    try:
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
