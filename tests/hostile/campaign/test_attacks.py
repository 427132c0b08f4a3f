"""
Attacks on approvals and authority, end to end: the command line, the real shell tool, real files.
Exactly the approved call runs, or nothing does.
"""

import asyncio
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.ids import SessionId
from holdfast.journal.record import Draft, read_unverified
from tests.hostile.campaign.conftest import Cli

CANARY = "canary-7f3e91c0d4b8a265"


def asked(cli: Cli, arguments: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    model = cli.script({"call": [{"tool": "shell", "args": arguments}]}, *more, {"say": "done"})
    turn: dict[str, Any] = cli.json("send", "ops/api", "go", "--model", model, "--as", "alice")
    return turn


def asked_together(cli: Cli, commands: list[str]) -> dict[str, Any]:
    model = cli.script(
        {"call": [{"tool": "shell", "args": {"command": command}} for command in commands]},
        {"say": "done"},
    )
    turn: dict[str, Any] = cli.json("send", "ops/api", "go", "--model", model, "--as", "alice")
    return turn


def prompt(cli: Cli, command: str, **more: str) -> dict[str, Any]:
    approval: dict[str, Any] = asked(cli, {"command": command, **more})["approvals"][0]
    return approval


def outcomes(cli: Cli) -> list[tuple[str, str | None]]:
    paths = cli.json("sessions", "show", "ops/api")["journal"]
    records = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    return [
        (each["body"]["outcome"], each["body"].get("code"))
        for each in records
        if each["type"] == "call_finished"
    ]


def executable(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("when", ["before the answer", "after the answer"])
def test_a_script_changed_after_it_was_shown_is_voided(cli: Cli, when: str) -> None:
    """P1: what would run is bound by its contents, whenever they change."""
    executable(cli.cwd / "job.sh", "echo ran >> ran.txt")
    approval = prompt(cli, "./job.sh")
    if when == "after the answer":
        assert cli.answer(approval, "approve_once", "--no-wait").json["result"] == "handed_on"
    executable(cli.cwd / "job.sh", "echo evil >> ran.txt")
    done = (
        cli("--json", "resume", "ops/api") if when == "after the answer" else cli.answer(approval)
    )
    assert (done.code, done.json["outcome"], cli.ran()) == (
        0 if when == "after the answer" else 6,
        "completed",
        0,
    )
    assert outcomes(cli) == [("voided", "plan_changed")]


def test_an_executable_replaced_by_another_is_voided(cli: Cli) -> None:
    executable(cli.cwd / "tool", "echo ran >> ran.txt")
    approval = prompt(cli, "./tool")
    executable(cli.cwd / "other", "echo ran >> ran.txt; echo evil")
    (cli.cwd / "other").replace(cli.cwd / "tool")
    assert (cli.answer(approval).code, cli.ran(), outcomes(cli)) == (
        6,
        0,
        [("voided", "plan_changed")],
    )


@pytest.mark.parametrize("flipped", ["the folder", "its parent"])
def test_a_folder_that_became_another_is_voided(cli: Cli, flipped: str) -> None:
    """By identity, not by name: neither folder is touched."""
    for name in ("one", "two"):
        (cli.cwd / name / "deep").mkdir(parents=True)
    link = cli.cwd / "link"
    link.symlink_to("one/deep" if flipped == "the folder" else "one")
    approval = prompt(
        cli, "echo ran >> ran.txt", cwd="link" if flipped == "the folder" else "link/deep"
    )
    link.unlink()
    link.symlink_to("two/deep" if flipped == "the folder" else "two")
    assert cli.answer(approval).code == 6
    assert (outcomes(cli), list(cli.cwd.rglob("ran.txt"))) == ([("voided", "plan_changed")], [])


def test_nothing_of_the_callers_environment_acts_on_the_command(cli: Cli) -> None:
    """PATH, LD_PRELOAD, BASH_ENV, ENV, GIT_EXTERNAL_DIFF of whoever answers: dropped."""
    evil = cli.cwd / "evil"
    evil.mkdir()
    executable(evil / "date", "echo evil >> ../ran.txt")
    executable(evil / "start.sh", "echo evil >> ran.txt")
    approval = prompt(cli, "date > date.txt; env > env.txt")
    hostile = {
        "BASH_ENV": str(evil / "start.sh"),
        "ENV": str(evil / "start.sh"),
        "GIT_EXTERNAL_DIFF": str(evil / "date"),
        "MAKEFLAGS": "x",
    }
    hostile["PATH"] = f"{evil}:{os.environ['PATH']}"
    done = cli.answer(approval, env=hostile)
    assert (done.code, cli.ran()) == (0, 0)
    names = {line.partition("=")[0] for line in (cli.cwd / "env.txt").read_text().splitlines()}
    assert not names & {
        "LD_PRELOAD",
        "BASH_ENV",
        "ENV",
        "GIT_EXTERNAL_DIFF",
        "MAKEFLAGS",
        "HOLDFAST_HOME",
    }
    assert str(evil) not in (cli.cwd / "env.txt").read_text()


HIDING = [
    "\u202e",
    "\u2066",
    "\u200b",
    "\u200d",
    "\ufeff",
    "\x1b[2K\r",
    "\x1b]8;;http://x\x07",
    "\r",
    "\u00ad",
    "\u2028",
]


def test_approvals_show_hidden_characters_in_escaped_form(cli: Cli) -> None:
    """
    P4: bidirectional, zero-width and control characters, in the JSON's display and in what a person
    reads.
    """
    turn = asked_together(cli, [f"echo safe{hidden}evil" for hidden in HIDING])
    assert len(turn["approvals"]) == len(HIDING)
    for hidden, approval in zip(HIDING, turn["approvals"], strict=True):
        assert (hidden in approval["display"], "evil" in approval["display"]) == (False, True), (
            ascii(hidden)
        )
    shown = cli("approvals", "list")
    assert [ascii(hidden) for hidden in HIDING if hidden in shown.out] == []
    shown = cli("approvals", "show", turn["approvals"][0]["id"])
    assert (shown.code, HIDING[0] in shown.out, "evil" in shown.out) == (0, False, True)


def test_look_alike_letters_are_flagged(cli: Cli) -> None:
    approval = prompt(cli, "ｒｍ -rf x")
    assert approval["display"] != "ｒｍ -rf x"
    assert "\\uff52" in approval["display"].lower() or "U+FF52" in approval["display"]


def test_300_lines_are_all_shown(cli: Cli) -> None:
    turn = asked(cli, {"command": "\n" * 300 + "echo evil >> ran.txt"})
    for approval in turn["approvals"]:
        assert "echo evil" in approval["display"]
        assert "300" in approval["display"] or approval["display"].count("\n") >= 300


def test_a_command_too_long_to_show_can_not_be_approved(cli: Cli) -> None:
    """P4: 60 kB with an evil tail is denied, never approvable from a prefix."""
    turn = asked(cli, {"command": "echo " + "a" * 60_000 + "; echo evil >> ran.txt"})
    assert (turn["outcome"], turn["approvals"], cli.ran()) == ("completed", [], 0)
    assert [code for _, code in outcomes(cli)] == ["too_long"]


WRAPPERS = [
    "env -S 'sh -c ls'", "sh -c 'ls'", "bash -c ls", "find . -exec ls {} ;", "find . -delete -exec sh {} +", "xargs ls", "sudo ls", "nohup ls", "timeout 5 ls",
    "tar -cf x . --checkpoint=1 --checkpoint-action=exec=ls", "git -c core.pager=ls log", "python3 -c 1", "perl -e 1", "awk 'BEGIN{system(\"ls\")}'",
    "ssh host ls", "eval ls", "exec ls", "command ls", "ls $(id)", "ls `id`", "ls <(id)", "if true; then ls; fi", "for x in 1; do ls; done", "f() { ls; }; f",
]  # fmt: skip


@pytest.mark.parametrize("commands", [WRAPPERS[:12], WRAPPERS[12:]], ids=["programs", "language"])
def test_wrappers_and_interpreters_are_never_offered_for_always(
    cli: Cli, commands: list[str]
) -> None:
    """P9: once, edit or deny."""
    approvals = asked_together(cli, commands)["approvals"]
    assert len(approvals) == len(commands)
    wrong = {
        each["arguments"]["command"]: each["options"]
        for each in approvals
        if set(each["options"]) - {"approve_once", "edit", "deny"}
    }
    assert wrong == {}


LONGER = ["ls && id", "ls; id", "ls | id", "ls > out.txt", "ls -l", " ls", "ls\n"]


def test_a_grant_covers_byte_equal_text_only(cli: Cli) -> None:
    """The same text runs without asking; whatever is longer by a byte asks."""
    calls = [{"tool": "shell", "args": {"command": command}} for command in ("ls", *LONGER)]
    (approval,) = asked(cli, {"command": "ls"}, {"call": calls})["approvals"]
    done = cli.answer(approval, "approve_session")
    assert (done.code, done.json["outcome"]) == (3, "waiting")
    assert [each["arguments"]["command"] for each in done.json["approvals"]] == LONGER


def test_a_tool_can_not_read_keys_nor_answer_its_own_prompt(cli: Cli) -> None:
    """P8: where it is confined, the home is out of reach; a second prompt stays as it was."""
    other = cli.json("send", "ops/other", "run: echo other >> other.txt", "--as", "alice")[
        "approvals"
    ][0]
    home = shlex.quote(str(cli.home))
    holdfast = shlex.join([sys.executable, "-m", "holdfast", "--home", str(cli.home)])
    command = (
        f"cat {home}/keys/1.key > stolen; ls {home} > listed; {holdfast} approvals answer {other['id']} approve_once --as alice > answered 2>&1; "
        f"env -u HOLDFAST_TOOL {holdfast} approvals answer {other['id']} approve_once --as alice >> answered 2>&1; echo ran >> ran.txt"
    )
    approval = prompt(cli, command)
    if "unconfined" in approval["display"].splitlines()[0].lower():
        pytest.skip("no confinement works here")
    assert cli.answer(approval).code == 0
    assert ((cli.cwd / "stolen").read_bytes(), (cli.cwd / "listed").read_bytes(), cli.ran()) == (
        b"",
        b"",
        1,
    )
    assert cli.json("approvals", "show", other["id"])["state"] == "requested"
    assert not (cli.cwd / "other.txt").exists()
    assert "Traceback" not in (cli.cwd / "answered").read_text()


def test_an_unconfined_tool_can_not_answer_a_prompt(cli: Cli) -> None:
    """
    The prompt says so first, offers no memory, and a command that carries consent refuses below a
    tool.
    """
    cli.settings('[tools.shell]\nconfine = "off"\n')
    other = cli.json("send", "ops/other", "run: echo other >> other.txt", "--as", "alice")[
        "approvals"
    ][0]
    holdfast = shlex.join([sys.executable, "-m", "holdfast", "--home", str(cli.home)])
    words = f"approvals answer {other['id']} approve_once --as alice"
    command = f"{holdfast} {words} > one 2>&1; env -u HOLDFAST_TOOL {holdfast} --json {words} > two 2>&1; true"
    approval = prompt(cli, command)
    assert "unconfined" in approval["display"].splitlines()[0].lower()
    assert approval["options"] == ["approve_once", "deny"]
    assert cli.answer(approval).code == 0
    assert "started by a tool" in (cli.cwd / "one").read_text()
    assert json.loads((cli.cwd / "two").read_text())["reason"] == "started_by_tool"
    assert cli.json("approvals", "show", other["id"])["state"] == "requested"


# --- authority, forged by whoever has the key


async def _forged(home: Path, change: Any) -> None:
    """
    Rewrite history with the real key: every record anew, chained and MACed, and the anchor with it.
    """
    store = await FileStore.open_existing(home)
    assert store is not None
    try:
        journal = await store.open(SessionId("ops/api"))
        assert isinstance(journal, FileJournal)
        files = journal.files
        (path,) = files.paths()
        kept = [
            record
            for record in (
                read_unverified(line) for line in path.read_bytes().splitlines(keepends=True)
            )
            if record is not None
        ]
        fence = files.fence()
        lines = [fence.open_segment(generation=1, at=kept[0].at, writer=kept[0].writer)]
        for record in kept[1:]:
            body = msgspec.json.encode(change(record.type, msgspec.json.decode(record.body)))
            line, _ = fence.write(
                Draft(record.type, record.version, body),
                at=record.at,
                epoch=record.epoch,
                writer=record.writer,
            )
            lines.append(line)
        anchor = files.anchor.read(files.keys)
        assert anchor is not None
        path.write_bytes(b"".join(lines))
        files.anchor.write(files.anchor_at(fence, anchor.counter + 1, anchor.epoch), files.keys)
        await journal.close()
    finally:
        await store.close()


CONTEXT_FIELDS = [
    "session",
    "instance",
    "turn",
    "audience",
    "boundary",
    "channel",
    "requester",
    "principal",
    "provenance",
]


@pytest.mark.parametrize("field", CONTEXT_FIELDS)
def test_a_context_that_lost_a_field_runs_nothing(cli: Cli, field: str) -> None:
    """A2: re-MACed by whoever has the key; no default takes its place."""
    approval = prompt(cli, "echo ran >> ran.txt")

    def change(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        if kind == "input_accepted":
            del body["context"][field]
        return body

    asyncio.run(_forged(cli.home, change))
    for done in (cli.answer(approval), cli("--json", "resume", "ops/api")):
        assert done.code in {0, 1, 3, 4, 5, 6}, done
    assert cli.ran() == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("requester", "bob"),
        ("audience", "everyone"),
        ("principal", "root"),
        ("instance", "another"),
        ("session", "ops/other"),
        ("boundary", ""),
    ],
)
def test_a_foreign_or_unknown_context_runs_nothing_for_whom_it_was_asked(
    cli: Cli, field: str, value: str
) -> None:
    approval = prompt(cli, "echo ran >> ran.txt")

    def change(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        if kind == "input_accepted":
            body["context"][field] = value
        return body

    asyncio.run(_forged(cli.home, change))
    cli.answer(approval)
    cli("--json", "resume", "ops/api")
    assert cli.ran() == 0


# --- the canary


def everything_holds_no(canary: str, *folders: Path) -> list[str]:
    return [
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and canary.encode() in path.read_bytes()
    ]


def test_no_known_secret_is_written_or_said_anywhere(cli: Cli) -> None:
    """
    S1: journals, index, quarantine, outputs, prompts, errors and replies; by message, by model, by
    arguments, by a tool's output.
    """
    cli.settings('[secrets]\nenv = ["CANARY"]\n')
    secret = cli.cwd / "secret.txt"
    secret.write_text(f"the key is {CANARY}\n" * 3)
    cli.env["CANARY"] = CANARY
    said: list[str] = []

    def heard(*words: str) -> dict[str, Any]:
        ran = cli("--json", *words)
        said.extend((ran.out, ran.err))
        return json.loads(ran.out.splitlines()[-1]) if ran.out else {}

    by_output = cli.script(
        {"call": [{"tool": "shell", "args": {"command": "cat secret.txt"}}]},
        {"say": f"it says {CANARY}"},
    )
    turn = heard("send", "ops/a", "read it", "--model", by_output, "--as", "alice")
    heard("approvals", "answer", turn["approvals"][0]["id"], "approve_once", "--as", "alice")
    by_argument = cli.script(
        {"call": [{"tool": "shell", "args": {"command": f"echo {CANARY} >> ran.txt"}}]},
        {"say": "no"},
    )
    refused = heard("send", "ops/b", "use it", "--model", by_argument, "--as", "alice")
    assert refused.get("approvals") == []
    heard("send", "ops/c", f"my key is {CANARY}", "--as", "alice")
    heard("send", "ops/c", f"shell command='echo {CANARY} >> ran.txt'", "--as", "alice")
    heard("sessions", "follow", "ops/a", "--after", "0")
    heard("sessions", "list")
    heard("approvals", "list", "--all")
    heard("doctor")
    for script in cli.cwd.glob("script-*"):
        script.unlink()
    secret.unlink()
    assert [text for text in said if CANARY in text] == []
    assert everything_holds_no(CANARY, cli.home, cli.cwd) == []
    assert cli.ran() == 0


def test_the_canary_would_be_found(tmp_path: Path) -> None:
    """The grep itself works."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_text(f"x{CANARY}y")
    assert everything_holds_no(CANARY, tmp_path) == [str(tmp_path / "deep" / "file")]
    shutil.rmtree(tmp_path / "deep")
    assert everything_holds_no(CANARY, tmp_path) == []
