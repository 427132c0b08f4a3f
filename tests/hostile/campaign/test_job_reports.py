"""
Reports of jobs against a program that may write into HOME/jobs and has no key: real homes, real
jobs, the real commands.

T2, L4: the journal says that a job succeeded only if its supervisor said so, of that very job, and
its output is what the command wrote.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.campaign.conftest import Cli, Gate, wait_until_gone
from tests.hostile.campaign.test_jobs import of, reports

SUCCESS = {"ended": "exited", "status": 0, "bytes": 7, "failed": "", "at_ms": 1}


def started(cli: Cli, command: str, session: str = "ops/api") -> dict[str, Any]:
    """A job that was approved and let go; what its submission says."""
    model = cli.script(
        {"call": [{"tool": "shell", "args": {"command": command, "background": True}}]},
        {"say": "begun"},
        {"say": "heard"},
    )
    approval = cli.json("send", session, "go", "--as", "alice", "--model", model)["approvals"][0]
    assert cli.answer(approval).code == 0
    return [each["body"] for each in cli_records(cli, session) if each["type"] == "job_submitted"][
        -1
    ]


def cli_records(cli: Cli, session: str) -> list[dict[str, Any]]:
    paths = sorted((cli.home / "sessions" / session).glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def folder_of(cli: Cli, job: dict[str, Any]) -> Path:
    return (
        cli.home / "jobs" / f"{job['job']}.{job['process']['group']}.{job['process']['start_time']}"
    )


def forge(folder: Path) -> None:
    """
    As well as anybody can who knows the format and has no key: the report that is there with
    another end, or one made up.
    """
    report = folder / "status"
    facts = dict(SUCCESS)
    mac = "0" * 64
    if report.exists():
        body, _, mac = report.read_text().strip().partition("\n")
        facts = {**json.loads(body), "ended": "exited", "status": 0}
    report.write_text(f"{json.dumps(facts)}\n{mac}\n")


def test_the_end_of_a_running_job_can_not_be_written_by_somebody_else(cli: Cli, hold: Gate) -> None:
    job = started(cli, "read line < hold; exit 3")
    (folder_of(cli, job) / "status").write_text(json.dumps(SUCCESS))
    (folder_of(cli, job) / "output").write_text("forged\n")
    cli("resume", "ops/api")
    assert of(cli, "job_ended") == []
    hold.say("on")
    wait_until_gone(job["process"]["group"])
    cli("resume", "ops/api")
    (ended,) = of(cli, "job_ended")
    assert (ended["outcome"], "forged" in ended["text"]) == (
        "in_doubt",
        False,
    )  # its real report replaced the forged one; its output was changed
    assert len(reports(cli)) == 1


def removed(folder: Path) -> None:
    (folder / "status").unlink()


def rewritten(folder: Path) -> None:
    forge(folder)


def said_more(folder: Path) -> None:
    with (folder / "output").open("a") as output:
        output.write("forged\n")


def said_otherwise(folder: Path) -> None:
    """Other words of the same length."""
    output = folder / "output"
    output.write_bytes(b"forged".ljust(output.stat().st_size, b"!"))


def linked(folder: Path) -> None:
    (folder / "output").unlink()
    (folder / "output").symlink_to(folder.parent.parent / "keys" / "1.key")


def hard_linked(folder: Path) -> None:
    (folder / "output").unlink()
    (folder.parent / "elsewhere").write_text("true words\n")
    os.link(folder.parent / "elsewhere", folder / "output")


def piped(folder: Path) -> None:
    for name in ("status", "output"):
        (folder / name).unlink()
        os.mkfifo(folder / name)


@pytest.mark.parametrize(
    "tamper",
    [removed, rewritten, said_more, said_otherwise, linked, hard_linked, piped],
    ids=lambda each: each.__name__,
)
def test_a_report_that_was_changed_after_the_end_leaves_the_job_in_doubt(
    cli: Cli, tamper: Callable[[Path], None]
) -> None:
    job = started(cli, "echo true words; exit 3")
    wait_until_gone(job["process"]["group"])
    tamper(folder_of(cli, job))
    cli("resume", "ops/api")
    (ended,) = of(cli, "job_ended")
    assert (ended["outcome"], "forged" in ended["text"], len(reports(cli))) == (
        "in_doubt",
        False,
        1,
    )
    key = (cli.home / "keys" / "1.key").read_bytes()
    assert key not in ended["text"].encode()
    assert cli("--json", "verify").code == 0


@pytest.mark.parametrize("other", ["ops/api", "ops/other"])
def test_a_real_report_of_another_job_is_not_this_jobs(cli: Cli, other: str) -> None:
    """Neither of another job of the same instance, nor of another session's."""
    good = started(cli, "echo good", other)
    wait_until_gone(good["process"]["group"])
    shutil.copytree(folder_of(cli, good), cli.cwd / "kept")
    cli("resume")
    bad = started(cli, "echo bad; exit 3")
    wait_until_gone(bad["process"]["group"])
    for name in ("status", "output"):
        shutil.copy(cli.cwd / "kept" / name, folder_of(cli, bad) / name)
    cli("resume", "ops/api")
    ended = of(cli, "job_ended")[-1]
    assert (ended["job"], ended["outcome"], "good" in ended["text"]) == (
        bad["job"],
        "in_doubt",
        False,
    )
