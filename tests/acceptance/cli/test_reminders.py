"""
`holdfast reminders`, and firing by real processes: several at once, and killed before and after the
commit that fires.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.cli.output.prompt_text import local_time
from holdfast.session.events import (
    InputAccepted,
    ReminderFired,
    ReminderSet,
    SessionBorn,
    TurnEnded,
    TurnStarted,
)
from holdfast.testing import ManualClock
from tests.acceptance.cli.conftest import Cli
from tests.acceptance.runtime.conftest import Stage, alice

WORKER = Path(__file__).with_name("reminder_worker.py")
FIELDS = {
    "id", "session", "instance", "text", "when", "schedule", "time_zone", "next_at", "by", "audience", "boundary", "may_prompt", "agent", "model",
    "set_at", "set_in", "fired", "fired_at", "state", "reason", "asserted_by",
}  # fmt: skip


def set_earlier(
    home: Path, text: str, *, seconds_ago: float, session: str = "ops/api", **when: Any
) -> Any:
    """A reminder that was set a while ago, by a process whose clock said so."""
    stage = Stage("files", home)
    stage.clock = ManualClock(time.time_ns() // 1_000_000 - round(seconds_ago * 1000))

    async def remind() -> Any:
        async with stage.open() as opened:
            return await opened.remind(session, text, source=alice, **when)

    return asyncio.run(remind())


def records(cli: Cli, session: str = "ops/api") -> list[Any]:
    """The state that a fresh process believes, without the wait for one to start."""
    return asyncio.run(Stage("files", cli.home).events(session))


def counted(cli: Cli, *kinds: type[Any]) -> list[int]:
    events = records(cli)
    return [sum(isinstance(event, kind) for event in events) for kind in kinds]


# --- the commands


def test_a_reminder_is_set_listed_shown_and_cancelled(cli: Cli) -> None:
    made = cli.json(
        "reminders",
        "add",
        "ops/api",
        "weekly report",
        "--cron",
        "0 9 * * MON",
        "--tz",
        "Europe/Berlin",
        "--as",
        "alice",
        "--allow-prompts",
    )
    assert set(made) == FIELDS
    told = (
        made["session"],
        made["text"],
        made["by"],
        made["boundary"],
        made["time_zone"],
        made["may_prompt"],
        made["state"],
        made["agent"],
    )
    assert told == (
        "ops/api",
        "weekly report",
        "alice",
        "personal:alice",
        "Europe/Berlin",
        True,
        "waiting",
        "assistant",
    )
    assert cli.json("reminders", "list") == {"reminders": [made]}
    assert cli.json("reminders", "show", made["id"]) == made
    assert (
        f"{made['id']}, next {local_time(made['next_at'])}, by cron '0 9 * * MON' in Europe/Berlin: "
        "weekly report" in cli("sessions", "show", "ops/api").out
    )
    assert [type(event) for event in records(cli)] == [SessionBorn, ReminderSet]
    stranger = cli("--json", "reminders", "cancel", made["id"], "--as", "bob")
    assert (stranger.code, stranger.json["error"]["code"]) == (6, "no_authority")
    assert cli.json("reminders", "cancel", made["id"], "--as", "alice") == {
        "reminder": made["id"],
        "session": "ops/api",
        "cancelled": True,
    }
    again = cli("--json", "reminders", "cancel", made["id"])
    assert (again.code, again.json["error"]["code"]) == (6, "unknown")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--at", "9am"), 2, "at: '9am' is not a date and time"),
        (("--cron", "0 0 30 2 *", "--tz", "UTC"), 2, "never fires"),
        (("--cron", "0 9 * * *", "--tz", "../../etc/passwd"), 2, "--tz: there is no"),
    ],
)
def test_a_refused_reminder_names_the_field_and_the_next_step(
    cli: Cli, options: tuple[str, ...], code: int, said: str
) -> None:
    ran = cli("--json", "reminders", "add", "ops/api", "x", *options)
    assert (ran.code, ran.json["error"]["code"]) == (code, "malformed")
    assert said in ran.json["error"]["message"]
    assert ran.json["error"]["hint"]
    assert not (cli.home / "sessions" / "ops").exists()


def test_lists_of_a_home_that_is_not_there_make_nothing(cli: Cli) -> None:
    assert cli.json("reminders", "list") == {"reminders": []}
    assert cli("reminders", "cancel", "r-x").code == 6
    assert not cli.home.exists()


def test_a_tool_sets_none_by_the_command(cli: Cli) -> None:
    """A process that a tool started would give itself authority for later."""
    ran = cli(
        "--json", "reminders", "add", "ops/api", "x", "--every", "1h", env={"HOLDFAST_TOOL": "c-1"}
    )
    assert (ran.code, ran.json["error"]["code"]) == (6, "started_by_tool")


def test_resume_fires_what_was_missed_once_and_says_so(cli: Cli) -> None:
    set_earlier(
        cli.home,
        "run: echo ran >> ran.txt",
        seconds_ago=3 * 3600 + 30,
        every="1h",
        workspace=cli.cwd,
    )
    ran = cli("--json", "resume")
    assert (ran.code, [(each["session"], each["outcome"]) for each in ran.lines]) == (
        0,
        [("ops/api", "completed")],
    )
    assert "did not run, because nobody may approve it here" in ran.lines[0]["reply"]
    [accepted] = [event for event in records(cli) if isinstance(event, InputAccepted)]
    assert "2 later ones were missed too" in accepted.text
    context = msgspec.json.decode(accepted.context)
    assert (context["interactive"], context["requester"], cli.ran()) == (False, "alice", 0)


def test_the_model_sets_one_with_consent_and_a_person_sees_what_it_will_be(cli: Cli) -> None:
    turn = cli.json(
        "send",
        "ops/api",
        "set_reminder text='what time is it?' cron='0 9 * * *' time_zone=Asia/Kathmandu",
        "--as",
        "alice",
    )
    [approval] = turn["approvals"]
    assert "set a reminder, by cron '0 9 * * *' in Asia/Kathmandu" in approval["display"]
    assert cli.answer(approval).code == 0
    [made] = cli.json("reminders", "list")["reminders"]
    assert (made["by"], made["set_in"], made["next_at"][11:16]) == ("alice", "t1", "03:15")


def test_a_session_with_a_reminder_is_not_an_idle_session_to_be_pruned(cli: Cli) -> None:
    """A weekly reminder in a session that nobody wrote to for a day."""
    set_earlier(cli.home, "look", seconds_ago=3 * 86400, every="1w")
    cli.settings('[retention]\nsessions = "1d"\n')
    assert cli.json("sessions", "prune")["sessions"] == []
    assert len(records(cli)) == 2


# --- several processes, and kill -9


class Workers:
    """Processes that are ready to fire, and are let go together by a byte for each in a FIFO."""

    def __init__(self, cli: Cli, *modes: str) -> None:
        self.gate = cli.cwd / f"gate-{len(list(cli.cwd.glob('gate-*')))}"
        os.mkfifo(self.gate)
        command = [sys.executable, str(WORKER), str(cli.home), str(self.gate)]
        self.processes = [
            subprocess.Popen(
                [*command, mode],
                cwd=cli.cwd,
                env=cli.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for mode in modes
        ]
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def go(self) -> list[tuple[int, str]]:
        """Each one's exit code, and what it said it drove."""
        gate = os.open(self.gate, os.O_RDWR)  # of both sides, so that opening never waits
        try:
            os.write(gate, b"x" * len(self.processes))
            said = [process.communicate(timeout=100) for process in self.processes]
        finally:
            os.close(gate)
        assert not any("Traceback" in err for _, err in said), said
        return [
            (process.returncode, out)
            for process, (out, _) in zip(self.processes, said, strict=True)
        ]


FIRED = (ReminderFired, InputAccepted, TurnStarted, TurnEnded)


def test_processes_that_fire_at_the_same_moment_make_one_turn(cli: Cli) -> None:
    set_earlier(cli.home, "what time is it?", seconds_ago=90, every="60s")
    ended = Workers(cli, "live", "live", "live").go()
    assert [code for code, _ in ended] == [0, 0, 0]
    assert counted(cli, *FIRED) == [1, 1, 1, 1]


@pytest.mark.parametrize(("mode", "left"), [("decided", [0, 0, 0, 0]), ("fired", [1, 1, 0, 0])])
def test_killed_before_or_after_the_firing_commit_the_turn_comes_once(
    cli: Cli, mode: str, left: list[int]
) -> None:
    """Before: nobody has heard of it, and it is still due. After: it is owed, and no longer due."""
    set_earlier(cli.home, "what time is it?", seconds_ago=90, at=iso_of(time.time() - 30))
    [(code, _)] = Workers(cli, mode).go()
    assert code == -signal.SIGKILL
    assert counted(cli, *FIRED) == left
    ran = cli("--json", "resume")
    assert [(each["session"], each["turn"], each["outcome"]) for each in ran.lines] == [
        ("ops/api", "t1", "completed")
    ]
    assert counted(cli, *FIRED) == [1, 1, 1, 1]


def iso_of(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def test_the_time_of_a_reminder_is_printed_with_its_zone(cli: Cli) -> None:
    """A person who named Berlin's time must see why another hour is printed."""
    at = ("--at", "2027-01-04T09:00", "--tz", "Europe/Berlin")
    ran = cli("reminders", "add", "ops/api", "look", *at, env={"TZ": "America/New_York"})
    assert ran.out.rstrip().endswith("is set; it is due on Mon 04 Jan 2027, 03:00 EST")
