"""`holdfast jobs`, and what other commands say of jobs, as a person or a script has them."""

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import COMMAND, Cli
from tests.hostile.campaign.conftest import Gate, process_of, wait_until_gone

JOB_FIELDS = {
    "id", "session", "turn", "tool", "state", "outcome", "code", "submitted_at", "ended_at", "audience", "boundary", "requester", "arguments", "cancelled_by",
}  # fmt: skip


@pytest.fixture
def hold(cli: Cli) -> Iterator[Gate]:
    gate = Gate(cli.cwd / "hold")
    yield gate
    gate.close()


def started(cli: Cli, command: str, **arguments: Any) -> dict[str, Any]:
    """A job of alice's that runs."""
    model = cli.script(
        {
            "call": [
                {"tool": "shell", "args": {"command": command, "background": True, **arguments}}
            ]
        },
        {"say": "begun"},
        {"say": "I have heard"},
    )
    approval = cli.json("send", "ops/api", "go", "--as", "alice", "--model", model)["approvals"][0]
    assert approval["arguments"]["background"] is True
    assert cli.answer(approval).json["reply"] == "begun"
    (job,) = cli.json("jobs", "list", "--as", "alice")["jobs"]
    return dict(job)


def test_a_job_is_listed_shown_followed_and_reported(cli: Cli, hold: Gate) -> None:
    job = started(
        cli, r"printf 'one\ngr\303'; read line < hold; printf '\274n %s\n' $line; exit 4"
    )  # what it has said by then ends in half a character
    assert job.keys() >= JOB_FIELDS
    assert (job["state"], job["tool"], job["requester"], job["boundary"]) == (
        "running",
        "shell",
        "alice",
        "personal:alice",
    )
    assert cli.json("sessions", "show", "ops/api")["jobs"][0]["id"] == job["id"]
    follower = cli.start("jobs", "follow", job["id"], "--as", "alice")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "one\n"  # while it runs
    hold.say("two")
    out, err = follower.communicate()
    assert (follower.returncode, out, err) == (
        1,
        "gr\u00fcn two\n[exit 4]",
        f"{job['id']} failed\n",
    )
    shown = cli.json("jobs", "show", job["id"], "--as", "alice")
    assert (shown["state"], shown["outcome"], shown["text"]) == (
        "ended",
        "error",
        "one\ngr\u00fcn two\n[exit 4]",
    )
    assert cli.json("jobs", "list", "--as", "alice") == {"jobs": []}
    (over,) = cli.json("jobs", "list", "ops/api", "--all", "--as", "alice")["jobs"]
    assert (over["id"], over["outcome"], over["arguments"]) == (
        job["id"],
        "error",
        job["arguments"],
    )
    assert cli.json("resume")["reply"] == "I have heard"


def test_a_follower_that_can_not_write_says_so_and_one_that_nobody_reads_says_nothing(
    cli: Cli, hold: Gate
) -> None:
    job = started(cli, "echo one; read line < hold")
    follow = ["jobs", "follow", job["id"], "--as", "alice"]
    with Path("/dev/full").open("w") as full:
        _, err = (process := cli.start(*follow, stdout=full)).communicate(timeout=60)
    assert (process.returncode, err) == (
        1,
        "error: the result could not be written: No space left on device\nhint: the work of the command stands\n",
    )
    words = shlex.join([*COMMAND, *follow])
    done = subprocess.run(
        ["sh", "-c", f"exec {words} >&-"],
        cwd=cli.cwd,
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    hold.say()


def test_a_job_is_cancelled_durably_and_ends_in_doubt(cli: Cli, hold: Gate) -> None:
    del hold
    job = started(cli, "echo begun; read line < hold")
    follower = cli.start("jobs", "follow", job["id"], "--as", "alice")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "begun\n"
    cancelled = cli.json("jobs", "cancel", job["id"], "--as", "alice")
    assert (cancelled["state"], cancelled["outcome"], cancelled["code"]) == (
        "ended",
        "in_doubt",
        "stopped",
    )
    stopped = "In doubt: it was stopped while it ran. Part of it may have happened; check before trying again."
    assert follower.communicate()[0].endswith(f"\n{stopped}")
    assert cli("jobs", "follow", job["id"], "--as", "alice").code == 5
    assert cli.json("jobs", "cancel", job["id"], "--as", "alice")["outcome"] == "in_doubt"
    (path,) = (cli.home / "sessions" / "ops" / "api").glob("*.jsonl")
    kinds = [json.loads(line)["type"] for line in path.read_text().splitlines()]
    assert [kind for kind in kinds if kind.startswith("job_")] == [
        "job_submitted",
        "job_cancelled",
        "job_ended",
    ]


def test_somebody_elses_job_is_not_there(cli: Cli, hold: Gate) -> None:
    """
    The same words and the same code as for one that never was; the home's owner, speaking for
    themselves, sees all.
    """
    job = started(cli, "read line < hold")
    absent = "j-" + "a" * 26
    for verb in ("show", "follow", "cancel"):
        found = [cli("--json", "jobs", verb, name, "--as", "bob") for name in (job["id"], absent)]
        assert [each.code for each in found] == [6, 6]
        said = {each.out.replace(job["id"], "X").replace(absent, "X") for each in found}
        assert len(said) == 1
        assert '"code":"unknown"' in said.pop()
    assert cli.json("jobs", "list", "--as", "bob") == {"jobs": []}
    assert [each["id"] for each in cli.json("jobs", "list")["jobs"]] == [job["id"]]
    hold.say()


def test_lists_of_an_absent_home_are_empty_and_make_nothing(cli: Cli) -> None:
    assert cli.json("jobs", "list") == {"jobs": []}
    assert cli("jobs", "show", "j-" + "a" * 26).code == 6
    assert not cli.home.exists()


def test_a_tool_can_not_cancel_a_job(cli: Cli) -> None:
    """A tripwire, as for everything that carries a person's will."""
    refused = cli("--json", "jobs", "cancel", "j-" + "a" * 26, env={"HOLDFAST_TOOL": "c-1"})
    assert (refused.code, refused.json["error"]["code"]) == (6, "started_by_tool")


def test_a_job_is_found_when_the_index_is_gone(cli: Cli, hold: Gate) -> None:
    """D9: the journal knows it."""
    job = started(cli, "read line < hold")
    (cli.home / "index.db").unlink()
    assert cli.json("jobs", "show", job["id"], "--as", "alice")["state"] == "running"
    (cli.home / "index.db").unlink()
    assert [each["id"] for each in cli.json("jobs", "list", "--as", "alice")["jobs"]] == [job["id"]]
    hold.say()


def test_a_backup_has_no_running_job_in_it(cli: Cli, hold: Gate, tmp_path: Path) -> None:
    """Restored, it is in doubt and owed to nobody; where it runs, it goes on."""
    job = started(cli, "read line < hold; echo ran >> ran.txt")
    assert cli("backup", str(tmp_path / "backup")).code == 0
    assert not (tmp_path / "backup" / "jobs").exists()
    restored = cli.on(tmp_path / "restored")
    assert restored("restore", str(tmp_path / "backup")).code == 0
    (over,) = restored.json("jobs", "list", "--all")["jobs"]
    assert (over["id"], over["outcome"], over["code"], over["refused"]) == (
        job["id"],
        "in_doubt",
        "carried_over",
        True,
    )
    assert restored.json("sessions", "show", "ops/api")["owes"] == []
    hold.say()
    assert cli("jobs", "follow", job["id"], "--as", "alice").code == 0
    assert (cli.ran(), [*(cli.home / "jobs").iterdir()]) == (1, [])


def test_a_session_whose_job_runs_is_not_an_idle_session_to_be_pruned(cli: Cli, hold: Gate) -> None:
    """The job would lose the session that it reports to."""
    job = started(cli, "read line < hold; echo $line")
    cli.json("send", "old", "hello")
    cli.settings('[retention]\nsessions = "1s"\n')
    deadline = time.monotonic() + 30
    while not (told := cli.json("sessions", "prune"))["sessions"] and time.monotonic() < deadline:
        continue
    assert told["sessions"] == ["local/old"]  # and is younger
    hold.say("two")
    assert cli("jobs", "follow", job["id"], "--as", "alice").out.startswith("two")
    assert cli.json("resume")["reply"] == "I have heard"


@pytest.mark.parametrize("damage", [b"", b'"text":"go"'])
def test_a_deleted_sessions_job_is_ended_first(cli: Cli, hold: Gate, damage: bytes) -> None:
    """Also where its journal can no longer tell of it."""
    del hold
    began = Gate(cli.cwd / "began")
    try:
        job = started(cli, "echo $$ > began; read line < hold")
        command = process_of(began.hear(), cli.cwd)
    finally:
        began.close()
    (path,) = (cli.home / "sessions" / "ops" / "api").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(damage, damage.upper()))
    assert cli.json("sessions", "delete", "ops/api", "--yes")["deleted"] is True
    wait_until_gone(command)
    assert cli("jobs", "show", job["id"]).code == 6
    assert list((cli.home / "jobs").iterdir()) == []
