"""
`approvals.consent`: the ways in which an answer counts. Real processes, with and without a terminal
of their own.
"""

import json
import os
import pty
import subprocess
import sys

import pytest

from holdfast.cli.commands.demo.pseudo_terminal import PseudoTerminal
from tests.acceptance.cli.conftest import Cli

COMMAND = [sys.executable, "-P", "-m", "holdfast"]
BACKGROUND = ("/bin/sh", "-c", 'set -m; "$@" & wait $!', "sh")


def in_a_terminal(cli: Cli, *words: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    with PseudoTerminal([*prefix, *COMMAND, *words], env=cli.env, cwd=str(cli.cwd)) as terminal:
        code = terminal.wait_until_over()
        return code, terminal.seen


def consent(cli: Cli, *ways: str) -> None:
    cli.settings(f"[approvals]\nconsent = {json.dumps(ways)}\n")


@pytest.mark.parametrize(
    "ways", [("script",), ("script", "page"), ("script", "terminal", "page", "channels")]
)
def test_a_script_may_answer_where_scripts_count(cli: Cli, ways: tuple[str, ...]) -> None:
    consent(cli, *ways)
    assert (cli.answer(cli.ask()).code, cli.ran()) == (0, 1)


@pytest.mark.parametrize(
    "ways", [("terminal",), ("page",), ("channels",), ("terminal", "page", "channels")]
)
@pytest.mark.parametrize("option", ["approve_once", "approve_session", "deny"])
def test_no_script_answers_where_scripts_do_not_count(
    cli: Cli, ways: tuple[str, ...], option: str
) -> None:
    """
    15: without a terminal nothing is answered; the prompt stands, and the attempt is in the
    journal.
    """
    asked = cli.ask("echo ran >> ran.txt")
    consent(cli, *ways)
    refused = cli.answer(asked, option)
    assert (refused.code, refused.json["result"], refused.json["reason"]) == (
        6,
        "failed",
        "no_authority",
    )
    assert ", ".join(ways) in refused.json["error"]["message"]
    assert "still stands" in refused.json["error"]["hint"]
    assert cli.json("approvals", "show", asked["id"])["state"] == "requested"
    assert cli.ran() == 0
    kept = cli.wait_for_record("ops/api", "answer_refused")
    assert (kept["body"]["code"], kept["body"]["by"]) == ("no_authority", "alice")


def test_a_person_at_a_terminal_may_and_the_way_is_journalled(cli: Cli) -> None:
    asked = cli.ask()
    consent(cli, "terminal", "page")
    code, seen = in_a_terminal(
        cli, "approvals", "answer", asked["id"], "approve_once", "--as", "alice"
    )
    assert (code, cli.ran()) == (0, 1), seen
    assert cli.wait_for_record("ops/api", "approval_answered")["body"]["way"] == "terminal"


def test_the_page_alone_closes_the_command_line(cli: Cli) -> None:
    asked = cli.ask()
    consent(cli, "page", "channels")
    code, seen = in_a_terminal(
        cli, "approvals", "answer", asked["id"], "approve_once", "--as", "alice"
    )
    assert (code, cli.ran()) == (6, 0), seen
    assert "holdfast serve code" in seen


@pytest.mark.parametrize(
    "how",
    ["in the background", "stdin is a file", "stdin is another terminal", "no session of its own"],
)
def test_a_terminal_that_is_not_the_persons_does_not_count(cli: Cli, how: str) -> None:
    asked = cli.ask()
    consent(cli, "terminal")
    words = ["approvals", "answer", asked["id"], "approve_once", "--as", "alice"]
    if how == "in the background":
        code, _ = in_a_terminal(cli, *words, prefix=BACKGROUND)
    elif how == "stdin is a file":
        code, _ = in_a_terminal(cli, *words, prefix=("/bin/sh", "-c", 'exec "$@" </dev/null', "sh"))
    elif how == "stdin is another terminal":
        code = with_a_foreign_terminal(cli, words)
    else:
        code, _ = in_a_terminal(cli, *words, prefix=("/usr/bin/env", "setsid", "--wait"))
    assert (code, cli.ran()) == (6, 0)


def with_a_foreign_terminal(cli: Cli, words: list[str]) -> int:
    """A terminal that a program opened, and that is nobody's controlling terminal."""
    keys, screen = pty.openpty()
    try:
        streams = {"stdin": screen, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(
            [*COMMAND, *words],
            cwd=cli.cwd,
            env=cli.env,
            start_new_session=True,
            timeout=60,
            check=False,
            **streams,
        ).returncode
    finally:
        os.close(keys)
        os.close(screen)


def test_an_answer_whose_way_no_longer_counts_starts_nothing(cli: Cli) -> None:
    """A5: recorded by a script, and then settings were tightened before it ran."""
    asked = cli.ask()
    recorded = cli.answer(asked, "approve_once", "--no-wait")
    assert recorded.code == 0, recorded
    consent(cli, "terminal")
    cli("--json", "resume", "ops/api")
    assert cli.ran() == 0
    assert cli.json("approvals", "show", asked["id"])["closed_as"] == "voided"


@pytest.mark.parametrize(
    "words",
    [
        ("tokens", "add", "ci", "--as", "alice", "--scopes", "approve"),
        ("tokens", "revoke", "old"),
        ("grants", "revoke", "g-x"),
        ("sessions", "unseal", "ops/api", "--reason", "why"),
        ("reminders", "add", "ops/api", "--at", "2030-01-01T00:00", "x"),
        ("memory", "forget", "m-x"),
        ("jobs", "cancel", "j-x"),
        ("serve", "code"),
    ],
)
def test_commands_that_carry_consent_need_a_terminal_too(cli: Cli, words: tuple[str, ...]) -> None:
    cli.ask()
    consent(cli, "page")
    refused = cli("--json", *words)
    assert (refused.code, refused.json["error"]["code"]) == (6, "no_authority"), refused
    _, seen = in_a_terminal(cli, *words)
    assert "needs a terminal" not in seen


def test_chat_answers_from_its_terminal(cli: Cli) -> None:
    asked = cli.ask()
    consent(cli, "page")
    with PseudoTerminal(
        [*COMMAND, "chat", "ops/api", "--as", "alice"], env=cli.env, cwd=str(cli.cwd)
    ) as terminal:
        terminal.wait_until_seen("answer>")
        terminal.type("approve_once\r")
        terminal.wait_until_seen("does not count")
    assert cli.json("approvals", "show", asked["id"])["state"] == "requested"


def test_a_program_of_ones_own_is_a_script(cli: Cli) -> None:
    asked = cli.ask()
    consent(cli, "terminal", "page")
    program = (
        "import asyncio, holdfast, sys\n"
        "async def main():\n"
        "    async with holdfast.open(sys.argv[1]) as home:\n"
        "        answer = await home.answer(await home.approval(sys.argv[2]), 'approve_once', by=holdfast.MessageSource.local('alice'))\n"
        "        print(answer.result, answer.reason)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(cli.home), asked["id"]],
        capture_output=True,
        text=True,
        check=True,
        cwd=cli.cwd,
    )
    assert (done.stdout.strip(), cli.ran()) == ("failed no_authority", 0)


@pytest.mark.parametrize(
    "text",
    ["consent = []", 'consent = ["skript"]', 'consent = "page"', 'consent = ["page", "page"]'],
)
def test_settings_that_name_no_way_are_refused_with_the_line(cli: Cli, text: str) -> None:
    cli.settings(f"[approvals]\n{text}\n")
    refused = cli("--json", "config", "check")
    assert (refused.code, "line 2" in refused.json["error"]["message"]) == (2, True)


def test_settings_that_nobody_could_answer_under_are_named(cli: Cli) -> None:
    consent(cli, "channels")
    checked = cli("--json", "config", "check")
    assert (checked.code, "no channel can answer" in checked.json["problems"][0]) == (1, True)


def test_config_and_doctor_say_what_counts(cli: Cli) -> None:
    shown = cli.json("config", "show")["settings"]["approvals"]["consent"]
    assert shown == ["script", "terminal", "page", "channels"]
    consent(cli, "page")
    assert cli.json("config", "show")["settings"]["approvals"]["consent"] == ["page"]
    found = {each["check"]: each["detail"] for each in cli("--json", "doctor").json["checks"]}
    assert found["consent"] == "answers count from: page"
