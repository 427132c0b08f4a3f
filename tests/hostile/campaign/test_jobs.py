"""
Jobs with real processes and a real kill -9 of whoever drives: before the launch, after it, after
the job's end, before its report, between report and turn.

Commands and tests meet at FIFOs. A process dies either by our signal, or by its own hand at the
very write that is meant.
"""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from proof.campaigns.job_storm import storm

from tests.hostile.campaign.conftest import Cli, Gate, is_alive, process_of, wait_until_gone
from tests.hostile.campaign.test_attacks import _forged as forged

DIES_BEFORE = """
import os

pwrite, write = os.pwrite, os.write


def pwrite_or_die(descriptor, data, offset):
    if {record!r}.encode() in bytes(data):
        os.kill(os.getpid(), 9)
    return pwrite(descriptor, data, offset)


def write_or_die(descriptor, data):
    if {record!r} == "the byte" and bytes(data[:1]) == b"g" and len(data) == 37:
        os.kill(os.getpid(), 9)
    return write(descriptor, data)


os.pwrite, os.write = pwrite_or_die, write_or_die
"""

COMMAND = "echo ran >> ran.txt; echo $$ > began; read line < hold; echo the word is $line"


def records(cli: Cli, session: str = "ops/api") -> list[dict[str, Any]]:
    """As they lie there; nothing writes while they are read."""
    paths = sorted((cli.home / "sessions" / session).glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def of(cli: Cli, kind: str) -> list[dict[str, Any]]:
    return [each["body"] for each in records(cli) if each["type"] == kind]


def asked(cli: Cli, command: str = COMMAND) -> dict[str, Any]:
    """A prompt for a job."""
    arguments = {"command": command, "background": True}
    model = cli.script(
        {"call": [{"tool": "shell", "args": arguments}]},
        {"say": "it runs"},
        {"say": "it has come back"},
        # The same deed in another manner: in the foreground, for a minute.
        {"call": [{"tool": "shell", "args": {"command": command, "timeout_seconds": 60}}]},
    )
    approval: dict[str, Any] = cli.json("send", "ops/api", "go", "--as", "alice", "--model", model)[
        "approvals"
    ][0]
    return approval


def dying(cli: Cli, record: str, *words: str) -> None:
    """Run a command that kills itself right before it writes that record, or that byte."""
    folder = cli.cwd / "dying"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(DIES_BEFORE.format(record=record))
    process = cli.start(*words, env={"PYTHONPATH": str(folder)})
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def reports(cli: Cli) -> list[dict[str, Any]]:
    return [each for each in of(cli, "input_accepted") if each.get("kind") == "job"]


def holds(cli: Cli) -> None:
    assert cli("--json", "verify").code == 0


def test_killed_before_the_submission_is_durable_nothing_runs_and_the_next_driver_starts_it_once(
    cli: Cli, began: Gate, hold: Gate
) -> None:
    """The launcher sees its pipe close; the approved call is still to be started."""
    approval = asked(cli)
    dying(
        cli,
        '"job_submitted"',
        "approvals",
        "answer",
        approval["id"],
        "approve_once",
        "--as",
        "alice",
    )
    assert (cli.ran(), of(cli, "job_submitted")) == (0, [])
    assert cli.json("resume", "ops/api")["outcome"] == "completed"
    began.hear()
    hold.say("yes")
    (job,) = of(cli, "job_submitted")
    assert cli("jobs", "follow", job["job"], "--as", "alice").code == 0
    assert cli.json("resume", "ops/api")["reply"] == "it has come back"
    assert (cli.ran(), len(reports(cli))) == (1, 1)
    holds(cli)


def test_killed_after_the_submission_and_before_the_launch_it_never_starts_and_is_in_doubt(
    cli: Cli, began: Gate, hold: Gate
) -> None:
    """
    Nobody can know what a dead driver did last: it is said, once, and the prompt of an equal call
    says it too.
    """
    del began, hold
    approval = asked(cli)
    dying(cli, "the byte", "approvals", "answer", approval["id"], "approve_once", "--as", "alice")
    (job,) = of(cli, "job_submitted")
    wait_until_gone(job["process"]["group"])
    assert cli.json("resume", "ops/api")["outcome"] == "completed"
    (ended,) = of(cli, "job_ended")
    assert (ended["outcome"], ended["code"], cli.ran(), len(reports(cli))) == (
        "in_doubt",
        "in_doubt",
        0,
        1,
    )
    again = cli("--json", "send", "ops/api", "again", "--as", "alice")
    assert again.code == 3
    assert again.json["approvals"][0]["reason"] == "An earlier, equal call may have run already."
    holds(cli)


def test_killed_after_the_launch_the_job_goes_on_and_is_found_again(
    cli: Cli, began: Gate, hold: Gate
) -> None:
    """
    The process outlives its driver; whoever comes next finds it running, and its end is reported
    once.
    """
    approval = asked(cli)
    driver = cli.start(
        "--json", "approvals", "answer", approval["id"], "approve_once", "--as", "alice"
    )
    command = process_of(began.hear(), cli.cwd)
    driver.kill()
    driver.communicate()
    assert is_alive(command)
    (listed,) = cli.json("jobs", "list", "--as", "alice")["jobs"]
    assert (listed["state"], listed["tool"], listed["boundary"]) == (
        "running",
        "shell",
        "personal:alice",
    )
    cli("resume", "ops/api")
    assert is_alive(command)
    assert len(of(cli, "job_ended")) == 0
    hold.say("late")
    followed = cli("jobs", "follow", listed["id"], "--as", "alice")
    assert (followed.code, followed.out) == (0, "the word is late\n")
    cli("resume", "ops/api")
    cli("resume", "ops/api")
    assert (cli.ran(), len(of(cli, "job_ended")), len(reports(cli))) == (1, 1, 1)
    assert "the word is late" in reports(cli)[0]["text"]
    holds(cli)


def test_killed_after_the_end_and_before_the_report_it_is_reported_once(
    cli: Cli, began: Gate, hold: Gate
) -> None:
    """
    The supervisor's word waits in the home for whoever comes next; dying on the way to the journal
    loses nothing.
    """
    approval = asked(cli)
    assert cli.answer(approval).code == 0
    began.hear()
    (job,) = of(cli, "job_submitted")
    hold.say("kept")
    wait_until_gone(job["process"]["group"])
    dying(cli, '"job_ended"', "resume")
    assert of(cli, "job_ended") == []
    assert cli.json("resume")["reply"] == "it has come back"
    assert cli("--json", "resume").out == ""
    assert (cli.ran(), len(of(cli, "job_ended")), len(reports(cli))) == (1, 1, 1)
    assert list((cli.home / "jobs").iterdir()) == []
    holds(cli)


def test_killed_between_the_report_and_its_turn_the_turn_is_driven_once_under_the_stored_context(
    cli: Cli, began: Gate, hold: Gate
) -> None:
    """
    The report is durable with the end; its turn is owed, and has the authority that was stored with
    the job.
    """
    approval = asked(cli)
    assert cli.answer(approval).code == 0
    began.hear()
    (job,) = of(cli, "job_submitted")
    hold.say("once")
    wait_until_gone(job["process"]["group"])
    dying(cli, '"turn_started"', "resume")
    assert (len(of(cli, "job_ended")), len(reports(cli))) == (1, 1)
    assert cli.json("sessions", "show", "ops/api")["owes"] == ["BeginTurn"]
    assert cli.json("resume")["reply"] == "it has come back"
    (report,) = reports(cli)
    assert report["dedup"] == job["job"]
    assert {**report["context"], "turn": ""} == {**job["context"], "turn": ""}
    assert len([each for each in of(cli, "turn_started") if each["turn"] == report["turn"]]) == 1
    holds(cli)


def test_a_supervisor_that_is_killed_leaves_its_job_in_doubt_and_the_command_is_ended(
    cli: Cli, began: Gate, hold: Gate
) -> None:
    """Gone without a word: never guessed, never started again."""
    del hold
    approval = asked(cli)
    assert cli.answer(approval).code == 0
    command = process_of(began.hear(), cli.cwd)
    (job,) = of(cli, "job_submitted")
    os.kill(job["process"]["group"], signal.SIGKILL)
    wait_until_gone(job["process"]["group"])
    cli("resume", "ops/api")
    wait_until_gone(command)
    (ended,) = of(cli, "job_ended")
    assert (ended["outcome"], cli.ran(), len(reports(cli))) == ("in_doubt", 1, 1)
    holds(cli)


@pytest.mark.parametrize("field", ["boundary", "requester"])
def test_a_job_whose_record_lost_a_field_is_reported_to_nobody(
    cli: Cli, began: Gate, hold: Gate, field: str
) -> None:
    """
    A2: re-MACed by whoever has the key. Its end is known and shown; no turn comes of it, and no
    default takes the field's place.
    """
    approval = asked(cli)
    assert cli.answer(approval).code == 0
    began.hear()
    (job,) = of(cli, "job_submitted")

    def change(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        if kind == "job_submitted":
            del body["context"][field]
        return body

    asyncio.run(forged(cli.home, change))
    hold.say("unheard")
    wait_until_gone(job["process"]["group"])
    cli("resume", "ops/api")
    (ended,) = of(cli, "job_ended")
    assert (ended["code"], reports(cli), len(of(cli, "turn_started"))) == ("no_authority", [], 1)
    (shown,) = cli.json("jobs", "list", "ops/api", "--all")["jobs"]
    assert (shown["id"], shown["refused"], shown["boundary"]) == (job["job"], True, None)


def test_an_unsealed_session_leaves_its_jobs_behind_ended_and_in_doubt(
    cli: Cli, began: Gate, hold: Gate
) -> None:
    """Nobody looks after the old instance any more, so nothing of it runs on."""
    del hold
    approval = asked(cli)
    assert cli.answer(approval).code == 0
    command = process_of(began.hear(), cli.cwd)
    (path,) = sorted((cli.home / "sessions" / "ops/api").glob("*.jsonl"))
    path.write_bytes(
        path.read_bytes().replace(b'"reply":"it runs"', b'"reply":"it RUNS"')
    )  # after the job's record
    assert cli("resume", "ops/api").code == 4
    assert cli("sessions", "unseal", "ops/api", "--reason", "a bit was flipped").code == 0
    shown = cli.json("sessions", "show", "ops/api")
    assert (shown["sealed"], shown["owes"], shown["jobs"], reports(cli)) == (None, [], [], [])
    wait_until_gone(command)
    last = [each for each in of(cli, "job_ended") if each["code"] == "carried_over"]
    assert [each["outcome"] for each in last] == ["in_doubt"]


@pytest.mark.parametrize("end", ["runs on", pytest.param("has ended", marks=pytest.mark.long)])
def test_a_job_beyond_the_damage_is_ended_and_reported(
    cli: Cli, began: Gate, hold: Gate, end: str
) -> None:
    """
    Its record is lost with what came after the changed byte; its folder still says whose it is.
    """
    approval = asked(cli)
    assert cli.answer(approval).code == 0
    command = process_of(began.hear(), cli.cwd)
    (job,) = of(cli, "job_submitted")
    if end == "has ended":
        hold.say("heard")
        wait_until_gone(job["process"]["group"])
    (path,) = sorted((cli.home / "sessions" / "ops/api").glob("*.jsonl"))
    path.write_bytes(
        path.read_bytes().replace(b'"text":"go"', b'"text":"GO"')
    )  # long before the job's record
    assert cli("resume", "ops/api").code == 4
    assert is_alive(command) is (end == "runs on")
    assert cli("sessions", "unseal", "ops/api", "--reason", "a bit was flipped").code == 0
    wait_until_gone(command)
    (note,) = of(cli, "life_carried")[-1]["attached"]
    expected = (
        "a tool's outcome (in_doubt): In doubt: job {} was stopped"
        if end == "runs on"
        else "a tool's outcome (ok): job {} had ended. the word is heard"
    )
    assert note.startswith(expected.format(job["job"]))
    assert list((cli.home / "jobs").iterdir()) == []


def test_thirty_jobs_and_three_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """The bench in small: `python -m bench jobs` does it with a thousand."""
    (tmp_path / "workspace").mkdir()
    found = storm(
        tmp_path / "home",
        tmp_path / "workspace",
        jobs=30,
        sessions=4,
        kills=3,
        seed=11,
        every_seconds=(0.8, 1.6),
    )
    assert found.flaws(30) == []
    assert found.kills == 3 or sum(found.ended.values()) == 30


def test_ten_jobs_under_a_forger_without_a_key_end_as_they_did_or_in_doubt(tmp_path: Path) -> None:
    """
    T2, L4: nothing that somebody else wrote is journalled, and every job is still reported once.
    """
    (tmp_path / "workspace").mkdir()
    found = storm(
        tmp_path / "home",
        tmp_path / "workspace",
        jobs=10,
        sessions=2,
        kills=1,
        seed=3,
        every_seconds=(0.8, 1.6),
        forging=True,
    )
    assert found.flaws(10) == []


@pytest.mark.long
def test_a_hundred_jobs_and_a_kill_every_few_seconds(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    found = storm(
        tmp_path / "home",
        tmp_path / "workspace",
        jobs=100,
        sessions=8,
        kills=None,
        seed=5,
        every_seconds=(2.0, 4.0),
    )
    assert found.flaws(100) == []
    assert found.kills > 0
