"""The bytes that reach stdout, for every kind of stream."""

import io
import json
import sys

import pytest

from holdfast.cli.command_lookup import wanted
from holdfast.cli.main import COMMANDS
from holdfast.cli.output.result import Output
from holdfast.cli.output.table import _FITTED_ROWS_MAX
from holdfast.errors import HoldfastError

SAID = {"said": "für alle", "numbers": list(range(50))}


class Sparing(io.RawIOBase):
    """Takes seven bytes at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(memoryview(data))[:7]  # type: ignore[call-overload]  # what io gives
        self.taken += part
        return len(part)


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_json_reaches_an_unbuffered_stream_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Sparing()
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", _Over(stream, raw))
    Output().object(SAID)
    assert raw.taken == json.dumps(SAID, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class _Over:
    """A text stream whose buffer is not one, as with `python -u`."""

    encoding = "UTF-8"

    def __init__(self, text: io.TextIOWrapper, raw: io.RawIOBase) -> None:
        self.buffer, self.flush, self.write = raw, text.flush, text.write


def test_json_stands_behind_what_was_written_before(monkeypatch: pytest.MonkeyPatch) -> None:
    below = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(below, encoding="utf-8"))
    sys.stdout.write("first\n")
    Output().object({})
    assert below.getvalue() == b"first\n{}\n"


def test_json_on_a_stream_of_another_encoding_is_utf8_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    below = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(below, encoding="latin-1"))
    Output().object({"said": "für"})
    assert below.getvalue().decode() == '{"said":"für"}\n'


def test_a_stream_that_takes_nothing_is_reported_and_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(io.RawIOBase):
        def write(self, _: object) -> None:  # type: ignore[override]  # what a stream that would block gives
            return None

    monkeypatch.setattr(sys, "stdout", _Over(io.TextIOWrapper(io.BytesIO()), Full()))
    monkeypatch.setattr("holdfast.cli.output.result._to_nowhere", lambda _: None)
    with pytest.raises(HoldfastError, match="could not be written"):
        Output().object(SAID)


@pytest.mark.parametrize("rows", [_FITTED_ROWS_MAX, _FITTED_ROWS_MAX + 1])
def test_a_long_table_is_not_fitted_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """One line a row, however wide: fitting ten thousand takes seconds."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    below = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(below, encoding="utf-8"))
    Output().table(("NAME", "WHAT"), [("a", "x" * 100)] * rows)
    assert ("x" * 100 in below.getvalue().decode()) == (rows > _FITTED_ROWS_MAX)


def test_a_table_hides_nothing_and_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    below = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(below, encoding="utf-8"))
    Output().table(("NAME", "WHAT"), [("a\x1b[2K", "one\ntwo"), ("b", "three")])
    assert below.getvalue().decode() == "NAME      WHAT\na\\x1b[2K  one two\nb         three\n"


@pytest.mark.parametrize(
    ("arguments", "declared"),
    [
        ([], COMMANDS),
        (["--help"], COMMANDS),
        (["--help", "send"], COMMANDS),
        (["snd"], COMMANDS),
        (["--home"], COMMANDS),
        (["send", "--help"], ("send",)),
        (["--json", "--home=x", "--app", "send", "approvals", "list"], ("approvals",)),
    ],
)
def test_only_the_named_command_is_declared_unless_any_may_be_meant(
    arguments: list[str], declared: tuple[str, ...]
) -> None:
    assert wanted(arguments, COMMANDS) == declared
