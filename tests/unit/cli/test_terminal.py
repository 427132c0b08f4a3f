"""Everything that the command prints goes one way, and nothing on it moves a cursor or hides."""

import ast
import io
import json
import logging
import sys
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast.cli
from holdfast.cli.commands.demo.pseudo_terminal import PseudoTerminal
from holdfast.cli.output.terminal import (
    Guarded,
    Styled,
    printable,
    printable_json,
    show_status,
    write_styled,
)

PAYLOAD = (
    "a\x1b[2J\x1b]8;;http://evil\x07b\x9b31m\u202ec\x7fd\x08e\rf\u2028g\U000e0041h[bold]i[/bold]"
)
# A module may write by itself only for the reason given here.
OWN_WAYS = {
    "terminal.py": "is the way",
    "background_stream.py": "is below the guard, and writes what it has made printable",
    "result.py": "hands on what terminal.py has made printable",
    "table.py": "returns text; asks only whether stdout is a terminal",
    "pseudo_terminal.py": "types into a terminal of its own, which a test or the demo reads",
    "relay.py": "speaks a protocol with a program; JSON escapes what a terminal would act on",
    "stdio_server.py": "speaks the same protocol in the same way",
    "demo_story.py": "changes a byte of a journal; prints nothing",
}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
ASKED = {"isatty", "flush", "fileno"}  # what may be asked of a stream anywhere
WRITERS = {"print", "input", "breakpoint"}
MODULES = {"rich", "click", "getpass", "curses", "pprint"}


def sources() -> list[Path]:
    return sorted(Path(holdfast.cli.__file__).parent.rglob("*.py"))


def ways_out(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every place that could write to a stream by itself."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in WRITERS:
                yield node.lineno, name
            case ast.Call(func=ast.Attribute(value=ast.Name(id="typer"), attr=name)) if name in (
                "echo",
                "secho",
                "prompt",
                "launch",
                "echo_via_pager",
            ):
                yield node.lineno, f"typer.{name}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)) if name in (
                "write",
                "writev",
                "pwrite",
                "system",
            ):
                yield node.lineno, f"os.{name}"
            case ast.Attribute(value=ast.Name(id="sys"), attr=stream) if stream in STREAMS:
                parent = parents.get(node)
                asked = isinstance(parent, ast.Attribute) and parent.attr in ASKED
                if not asked and not isinstance(parent, ast.Compare | ast.Tuple):
                    yield node.lineno, f"sys.{stream}"
            case ast.Import(names=names):
                yield from (
                    (node.lineno, each.name)
                    for each in names
                    if each.name.partition(".")[0] in MODULES
                )
            case ast.ImportFrom(module=str(module)) if (
                module.partition(".")[0] in MODULES and module != "rich.cells"
            ):
                yield node.lineno, module


def test_no_module_of_the_command_writes_by_itself() -> None:
    found = {}
    for path in sources():
        ways = [way for way in ways_out(ast.parse(path.read_text())) if path.name not in OWN_WAYS]
        # A log handler is given the guarded stream, and lines that `printable_json` has made. The
        # screen names a type. The relay refuses a terminal.
        ways = [
            way
            for way in ways
            if (f"{path.parent.name}/{path.name}", way[1])
            not in (
                ("serve/log.py", "sys.stderr"),
                ("chat/screen.py", "rich.console"),
                ("mcp/relay.py", "sys.stdout"),
            )
        ]
        if ways:
            found[path.name] = ways
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "print(x)",
        "import sys\nsys.stdout.write(x)",
        "import sys\nsys.stderr.writelines(x)",
        "import sys\nout = sys.stdout\nout.write(x)",
        "import sys\nsys.__stdout__.write(x)",
        "import sys\nsys.stdout.buffer.write(x)",
        "typer.echo(x)",
        "typer.secho(x)",
        "from rich.console import Console",
        "from rich import print",
        "import click",
        "os.write(1, x)",
        "import logging, sys\nlogging.StreamHandler(sys.stdout)",
        "input(x)",
    ],
)
def test_the_reader_of_the_sources_sees_each_way_out(source: str) -> None:
    assert list(ways_out(ast.parse(source)))


def is_safe(text: str) -> bool:
    return not any(
        (unicodedata.category(each)[0] == "C" and each not in "\n\t") or each in "\u2028\u2029"
        for each in text
    )


def shown_by(way: Any) -> str:
    """Inside the test: pytest puts its own streams there between two phases."""
    below, before = io.StringIO(), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = Guarded(below), Guarded(below)  # type: ignore[assignment]
    try:
        way()
    finally:
        sys.stdout, sys.stderr = before
    return below.getvalue()


def raised() -> None:
    try:
        raise ValueError(PAYLOAD)  # noqa: TRY301
    except ValueError as exc:
        sys.excepthook(type(exc), exc, exc.__traceback__)


WAYS: dict[str, Any] = {
    "print": lambda: print(PAYLOAD),  # noqa: T201
    "print to stderr": lambda: print(PAYLOAD, file=sys.stderr),  # noqa: T201
    "write": lambda: sys.stdout.write(PAYLOAD),
    "writelines": lambda: sys.stdout.writelines([PAYLOAD]),
    "a log line that nobody handles": lambda: (
        logging.lastResort is not None
        and logging.lastResort.handle(
            logging.LogRecord("x", logging.ERROR, "x", 1, PAYLOAD, (), None)
        )
    ),
    "a warning": lambda: sys.stderr.write(warnings.formatwarning(PAYLOAD, UserWarning, "x.py", 1)),
    "a traceback": raised,
    "a line in colours": lambda: Styled().print((PAYLOAD, "bold")),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_output_holds_a_control_sequence(way: str) -> None:
    shown = shown_by(WAYS[way])
    assert (
        "\\x1b[2J\\x1b]8;;http://evil\\x07b\\x9b31m\\u202ec\\x7fd\\x08e\\rf\\u2028g\\U000e0041h[bold]i[/bold]"
        in shown.replace("\n", "")
    )
    assert is_safe(shown)


def test_colours_of_ours_come_through() -> None:
    assert (
        shown_by(lambda: write_styled("\x1b[1mNAME\x1b[0m\n", sys.stdout)) == "\x1b[1mNAME\x1b[0m\n"
    )


@given(st.text())
def test_printable_is_safe_and_leaves_what_is_safe(text: str) -> None:
    assert is_safe(printable(text))
    assert printable(printable(text)) == printable(text)
    if is_safe(text):
        assert printable(text) == text


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_printable_json_is_safe_and_means_the_same(value: Any) -> None:
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    shown = printable_json(data)
    assert is_safe(shown.decode())
    assert json.loads(shown) == json.loads(data)


def test_the_delete_character_is_escaped_where_all_else_is_ascii() -> None:
    assert printable_json(b'{"a":"x\x7fy"}') == b'{"a":"x\\u007fy"}'


def test_a_status_line_shows_no_escape_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names a tool, and a tool may have any name."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    show_status("\x1b]52;c;aGk=\x07 runs")
    assert "\x1b]52" not in stream.getvalue()
    assert "\\x1b]52;c;aGk=\\x07 runs" in stream.getvalue()


def test_the_relay_of_mcp_refuses_a_terminal() -> None:
    """The bytes of a server go to its stdout as they are."""
    with PseudoTerminal([sys.executable, "-P", "-m", "holdfast", "mcp", "proxy"]) as terminal:
        terminal.wait_until_seen("this command speaks MCP to a program")
        assert terminal.wait_until_over() == 2
