"""
Lists and looks: approvals, grants, sessions. They create nothing where there is nothing, and say in
full what there is.
"""

import json
import os
import signal
from datetime import datetime
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import APPROVAL_FIELDS, SESSION_FIELDS, Cli

EMPTY = [
    (("approvals", "list"), {"approvals": []}),
    (("approvals", "list", "--all"), {"approvals": []}),
    (("grants", "list"), {"grants": []}),
    (("sessions", "list"), {"sessions": []}),
    (("jobs", "list"), {"jobs": []}),
    (("reminders", "list"), {"reminders": []}),
    (("memory", "list"), {"memory": [], "next": None}),
    (("tokens", "list"), {"tokens": []}),
    (("mcp", "list"), {"servers": []}),
    (("channels", "list"), {"channels": []}),
    (("nodes", "list"), {"nodes": []}),
    (("verify",), {"sessions": []}),
]


@pytest.mark.parametrize("home", ["absent", "empty", "half born"])
@pytest.mark.parametrize(("words", "expected"), EMPTY)
def test_a_list_of_nothing_is_empty_and_makes_nothing(
    cli: Cli, words: tuple[str, ...], expected: object, home: str
) -> None:
    if home != "absent":
        cli.home.mkdir(mode=0o700)
    if home == "half born":
        (cli.home / "keys").mkdir(mode=0o700)
        (cli.home / "keys" / "1.key").write_bytes(bytes(32))
        (cli.home / "keys" / "1.key").chmod(0o600)
    before = sorted(cli.home.rglob("*"))
    ran = cli("--json", *words)
    assert (ran.code, ran.json, ran.err) == (0, expected, "")
    assert (cli.home.exists(), sorted(cli.home.rglob("*"))) == (home != "absent", before)


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "show", "ops/api"),
        ("sessions", "follow", "ops/api"),
        ("sessions", "cancel", "ops/api"),
        ("sessions", "delete", "ops/api"),
        ("resume", "ops/api"),
        ("verify", "ops/api"),
        ("approvals", "show", "a-unknown"),
        ("grants", "revoke", "g-unknown"),
    ],
)
@pytest.mark.parametrize("home", ["absent", "there"])
def test_a_missing_thing_is_refused_by_name(cli: Cli, words: tuple[str, ...], home: str) -> None:
    if home == "there":
        cli.json("send", "notes", "hello")
    ran = cli("--json", *words)
    assert (ran.code, ran.json["error"]["code"]) == (6, "unknown")
    assert words[-1] in ran.json["error"]["message"]
    assert cli.home.exists() == (home == "there")
    if home == "there":
        for_people = cli(*words)
        assert (for_people.code, for_people.out) == (6, "")
        assert for_people.err.startswith("error: ")


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "show"),
        ("sessions", "follow"),
        ("sessions", "cancel"),
        ("sessions", "delete"),
        ("resume",),
        ("verify",),
    ],
)
def test_a_name_that_can_be_no_session_is_malformed(cli: Cli, words: tuple[str, ...]) -> None:
    ran = cli("--json", *words, "../../etc")
    assert (ran.code, ran.json["error"]["code"]) == (2, "malformed")


def test_the_approvals_commands_show_every_field_of_a_waiting_prompt(cli: Cli) -> None:
    approval = cli.ask()
    assert cli.json("approvals", "list") == {"approvals": [approval]}
    assert cli.json("approvals", "show", approval["id"]) == approval
    assert cli.json("approvals", "list", "--for", "bob") == {"approvals": []}
    shown = cli("approvals", "show", approval["id"])
    assert approval["display"] in shown.out
    assert approval["digest"] in shown.out
    assert approval["id"] in cli("approvals", "list").out
    cli.answer(approval)
    assert cli.json("approvals", "list") == {"approvals": []}
    (past,) = cli.json("approvals", "list", "--all")["approvals"]
    assert set(past) >= APPROVAL_FIELDS
    assert (past["id"], past["state"], past["answered_by"], past["option"]) == (
        approval["id"],
        "answered",
        "alice",
        "approve_once",
    )


def test_the_index_may_be_deleted_or_replaced_at_any_time(cli: Cli) -> None:
    approval = cli.ask()
    (cli.home / "index.db").unlink()
    assert cli.json("approvals", "list") == {"approvals": [approval]}
    (cli.home / "index.db").write_bytes(b"not a database at all" * 100)
    assert cli.json("approvals", "list") == {"approvals": [approval]}
    (cli.home / "index.db").unlink()
    assert cli.answer(approval).code == 0


def test_a_grant_lets_the_equal_call_run_until_it_is_revoked(cli: Cli) -> None:
    approval = cli.ask("echo ran")
    assert cli.answer(approval, "approve_session").code == 0
    (grant,) = cli.json("grants", "list")["grants"]
    assert set(grant) >= {
        "id",
        "tool",
        "arguments",
        "scope",
        "requester",
        "boundary",
        "session",
        "granted_at",
        "approval",
    }
    assert (
        grant["tool"],
        grant["scope"],
        grant["requester"],
        grant["session"],
        grant["approval"],
    ) == (
        "shell",
        "session",
        "alice",
        "ops/api",
        approval["id"],
    )
    assert grant["id"] in cli("grants", "list").out
    assert cli.json("send", "ops/api", "run: echo ran", "--as", "alice")["outcome"] == "completed"
    assert cli.json("send", "ops/api", "run: echo ran", "--as", "bob")["outcome"] == "waiting"
    stranger = cli("--json", "grants", "revoke", grant["id"], "--as", "bob")
    assert (stranger.code, stranger.json["error"]["code"]) == (6, "no_authority")
    assert cli("--json", "grants", "revoke", grant["id"], "--as", "alice").code == 0
    assert cli.json("grants", "list") == {"grants": []}
    assert cli.json("send", "ops/api", "run: echo ran", "--as", "alice")["outcome"] == "waiting"
    gone = cli("--json", "grants", "revoke", grant["id"])
    assert (gone.code, gone.json["error"]["code"]) == (6, "unknown")


def test_a_grant_says_who_gave_it_and_until_when_and_ends_with_the_rule_that_allowed_it(
    cli: Cli,
) -> None:
    """
    A5 on the command line: its requester, its giver and the owner see it; the giver may take it
    back.
    """
    rule = '[policy.personal]\nwrite_file = {{ ask = ["bob"], requester_may_answer = false{} }}\n[approvals]\nremember_for = "2d"\n'
    asking = ("send", "ops/api", "write_file path=notes.txt content=hello", "--as", "alice")
    cli.settings(rule.format(', remember = "any"'))
    (approval,) = cli.json(*asking)["approvals"]
    assert approval["options"] == [
        "approve_once",
        "approve_session",
        "approve_everywhere",
        "deny",
    ]
    assert (
        cli("--json", "approvals", "answer", approval["id"], "approve_session", "--as", "bob").code
        == 0
    )
    (grant,) = cli.json("grants", "list")["grants"]
    assert (grant["requester"], grant["granted_by"], grant["counts"]) == ("alice", "bob", True)
    assert grant["covers"].startswith(
        "write_file runs without a prompt whenever alice asks for exactly this, on "
        f"{cli.cwd}/notes.txt, in the conversation ops/api:\n| path: "
    )
    assert grant["covers"].endswith('\n| content: "hello"')
    assert '\n            | content: "hello"' in cli("grants", "list").out
    assert timestamp(grant["expires_at"]) - timestamp(grant["granted_at"]) <= 2 * 24 * 3600
    assert "bob" in cli("grants", "list").out
    assert cli.json(*asking)["outcome"] == "completed"
    cli.settings(rule.format(""))
    (waiting,) = cli.json(*asking)["approvals"]
    assert waiting["options"] == ["approve_once", "deny"]
    (grant,) = cli.json("grants", "list")["grants"]
    assert (grant["counts"], grant["covers"][:22]) == (False, "nothing at present, be")
    assert cli("--json", "grants", "revoke", grant["id"], "--as", "carol").code == 6
    assert cli("--json", "grants", "revoke", grant["id"], "--as", "bob").code == 0
    assert cli.json("grants", "list") == {"grants": []}


def timestamp(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def test_the_owner_may_revoke_anybodys_grant(cli: Cli) -> None:
    cli.answer(cli.ask("echo ran"), "approve_everywhere")
    (grant,) = cli.json("grants", "list")["grants"]
    assert cli("grants", "revoke", grant["id"]).code == 0


def test_a_session_is_shown_with_its_files(cli: Cli) -> None:
    cli.ask()
    shown = cli.json("sessions", "show", "ops/api")
    assert set(shown) >= SESSION_FIELDS
    assert (
        shown["session"],
        shown["phase"],
        shown["sealed"],
        shown["owes"],
        shown["turns"],
        shown["quarantine"],
    ) == (
        "ops/api",
        "parked",
        None,
        [],
        1,
        [],
    )
    assert [Path(each).is_file() for each in shown["journal"]] == [True]
    assert "parked" in cli("sessions", "show", "ops/api").out
    (line,) = cli.json("sessions", "list")["sessions"]
    assert {
        name: line[name]
        for name in ("session", "instance", "phase", "seq", "sealed", "turns", "owes")
    } == {
        name: shown[name]
        for name in ("session", "instance", "phase", "seq", "sealed", "turns", "owes")
    }


def test_records_are_followed_as_they_are_stored(cli: Cli) -> None:
    cli.json("send", "notes", "hello")
    stored = [
        json.loads(line)
        for line in Path(cli.json("sessions", "show", "notes")["journal"][0])
        .read_text()
        .splitlines()
    ]
    followed = cli("--json", "sessions", "follow", "notes")
    assert (followed.code, followed.lines) == (0, stored[1:])  # without the segment's own header
    assert (
        cli("--json", "sessions", "follow", "notes", "--after", str(stored[2]["seq"])).lines
        == stored[3:]
    )
    assert cli("sessions", "follow", "notes", "--raw").lines == followed.lines


def test_a_follower_ends_with_the_turn_in_any_process(cli: Cli) -> None:
    approval = cli.ask()
    follower = cli.start("--json", "sessions", "follow", "ops/api")
    assert follower.stdout is not None
    kinds = []
    while "turn_parked" not in kinds:
        kinds.append(json.loads(follower.stdout.readline())["type"])
    assert cli.answer(approval).code == 0
    rest, _ = follower.communicate(timeout=60)
    kinds += [json.loads(line)["type"] for line in rest.splitlines()]
    assert follower.returncode == 0
    assert (kinds[-1], kinds.count("tool_started")) == ("turn_ended", 1)


def test_a_cursor_at_the_head_waits_for_the_next_turn(cli: Cli) -> None:
    head = cli.json("send", "notes", "hello")["seq"]
    follower = cli.start("--json", "sessions", "follow", "notes", "--after", str(head))
    assert cli.json("send", "notes", "what time is it?")["turn"] == "t2"
    out, _ = follower.communicate(timeout=60)
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["seq"] for record in records] == list(range(head + 1, head + 1 + len(records)))
    assert (records[0]["type"], records[-1]["type"]) == ("input_accepted", "turn_ended")


def test_a_follower_that_is_stopped_speaks_of_nothing_that_it_took_in(cli: Cli) -> None:
    cli.json("send", "ops/api", "what time is it?")
    follower = cli.start("--json", "sessions", "follow", "ops/api", "--forever")
    assert follower.stdout is not None
    follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    assert (follower.communicate(timeout=60)[1], follower.returncode) == ("stopped\n", 130)


@pytest.mark.parametrize("after", ["-1", "x"])
def test_a_cursor_is_a_number(cli: Cli, after: str) -> None:
    ran = cli("--json", "sessions", "follow", "notes", "--after", after)
    assert (ran.code, ran.json["error"]["code"]) == (2, "usage")


def test_a_parked_turn_is_cancelled_for_good(cli: Cli) -> None:
    approval = cli.ask()
    stranger = cli("--json", "sessions", "cancel", "ops/api", "--as", "bob")
    assert stranger.code == 0 or stranger.json["error"]["code"] == "no_authority"
    assert cli.json("sessions", "show", "ops/api")["phase"] == "parked"
    cancelled = cli.json("sessions", "cancel", "ops/api", "--as", "alice")
    assert [(each["turn"], each["outcome"]) for each in cancelled["turns"]] == [("t1", "cancelled")]
    late = cli.answer(approval)
    assert (late.code, late.json["reason"]) == (6, "cancelled")
    assert cli.ran() == 0
    assert cli.json("sessions", "show", "ops/api")["phase"] == "idle"
    assert cli.json("sessions", "cancel", "ops/api")["turns"] == []


def test_a_turn_is_cancelled_while_another_process_drives_it(cli: Cli) -> None:
    model = cli.script({"sleep": 60, "say": "too late"})
    cli.json("send", "notes", "go", "--model", model, "--no-wait")
    driving = cli.start("--json", "resume", "notes")
    cli.wait_for_record("notes", "model_call_started")
    assert cli("sessions", "cancel", "notes", "--turn", "t1").code == 0
    out, _ = driving.communicate(timeout=60)
    assert (driving.returncode, json.loads(out)["outcome"]) == (1, "cancelled")


def test_a_turn_whose_driver_was_killed_is_cancelled_too(cli: Cli) -> None:
    model = cli.script({"sleep": 60, "say": "too late"})
    cli.json("send", "notes", "go", "--model", model, "--no-wait")
    driving = cli.start("resume", "notes")
    cli.wait_for_record("notes", "model_call_started")
    driving.kill()
    driving.wait()
    cancelled = cli.json("sessions", "cancel", "notes")
    assert [(each["turn"], each["outcome"]) for each in cancelled["turns"]] == [("t1", "cancelled")]
    assert (cli.json("sessions", "show", "notes")["phase"], cli("--json", "resume").out) == (
        "idle",
        "",
    )


def test_a_deleted_session_is_gone_and_its_name_is_free(cli: Cli) -> None:
    cli.ask()
    assert cli.json("sessions", "delete", "ops/api", "--yes") == {
        "session": "ops/api",
        "deleted": True,
    }
    assert cli.json("sessions", "list") == {"sessions": []}
    assert cli.json("approvals", "list") == {"approvals": []}
    assert cli("--json", "sessions", "show", "ops/api").code == 6
    assert cli.json("send", "ops/api", "hello")["turn"] == "t1"


@pytest.mark.parametrize(
    ("database", "words", "code"),
    [
        ("index.db", ("approvals", "list"), 0),
        ("search.db", ("sessions", "search", "hello"), 0),
        ("memory.db", ("memory", "list"), 5),
    ],
)
def test_a_fifo_beside_a_database_keeps_nobody_waiting(
    cli: Cli, database: str, words: tuple[str, ...], code: int
) -> None:
    """SQLite would wait in `open` for ever. A cache is put right; for memory a person is told."""
    asked = cli.json("send", "ops/api", "remember that hello means hello", "--as", "alice")
    cli.json("approvals", "answer", asked["approvals"][0]["id"], "approve_once", "--as", "alice")
    cli.json("sessions", "search", "hello")
    journal = cli.home / f"{database}-journal"
    journal.unlink(missing_ok=True)
    os.mkfifo(journal)
    ran = cli("--json", *words)
    assert ran.code == code
    assert (journal.name in ran.out) == (code != 0)
    assert cli("--json", "send", "ops/api", "hello", "--as", "alice").code == 0
    assert cli("--json", "doctor").code in (0, 1)


def test_a_conversation_is_listed_by_its_title_and_renamed(cli: Cli) -> None:
    """The first message gives the title. A person gives another one, by any unique prefix."""
    cli.json("send", "ops/api", "what time is it?\nin Rome")
    (line,) = cli.json("sessions", "list")["sessions"]
    assert line["title"] == "what time is it?"
    assert "what time is it?" in cli("sessions", "list").out
    renamed = cli("sessions", "rename", "ops/a", "  Rome   time ")
    assert (renamed.code, renamed.out) == (0, "ops/api: Rome time\n")
    assert cli.json("sessions", "show", "ops/api")["title"] == "Rome time"
    assert cli.json("sessions", "rename", "ops/api", "")["title"] == "what time is it?"
    refused = cli("--json", "sessions", "rename", "ops/api", "x" * 81)
    assert (refused.code, refused.json["error"]["code"]) == (6, "malformed")
    refused = cli("--json", "sessions", "rename", "ops/api", "mine", "--as", "mallory")
    assert (refused.code, refused.json["error"]["code"]) == (6, "no_authority")
