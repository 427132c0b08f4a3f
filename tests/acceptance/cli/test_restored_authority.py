"""
`holdfast restore` gives nobody back what was taken from them after the backup was made: tokens and
grants are dropped, listed and journalled.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.files import FileStore
from holdfast.cli.commands.demo.pseudo_terminal import PseudoTerminal
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.session.home.events import TimeNoted
from holdfast.testing import ManualClock
from tests.acceptance.cli.conftest import Cli


@pytest.fixture
def backed_up(cli: Cli, tmp_path: Path) -> Path:
    """A home with two tokens and a grant, backed up; then one token and the grant are revoked."""
    cli.json("tokens", "add", "laptop", "--as", "alice", "--scopes", "read,approve")
    cli.json("tokens", "add", "phone", "--as", "alice", "--scopes", "read", "--expires", "30d")
    asked = cli.json("send", "ops/api", "run: echo hello", "--as", "alice")
    [prompt] = asked["approvals"]
    option = next(
        each for each in prompt["options"] if each.startswith("approve_") and each != "approve_once"
    )
    cli.json("approvals", "answer", prompt["id"], option, "--as", "alice")
    [grant] = cli.json("grants", "list")["grants"]
    cli.json("backup", str(tmp_path / "copy"))
    assert cli("tokens", "revoke", "laptop").code == 0
    assert cli("grants", "revoke", grant["id"], "--as", "alice").code == 0
    return tmp_path / "copy"


def dropped_in_journal(home: Path) -> list[tuple[str, str]]:
    found = []
    for segment in sorted((home / "home").rglob("*.jsonl")):
        for line in segment.read_text().splitlines():
            record = json.loads(line)
            if (
                record["type"] in ("token_revoked", "grant_revoked")
                and record["body"].get("reason") == "restore"
            ):
                found.append(
                    (record["type"], record["body"].get("name") or record["body"]["grant"])
                )
    return found


def test_restore_drops_every_token_and_grant_lists_them_and_journals_that(
    cli: Cli, backed_up: Path, tmp_path: Path
) -> None:
    place = tmp_path / "again"
    other = {"HOLDFAST_HOME": str(place)}
    told = cli("--json", "restore", str(backed_up), env=other).json["dropped"]
    assert [(each["name"], each["person"]) for each in told["tokens"]] == [
        ("laptop", "alice"),
        ("phone", "alice"),
    ]
    assert [(each["tool"], each["requester"]) for each in told["grants"]] == [("shell", "alice")]
    assert cli("--json", "tokens", "list", env=other).json == {"tokens": []}
    assert cli("--json", "grants", "list", env=other).json == {"grants": []}
    grant = told["grants"][0]["grant"]
    assert dropped_in_journal(place) == [
        ("token_revoked", "laptop"),
        ("token_revoked", "phone"),
        ("grant_revoked", grant),
    ]
    assert cli("verify", env=other).code == 0
    again = cli("--json", "send", "ops/api", "run: echo hello", "--as", "alice", env=other).json
    assert again["outcome"] == "waiting"


def test_restore_says_in_words_what_it_dropped(cli: Cli, backed_up: Path, tmp_path: Path) -> None:
    said = cli("restore", str(backed_up), env={"HOLDFAST_HOME": str(tmp_path / "again")})
    assert said.code == 0
    assert "dropped: token laptop of alice (read, approve)" in said.out
    assert "dropped: token phone of alice (read)" in said.out
    assert "dropped: grant g-" in said.out


def test_keep_asks_for_each_on_a_terminal_and_keeps_what_a_person_says(
    cli: Cli, backed_up: Path, tmp_path: Path
) -> None:
    place = tmp_path / "again"
    command = [
        sys.executable,
        "-P",
        "-m",
        "holdfast",
        "--home",
        str(place),
        "restore",
        str(backed_up),
        "--keep",
    ]
    with PseudoTerminal(command, cwd=str(tmp_path)) as terminal:
        terminal.wait_until_seen("Keep the token laptop of alice (read, approve; personal)?")
        terminal.type("n\n")
        terminal.wait_until_seen("Keep the token phone of alice")
        terminal.type("y\n")
        terminal.wait_until_seen("Keep the grant g-")
        terminal.type("\n")
        terminal.wait_until_seen("dropped: grant g-")
    other = {"HOLDFAST_HOME": str(place)}
    assert [each["name"] for each in cli("--json", "tokens", "list", env=other).json["tokens"]] == [
        "phone"
    ]
    assert cli("--json", "grants", "list", env=other).json == {"grants": []}


def test_keep_without_a_terminal_restores_nothing_and_names_the_way_out(
    cli: Cli, backed_up: Path, tmp_path: Path
) -> None:
    place = tmp_path / "again"
    said = cli("restore", str(backed_up), "--keep", env={"HOLDFAST_HOME": str(place)})
    assert said.code == 2
    assert "terminal" in said.err
    assert "restore without --keep" in said.err
    assert not place.exists()


def test_a_backup_is_not_a_home_of_its_own(cli: Cli, backed_up: Path) -> None:
    """A person who names it with --home would have every token back that was revoked since."""
    other = {"HOLDFAST_HOME": str(backed_up)}
    for words in (
        ("tokens", "list"),
        ("grants", "list"),
        ("send", "ops/api", "hello"),
        ("approvals", "list"),
        ("resume",),
    ):
        said = cli("--json", *words, env=other)
        assert (said.code, said.json["error"]["code"]) == (6, "is_backup"), words
    assert cli("verify", env=other).code == 0


def test_doctor_names_a_journal_that_is_ahead_of_the_clock_and_the_way_out(cli: Cli) -> None:
    """A home whose last record was made by a clock that was forty days ahead."""
    cli.json("tokens", "add", "laptop", "--as", "alice", "--scopes", "read", "--expires", "30d")

    async def from_the_future() -> None:
        clock = ManualClock(now_ms=SystemClock().now_ms() + 40 * 86_400_000)
        store = await FileStore.open_home(cli.home, clock=clock)
        home = HomeLedger(store)
        await home.append(TimeNoted(clock=clock.now_ms()))
        await home.close()
        await store.close()

    asyncio.run(from_the_future())
    said = cli("doctor")
    assert said.code == 1
    assert "the journal is ahead" in said.out
    assert "holdfast doctor --accept-clock" in said.out
    assert cli.json("tokens", "list")["tokens"][0]["expired"] is True
    told = cli.json("doctor", "--accept-clock")
    assert told["accepted"] is True
    assert [each["name"] for each in told["dropped"]["tokens"]] == ["laptop"]
    assert cli("doctor").code == 0
    assert cli.json("doctor", "--accept-clock") == {"accepted": False}
    assert cli.json("send", "ops/api", "hello")["outcome"] == "completed"


@pytest.mark.parametrize("planted", ["holdfast.toml", "programs.json"])
def test_restore_takes_no_settings_that_others_could_write(
    cli: Cli, backed_up: Path, tmp_path: Path, planted: str
) -> None:
    """
    A home refuses such a file by its owner and mode. The copy has the owner's own, so restore must
    not make one: policy would allow, and a module would run, as somebody else wrote.
    """
    text = {
        "holdfast.toml": '[policy.personal]\nshell = "auto"\n',
        "programs.json": json.dumps({"bot": str(tmp_path)}),
    }
    backed_up.chmod(0o755)
    (backed_up / planted).write_text(text[planted])
    (backed_up / planted).chmod(0o666)
    place = tmp_path / "again"
    done = cli("--json", "restore", str(backed_up), env={"HOLDFAST_HOME": str(place)})
    if planted == "holdfast.toml":
        assert (done.code, done.json["error"]["code"]) == (2, "settings")
        assert not place.exists()
    else:
        assert done.code == 0
    assert not (place / planted).exists()


def test_restore_brings_the_owners_settings_along(cli: Cli, tmp_path: Path) -> None:
    cli.settings('[policy.personal]\nnow = "deny"\n')
    cli.json("send", "ops/api", "hello", "--as", "alice")
    cli.json("backup", str(tmp_path / "copy"))
    place = tmp_path / "again"
    cli("restore", str(tmp_path / "copy"), env={"HOLDFAST_HOME": str(place)})
    assert (place / "holdfast.toml").read_text() == '[policy.personal]\nnow = "deny"\n'
    assert (place / "holdfast.toml").stat().st_mode & 0o777 == 0o600
