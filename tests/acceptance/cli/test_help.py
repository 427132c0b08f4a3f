"""
Every command explains itself: its help has an example, and docs/reference/commands.md has every command and
every option.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from proof.conventions import odd_sentences

from holdfast.cli import main
from holdfast.cli.commands import sessions
from holdfast.cli.main import make_app
from tests.acceptance.cli.conftest import Cli

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"
CLI = Path(main.__file__).parent


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in getattr(command, "commands", {}).items():
        if hasattr(each, "commands"):
            yield from _commands(each, (*path, name))
        else:
            yield (*path, name), each


def _plain(text: str) -> str:
    """Without the options that may stand before a command."""
    return re.sub(r"--json |--home \S+ ", "", text)


ROOT = typer.main.get_command(make_app())
COMMANDS = dict(_commands(ROOT))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example(path: tuple[str, ...]) -> None:
    assert f"$ holdfast {' '.join(path)}" in _plain(COMMANDS[path].help)


def _groups(command: Any) -> Iterator[Any]:
    for each in getattr(command, "commands", {}).values():
        if hasattr(each, "commands"):
            yield each
            yield from _groups(each)


@pytest.mark.parametrize("group", list(_groups(ROOT)), ids=lambda group: group.name)
def test_the_help_of_a_group_has_examples_of_its_commands(group: Any) -> None:
    examples = re.findall(rf"\$ holdfast {group.name} ([a-z-]+)", group.help)
    assert examples
    assert set(examples) <= set(group.commands)


def test_the_usage_line_names_arguments_without_braces() -> None:
    for command in COMMANDS.values():
        ctx = typer.Context(command, info_name=command.name)
        assert "{" not in command.get_usage(ctx)


def test_commands_are_listed_in_the_order_in_which_people_need_them() -> None:
    listed = re.findall(
        r"^  ([a-z]+)  ",
        ROOT.get_help(typer.Context(ROOT)).partition("Commands:")[2],
        flags=re.MULTILINE,
    )
    assert tuple(listed) == main.COMMANDS


def test_no_help_is_cut_off_or_out_of_line() -> None:
    """
    A list of commands says each one's sentence to its end, and a paragraph stands where the one
    before it does.
    """

    def helps(command: Any, parent: Any = None) -> Iterator[str]:
        ctx = typer.Context(command, info_name=command.name, parent=parent)
        yield command.get_help(ctx)
        for each in getattr(command, "commands", {}).values():
            yield from helps(each, ctx)

    told = list(helps(ROOT))
    assert len(told) > len(COMMANDS)
    for lines in (each.splitlines() for each in told):
        assert [line for line in lines[1:] if line.endswith("...")] == []
        about = lines[
            2 : next(
                at for at, line in enumerate(lines) if line.startswith(("Options:", "Arguments:"))
            )
        ]
        assert [
            line for line in about if line.startswith("   ") and not line.lstrip().startswith("$")
        ] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_a_parameter_begins_with_a_subject_or_a_verb(path: tuple[str, ...]) -> None:
    """The linter of sentences reads no values of declarations."""
    helps = [getattr(each, "help", None) or "" for each in COMMANDS[path].params]
    assert [each for text in helps for each in odd_sentences("help", text)] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_option_is_documented(path: tuple[str, ...]) -> None:
    sections = re.split(r"^#+ ", DOCS.read_text(), flags=re.MULTILINE)
    (section,) = [each for each in sections if each.startswith(f"`holdfast {' '.join(path)}")]
    assert f"$ holdfast {' '.join(path)}" in _plain(section)
    for parameter in COMMANDS[path].params:
        if (
            parameter.param_type_name == "option"
            and not parameter.hidden
            and parameter.opts[0] not in {"--json", "--help"}
        ):
            assert f"`{parameter.opts[0]}" in section, parameter.opts[0]
        if parameter.param_type_name == "argument":
            assert parameter.metavar.strip("[].") in section.splitlines()[0], parameter.metavar


@pytest.mark.parametrize("option", [each.opts[0] for each in ROOT.params])
def test_every_common_option_is_documented(option: str) -> None:
    assert f"`{option}" in DOCS.read_text()


def test_help_is_printed_and_a_bare_command_prints_its_usage(cli: Cli) -> None:
    assert "holdfast demo" in cli("--help").out
    assert cli("send", "--help").code == 0
    assert cli("--version").out.startswith("holdfast ")
    for words in ((), ("sessions",)):
        ran = cli(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("Usage: holdfast")
        assert "Commands:" in ran.err
    assert cli("--json", "sessions").json["error"]["message"] == "a command is missing"


def test_every_file_of_a_command_is_registered() -> None:
    def with_register(folder: Path) -> set[str]:
        return {
            path.stem
            for path in folder.glob("*.py")
            if re.search(r"^def register\(app:", path.read_text(), re.MULTILINE)
        }

    assert with_register(CLI) <= set(main.COMMANDS)
    assert with_register(CLI / "sessions") - {"__init__"} <= set(sessions.COMMANDS)


def test_a_near_miss_is_pointed_at(cli: Cli) -> None:
    assert "'send'" in cli("sned", "a", "b").err
