"""
Deep nesting, wherever text comes in: a clear error, the same bound everywhere, and no
RecursionError.
"""

import json

import pytest

from holdfast.limits import JSON_DEPTH_MAX
from tests.acceptance.cli.conftest import Cli

DEPTHS = (JSON_DEPTH_MAX + 1, 900, 100_000)


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_script_says_file_and_line(cli: Cli, depth: int) -> None:
    path = cli.cwd / "deep.jsonl"
    path.write_text(
        '{"say": "one"}\n{"call": [{"tool": "now", "args": {"x": '
        + deep(depth)
        + '}, "id": "c1"}]}\n'
    )
    refused = cli("--json", "send", "ops/api", "go", "--model", f"script:{path}")
    assert refused.code == 2, refused
    assert "deep.jsonl, line 2" in refused.json["error"]["message"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_new_arguments_are_refused(cli: Cli, depth: int) -> None:
    asked = cli.ask()
    refused = cli.answer(
        asked, "edit", "--arguments", '{"command": ' + deep(min(depth, 40_000)) + "}"
    )
    assert (refused.code, refused.json["error"]["code"]) == (2, "malformed")
    assert cli.json("approvals", "show", asked["id"])["state"] == "requested"


@pytest.mark.parametrize("depth", DEPTHS)
def test_an_import_skips_the_line_and_names_it(cli: Cli, depth: int) -> None:
    path = cli.cwd / "old.jsonl"
    lines = [
        '{"type": "session", "version": 3, "id": "s"}',
        '{"type": "message", "id": "a", "message": {"role": "user", "content": '
        + deep(depth)
        + "}}",
    ]
    path.write_text(
        "\n".join(
            [
                *lines,
                '{"type": "message", "id": "b", "message": {"role": "user", "content": "hello"}}',
            ]
        )
    )
    ran = cli("--json", "sessions", "import", str(path), "--as", "alice")
    assert "Traceback" not in ran.err
    assert ran.code in {0, 2, 6}, ran
    assert json.loads(ran.out)


def test_settings_stop_a_command_with_the_line(cli: Cli) -> None:
    cli.settings("[serve]\nport = 1\n" + "a." * 20_000 + "a = 1\n")
    for words in (("send", "a/b", "hi"), ("config", "check"), ("approvals", "list")):
        refused = cli("--json", *words)
        assert (
            refused.code,
            "line 3: is nested deeper than" in refused.json["error"]["message"],
        ) == (2, True)
    assert cli("--json", "doctor").code == 1
