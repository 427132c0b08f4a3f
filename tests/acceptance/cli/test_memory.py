"""
`holdfast memory`, and memory through real processes: killed in the middle, restored from a backup,
after a rotation of keys.
"""

import json
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import Cli
from tests.warm import WarmStart

CANARY = "the door code of the berlin office is canary-4711"
DIES_AT_RECALL = """
import os

write = os.pwrite


def write_or_die(descriptor, data, offset):
    if b'"memory_recalled"' in bytes(data):
        os.kill(os.getpid(), 9)
    return write(descriptor, data, offset)


os.pwrite = write_or_die
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, warm: WarmStart | None) -> Path:
    """A home in which alice had the agent remember one thing; every test works on a copy."""
    folder = tmp_path_factory.mktemp("template")
    cli = Cli(folder / "home", folder, warm)
    cli.settings("[memory]\nrecall_within_ms = 60000\n")
    (approval,) = cli.json("send", "notes", f"remember that {CANARY}", "--as", "alice")["approvals"]
    assert approval["display"].splitlines() == [
        "remember for alice alone (personal:alice)",
        f"| {CANARY}",
    ]
    assert cli.answer(approval).json["outcome"] == "completed"
    return cli.home


@pytest.fixture
def remembering(cli: Cli, template: Path) -> Cli:
    shutil.copytree(template, cli.home, ignore=shutil.ignore_patterns("run"))
    return cli


def kept(cli: Cli) -> dict[str, Any]:
    (item,) = cli.json("memory", "list")["memory"]
    return dict(item)


def recalled(cli: Cli, session: str) -> list[Any]:
    """The journal's record of it, as stored."""
    lines = [
        line
        for path in sorted((cli.home / "sessions" / "local" / session).glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [
        record["body"]
        for record in map(json.loads, lines)
        if record.get("type") == "memory_recalled"
    ]


def test_the_memory_commands_list_show_export_and_forget_an_item(remembering: Cli) -> None:
    cli = remembering
    item = kept(cli)
    assert (item["text"], item["audience"], item["boundary"], item["person"], item["tainted"], item["verifies"]) == (
        CANARY, "personal", "personal:alice", "alice", False, True,
    )  # fmt: skip
    assert (item["session"], item["turn"], item["kind"], item["authenticity"]) == (
        "local/notes",
        "t1",
        "message",
        "verified",
    )
    assert "local/notes, turn t1" in cli("memory", "show", item["id"]).out
    assert cli("memory", "export").lines == [item]
    assert cli.json("memory", "forget", item["id"]) == {"memory": item["id"], "forgotten": True}
    assert cli("memory", "list").out == "nothing is remembered\n"
    assert b"canary" not in (cli.home / "memory.db").read_bytes()


def test_a_turn_of_another_session_is_given_it_and_shows_it(remembering: Cli) -> None:
    cli = remembering
    cli.json("send", "other", "what is the door code?", "--as", "alice")
    ((given,),) = [body["items"] for body in recalled(cli, "other")]
    assert given["text"] == CANARY
    assert f"memory      t1: {given['memory']}" in cli("sessions", "show", "other").out


@pytest.mark.parametrize(
    "words", [("--as", "bob"), ("--as", "Alice"), ("--as", "alice", "--channel", "none")], ids=str
)
def test_another_person_can_not_recall_the_memory_of_alice(
    remembering: Cli, words: tuple[str, ...]
) -> None:
    told = remembering.json("send", "other", "recall query='what is the door code?'", *words)
    assert "canary" not in json.dumps(told)
    assert all(
        "canary" not in path.read_text()
        for path in (remembering.home / "sessions" / "local" / "other").glob("*.jsonl")
    )


def test_the_memory_commands_hide_another_persons_items(remembering: Cli) -> None:
    name = kept(remembering)["id"]
    assert remembering.json("memory", "list", "--as", "Alice") == {"memory": [], "next": None}
    refused = remembering("--json", "memory", "forget", name, "--as", "Alice")
    assert (refused.code, refused.json["error"]["code"], refused.json["error"]["message"]) == (
        6,
        "unknown",
        f"no memory {name}",
    )


def test_a_tool_can_not_forget(remembering: Cli) -> None:
    refused = remembering("--json", "memory", "forget", "m-1", env={"HOLDFAST_TOOL": "c-1"})
    assert (refused.code, refused.json["error"]["code"]) == (6, "started_by_tool")


def test_an_absent_home_remembers_nothing_and_is_not_made(cli: Cli) -> None:
    assert cli.json("memory", "list") == {"memory": [], "next": None}
    assert cli("--json", "memory", "show", "m-1").code == 6
    assert not cli.home.exists()


def test_killed_between_recall_and_commit_the_next_process_recalls_under_the_same_context(
    remembering: Cli,
) -> None:
    """kill -9 at the very write that would have made it durable."""
    cli = remembering
    (cli.cwd / "sitecustomize.py").write_text(DIES_AT_RECALL)
    assert (
        cli(
            "send",
            "other",
            "what is the door code?",
            "--as",
            "alice",
            env={"PYTHONPATH": str(cli.cwd)},
        ).code
        == -signal.SIGKILL
    )
    assert recalled(cli, "other") == []
    assert cli.json("resume")["outcome"] == "completed"
    assert [[item["text"] for item in body["items"]] for body in recalled(cli, "other")] == [
        [CANARY]
    ]
    assert cli("verify").code == 0


def test_a_forged_row_is_named_never_recalled_and_reported_by_doctor(remembering: Cli) -> None:
    cli = remembering
    name = kept(cli)["id"]
    with sqlite3.connect(cli.home / "memory.db") as db:
        ((body,),) = db.execute("SELECT body FROM items").fetchall()
        db.execute("UPDATE items SET body = ?", (body.replace(b"4711", b"6666"),))
    db.close()
    forged = kept(cli)
    assert forged == {**dict.fromkeys(forged), "id": name, "verifies": False}
    doctor = cli("--json", "doctor")
    assert (
        doctor.code,
        [each["state"] for each in doctor.json["checks"] if each["check"] == "memory"],
    ) == (1, ["problem"])
    cli.json("send", "other", "what is the door code?", "--as", "alice")
    assert recalled(cli, "other") == [
        {"turn": "t1", "degraded": "1 of what was found does not verify"}
    ]
    assert cli("memory", "forget", name).code == 0
    assert cli("memory", "list").out == "nothing is remembered\n"


def test_a_broken_memory_stops_no_turn_and_is_never_replaced(remembering: Cli) -> None:
    cli, damage = remembering, b"no database at all, but long enough to look like one" * 40
    (cli.home / "memory.db").write_bytes(damage)
    assert cli.json("send", "other", "what time is it", "--as", "alice")["outcome"] == "completed"
    assert (cli.home / "memory.db").read_bytes() == damage
    assert [
        body["degraded"].startswith("memory.db can't be read") for body in recalled(cli, "other")
    ] == [True]
    assert cli("memory", "list").code == 5


def test_memory_outlives_a_rotation_of_keys_a_backup_and_the_session_it_came_from(
    remembering: Cli, tmp_path: Path
) -> None:
    cli = remembering
    item = kept(cli)
    assert cli("keys", "rotate").code == 0
    assert cli("sessions", "delete", "notes", "--yes").code == 0
    assert kept(cli) == item
    assert cli("backup", str(tmp_path / "copy")).code == 0
    restored = cli.on(tmp_path / "restored")
    assert restored("restore", str(tmp_path / "copy")).code == 0
    assert kept(restored) == item
    assert (tmp_path / "restored" / "memory.db").stat().st_mode & 0o777 == 0o600
    restored.json("send", "other", "what is the door code?", "--as", "alice")
    assert [[each["text"] for each in body["items"]] for body in recalled(restored, "other")] == [
        [CANARY]
    ]
