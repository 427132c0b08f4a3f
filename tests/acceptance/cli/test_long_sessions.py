"""
Long sessions from the command line: compact, search, fork, export, import, unseal, backup, restore,
prune.
"""

import json
import os
import time
from pathlib import Path

import pytest

from holdfast.cli.commands.sessions.import_ import _bytes
from holdfast.errors import Unusable
from tests.acceptance.cli.conftest import Cli
from tests.acceptance.runtime.test_import import FILE


@pytest.fixture
def talked(cli: Cli) -> Cli:
    for number in range(6):
        cli.json("send", "ops/api", f"hello number {number} " + "word " * 200)
    return cli


def test_compact_says_what_it_did_and_then_that_there_is_nothing_to_do(talked: Cli) -> None:
    report = talked.json("sessions", "compact", "ops/api")
    assert (report["result"], report["turns"]) == ("compacted", 2)
    again = talked("sessions", "compact", "ops/api")
    assert again.code == 0
    assert again.out.startswith("nothing to do")
    assert talked("sessions", "compact", "ops/none").code == 6


def test_search_finds_words_and_pages(talked: Cli) -> None:
    found = talked.json("sessions", "search", "hello number", "--limit", "4")
    assert len(found["hits"]) == 4
    rest = talked.json("sessions", "search", "hello number", "--after", found["next"])
    assert rest["next"] is None
    assert talked.json("sessions", "search", "hello", "--as", "stranger")["hits"] == []
    assert talked("sessions", "search", "nowhere").out == "nothing was found\n"


def test_list_takes_pages(cli: Cli) -> None:
    for name in ("a", "b", "c"):
        cli.json("send", name, "hello")
    assert [
        each["session"] for each in cli.json("sessions", "list", "--limit", "2")["sessions"]
    ] == ["local/a", "local/b"]
    assert [
        each["session"]
        for each in cli.json("sessions", "list", "--limit", "2", "--after", "b")["sessions"]
    ] == ["local/c"]


def test_an_export_is_imported_again_as_text_that_allows_nothing(
    talked: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "api.jsonl"
    talked.json("sessions", "export", "ops/api", "-o", str(file))
    report = talked.json("sessions", "import", str(file), "ops/copy")
    assert (report["kind"], report["turns"], report["skipped"]) == ("holdfast", 6, [])
    shown = talked.json("sessions", "show", "ops/copy")
    assert (shown["turns"], shown["owes"]) == (6, [])
    assert talked("sessions", "import", str(file), "ops/copy").code == 6


def test_another_programs_file_is_imported_with_what_was_wrong_said(
    cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "2026-01-01 Notes.jsonl"
    file.write_bytes(FILE + b"{broken\n")
    ran = cli("sessions", "import", str(file))
    assert ran.code == 0
    assert "import/2026-01-01-notes has 4 turns" in ran.out
    assert "line 11: no JSON object" in ran.err
    assert cli("sessions", "import", str(tmp_path / "none.jsonl")).code == 2


def test_a_file_to_import_may_come_from_stdin_and_never_from_what_could_wait_for_ever(
    cli: Cli, tmp_path: Path
) -> None:
    """A FIFO that nobody writes to has no end, and its bytes would be another's the next time."""
    os.mkfifo(tmp_path / "fifo")
    ran = cli("--json", "sessions", "import", str(tmp_path / "fifo"), "notes/old")
    assert (ran.code, ran.json["error"]["code"], cli.home.exists()) == (2, "no_file", False)
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(Unusable):
            _bytes(path, 1000)
    took = cli.json("sessions", "import", "-", stdin=FILE.decode())
    assert (took["session"], took["turns"]) == ("import/stdin", 4)


def test_backup_and_restore_with_nothing_owed(cli: Cli, tmp_path: Path) -> None:
    asked = cli.json("send", "ops/api", "run: echo hello", "--as", "alice")
    copy, place = tmp_path / "copy", tmp_path / "again"
    made = cli.json("backup", str(copy))
    assert (made["sessions"], made["broken"]) == (1, [])
    assert cli("backup", str(copy)).code == 6
    assert cli("backup", str(cli.home / "inside")).code == 6
    assert cli("restore", str(copy)).code == 6  # the home is there
    other = {"HOLDFAST_HOME": str(place)}
    assert cli("--json", "restore", str(copy), env=other).json["sessions"] == ["ops/api"]
    assert cli("--json", "approvals", "list", env=other).json == {"approvals": []}
    late = cli(
        "--json",
        "approvals",
        "answer",
        asked["approvals"][0]["id"],
        "approve_once",
        "--as",
        "alice",
        env=other,
    )
    assert late.code == 6
    assert cli("verify", env=other).code == 0
    assert (
        cli("restore", str(tmp_path / "nothing"), env={"HOLDFAST_HOME": str(tmp_path / "x")}).code
        == 2
    )


def test_a_damaged_session_goes_on_by_following_what_the_program_says(talked: Cli) -> None:
    [segment] = [Path(each) for each in talked.json("sessions", "show", "ops/api")["journal"]]
    segment.write_bytes(segment.read_bytes().replace(b"hello number 5", b"HELLO number 5"))
    refused = talked("send", "ops/api", "go on")
    assert refused.code == 4
    assert "sessions unseal" in refused.err
    assert talked("verify", "ops/api").code == 4
    report = talked.json("sessions", "unseal", "ops/api", "--reason", "an editor saved over it")
    assert (report["sealed"], report["owes"]) == (None, [])
    assert talked("send", "ops/api", "hello again").code == 0
    assert talked("verify", "ops/api").code == 0


def test_prune_follows_retention_and_keeps_what_waits(cli: Cli) -> None:
    cli.json("send", "old", "hello")
    cli.json("send", "waits", "run: echo hello", "--as", "alice")
    assert cli.json("sessions", "prune") == {
        "sessions": [],
        "outputs": 0,
        "quarantine": 0,
        "dry_run": False,
    }
    (cli.home / "holdfast.toml").write_text('[retention]\nsessions = "1s"\nquarantine = "1s"\n')
    quarantine = cli.home / "quarantine" / "local"
    for path in (quarantine / "old/000001-reply.json", quarantine / "waits/000001-torn_tail.json"):
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_text("{}")
        os.utime(path, (1, 1))
    deadline = time.monotonic() + 20
    while (
        not (told := cli.json("sessions", "prune", "--dry-run"))["sessions"]
        and time.monotonic() < deadline
    ):
        continue
    assert told == {"sessions": ["local/old"], "outputs": 0, "quarantine": 1, "dry_run": True}
    assert cli.json("sessions", "prune")["sessions"] == ["local/old"]
    assert [each["session"] for each in cli.json("sessions", "list")["sessions"]] == ["local/waits"]
    assert [path.name for path in sorted(quarantine.rglob("*.json"))] == ["000001-torn_tail.json"]
    assert json.loads(cli("--json", "approvals", "list").out)["approvals"]
