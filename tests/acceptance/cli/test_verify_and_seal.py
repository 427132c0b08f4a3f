"""`verify`, and what every command says of a session whose history was changed."""

import json
from pathlib import Path

from tests.acceptance.cli.conftest import Cli, everything_below

VERDICT_FIELDS = {"session", "verdict", "records", "at_seq", "segment", "byte", "sealed", "detail"}


def test_verify_reports_that_whole_journals_hold_and_changes_nothing(cli: Cli) -> None:
    cli.json("send", "a/one", "hello")
    cli.json("send", "a/two", "hello")
    before = everything_below(cli.home)
    ran = cli("--json", "verify")
    assert ran.code == 0
    assert [
        (each["session"], each["verdict"], each["sealed"], set(each))
        for each in ran.json["sessions"]
    ] == [
        ("a/one", "holds", False, VERDICT_FIELDS),
        ("a/two", "holds", False, VERDICT_FIELDS),
    ]
    assert [each["session"] for each in cli.json("verify", "a/two")["sessions"]] == ["a/two"]
    assert "holds" in cli("verify").out
    assert everything_below(cli.home) == before


def test_a_changed_byte_is_found_and_named(cli: Cli) -> None:
    cli.json("send", "ops/api", "hello")
    cli.json("send", "ops/other", "hello")
    cli.break_journal()
    before = everything_below(cli.home)
    ran = cli("--json", "verify")
    verdicts = {each["session"]: each for each in ran.json["sessions"]}
    assert (ran.code, verdicts["ops/api"]["verdict"], verdicts["ops/other"]["verdict"]) == (
        4,
        "broken",
        "holds",
    )
    assert verdicts["ops/api"]["segment"].endswith(".jsonl")
    assert verdicts["ops/api"]["byte"] > 0
    assert everything_below(cli.home) == before
    assert cli("--json", "verify", "ops/other").code == 0


def test_history_that_is_missing_is_found(cli: Cli) -> None:
    cli.json("send", "ops/api", "hello")
    path = Path(cli.json("sessions", "show", "ops/api")["journal"][0])
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    ran = cli("--json", "verify", "ops/api")
    assert (ran.code, ran.json["sessions"][0]["verdict"]) == (4, "cut_short")


def test_a_torn_tail_is_not_damage(cli: Cli) -> None:
    cli.json("send", "ops/api", "hello")
    path = Path(cli.json("sessions", "show", "ops/api")["journal"][0])
    with path.open("ab") as file:
        file.write(b'{"seq":99,"at":')
    ran = cli("--json", "verify", "ops/api")
    assert (ran.code, ran.json["sessions"][0]["verdict"]) == (0, "torn_tail")
    assert cli.json("send", "ops/api", "hello")["outcome"] == "completed"


def test_a_home_whose_own_journal_was_changed_exits_4(cli: Cli) -> None:
    cli.json("send", "ops/api", "hello")
    (path,) = (cli.home / "home").glob("*.jsonl")
    whole = path.read_bytes()
    data = bytearray(whole)
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    ran = cli("--json", "verify")
    assert (ran.code, ran.json["home"]["verdict"]) == (4, "broken")
    for _ in range(2):  # found, and from the mark that it left
        refused = cli("--json", "send", "ops/new", "hello")
        assert refused.code == 4
        # No command takes the home's own seal away, so none is named that would.
        assert (
            "home/home.sealed" in refused.json["error"]["hint"],
            "unseal" in refused.json["error"]["hint"],
        ) == (True, False)
    path.write_bytes(whole)
    (cli.home / "home" / "home.sealed").unlink()
    assert cli.json("send", "ops/new", "hello")["outcome"] == "completed"


def test_a_sealed_session_can_be_looked_at_and_nothing_else(cli: Cli) -> None:
    approval = cli.ask()
    cli.break_journal()
    sent = cli("--json", "send", "ops/api", "hello", "--as", "alice")
    assert (sent.code, sent.json["session"], sent.json["outcome"]) == (4, "ops/api", "sealed")
    assert sent.json["error"]["hint"]
    answered = cli.answer(approval)
    assert (answered.code, answered.json["session"], answered.json["outcome"]) == (
        4,
        "ops/api",
        "sealed",
    )
    assert (answered.json["result"], answered.json["error"]["code"], cli.ran()) == (
        "failed",
        answered.json["reason"],
        0,
    )
    resumed = cli("--json", "resume", "ops/api")
    assert (resumed.code, resumed.json["outcome"]) == (4, "sealed")
    shown = cli("--json", "sessions", "show", "ops/api")
    assert (shown.code, shown.json["phase"], shown.json["sealed"]["code"], shown.json["owes"]) == (
        0,
        "sealed",
        "broken",
        [],
    )
    (line,) = cli.json("sessions", "list")["sessions"]
    assert (line["phase"], line["sealed"]["code"]) == ("sealed", "broken")
    assert cli.json("approvals", "list") == {"approvals": []}
    assert cli("sessions", "cancel", "ops/api").code == 4
    followed = cli("--json", "sessions", "follow", "ops/api")
    assert (followed.code, followed.lines[-1]["error"]["code"]) == (4, "sealed")
    verdict = cli("--json", "verify", "ops/api")
    assert (verdict.code, verdict.json["sessions"][0]["sealed"]) == (4, True)
    assert cli("--json", "resume").code == 0  # nothing of it is owed


def test_putting_the_bytes_back_does_not_lift_the_seal(cli: Cli) -> None:
    cli.json("send", "ops/api", "hello")
    path = Path(cli.json("sessions", "show", "ops/api")["journal"][0])
    before = path.read_bytes()
    cli.break_journal()
    assert cli("send", "ops/api", "hello").code == 4
    path.write_bytes(before)
    assert cli("send", "ops/api", "hello").code == 4
    ran = cli("--json", "verify")
    assert (ran.code, ran.json["sessions"][0]["verdict"], ran.json["sessions"][0]["sealed"]) == (
        4,
        "holds",
        True,
    )


def test_a_session_changed_while_its_model_thinks_is_not_acted_on(cli: Cli) -> None:
    asked, words = cli.hold_the_model()
    cli.json("send", "notes", "hello")
    sending = cli.start("--json", "--app", "held:held", "send", "notes", "go", "--agent", "held")
    asked.hear()
    path = next((cli.home / "sessions").rglob("*.jsonl"))
    data = bytearray(path.read_bytes())
    data[data.index(b'"text":"hello') + 9] ^= 1
    path.write_bytes(data)
    words.say("call now")
    out, _ = sending.communicate(timeout=60)
    turn = json.loads(out)
    assert (sending.returncode, turn["outcome"], turn["session"]) == (4, "sealed", "local/notes")
    assert turn["error"]["code"] in {"takeover", "broken", "sealed"}


def test_no_key_means_no_writing_and_no_new_key(cli: Cli) -> None:
    cli.json("send", "ops/api", "hello")
    (cli.home / "keys" / "1.key").unlink()
    sent = cli("--json", "send", "ops/api", "hello")
    assert (sent.code, sent.json["error"]["code"]) == (6, "no_key")
    verdict = cli("--json", "verify")
    assert (verdict.code, verdict.json["sessions"][0]["verdict"]) == (5, "unreadable")
    assert list((cli.home / "keys").iterdir()) == []
