"""
Cases 9, 14, 15, 17, 30, 48 and 51 of the turns, with real processes through the command line and a
real kill -9.

Tools and tests meet at FIFOs; a process dies either by our signal, or by strace's at the very call
that is meant.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proof.campaigns.syscalls import Said, SyscallFault, run

from tests.hostile.campaign.conftest import Cli, Gate, is_alive, process_of, wait_until_gone

BOT = '''
from pathlib import Path

import holdfast


@holdfast.tool
def act(what: str) -> str:
    """Leave a line, say so, and wait to be let go."""
    here = Path(__file__).parent
    with (here / "ran.txt").open("a") as effects:
        effects.write("ran\\n")
    (here / "began").open("w").write("began\\n")
    return (here / "hold").open("r").readline()


ops = holdfast.Agent("ops", model="demo", tools=[act])
'''

KILLED_BEFORE_THE_START = """
import os

write = os.pwrite


def write_or_die(descriptor, data, offset):
    if b'"tool_started"' in bytes(data):
        os.kill(os.getpid(), 9)
    return write(descriptor, data, offset)


os.pwrite = write_or_die
"""
"""strace counts calls for each thread, so it can't name this place; the process itself can."""


def records(cli: Cli, session: str = "ops/api") -> list[dict[str, Any]]:
    paths = cli.json("sessions", "show", session)["journal"]
    return [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]


def of(cli: Cli, kind: str) -> list[dict[str, Any]]:
    return [each["body"] for each in records(cli) if each["type"] == kind]


def holds(cli: Cli) -> None:
    verdicts = cli.json("verify")["sessions"]
    assert [(each["verdict"], each["sealed"]) for each in verdicts] == [("holds", False)] * len(
        verdicts
    )


def asked(cli: Cli, *commands: str, then: str = "done") -> dict[str, Any]:
    lines: list[dict[str, Any]] = [
        {"call": [{"tool": "shell", "args": {"command": command}}]} for command in commands
    ]
    turn = cli.json(
        "send", "ops/api", "go", "--model", cli.script(*lines, {"say": then}), "--as", "alice"
    )
    approval: dict[str, Any] = turn["approvals"][0]
    return approval


def answering(approval: dict[str, Any]) -> list[str]:
    return [
        sys.executable,
        "-m",
        "holdfast",
        "--json",
        "approvals",
        "answer",
        approval["id"],
        "approve_once",
        "--as",
        "alice",
        "--answer-id",
        "mine",
    ]


def killed_at(cli: Cli, strace: str, words: list[str], fault: SyscallFault) -> Said:
    said = run(strace, words, fault, paths=[], env=cli.env, cwd=cli.cwd, timeout_seconds=60)
    assert (said.code, said.out) == (-9, ""), said
    return said


def test_9_park_kill_approve(cli: Cli) -> None:
    """The tool runs once, the reply comes, no second prompt."""
    model = cli.script(
        {"call": [{"tool": "shell", "args": {"command": "echo ran >> ran.txt"}}]}, {"say": "done"}
    )
    cli.json("send", "ops/api", "hello", "--as", "alice")
    follower = cli.start("--json", "sessions", "follow", "ops/api", "--after", "0", "--forever")
    sender = cli.start("--json", "send", "ops/api", "go", "--model", model, "--as", "alice")
    assert follower.stdout is not None
    assert any('"approval_requested"' in line for line in follower.stdout)
    sender.kill()
    sender.wait()
    (approval,) = cli.json("approvals", "list")["approvals"]
    ran = cli.answer(approval)
    assert (ran.code, ran.json["outcome"], ran.json["reply"], cli.ran()) == (
        0,
        "completed",
        "done",
        1,
    )
    assert len(of(cli, "approval_requested")) == 1
    holds(cli)


def test_14_killed_after_the_answer_and_before_the_start(cli: Cli, tmp_path: Path) -> None:
    """It runs once, under the stored context."""
    approval = asked(cli, "echo ran >> ran.txt")
    (tmp_path / "sitecustomize.py").write_text(KILLED_BEFORE_THE_START)
    died = subprocess.run(
        answering(approval),
        env={**cli.env, "PYTHONPATH": str(tmp_path)},
        cwd=cli.cwd,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (died.returncode, died.stdout) == (-signal.SIGKILL, b"")
    assert (len(of(cli, "approval_answered")), of(cli, "tool_started"), cli.ran()) == (1, [], 0)
    before = of(cli, "input_accepted")[0]["context"]
    resumed = cli("--json", "resume")
    assert (resumed.code, resumed.json["outcome"], cli.ran()) == (0, "completed", 1)
    assert of(cli, "input_accepted")[0]["context"] == before
    assert (before["requester"], before["audience"]) == ("alice", "personal")
    assert cli.answer(approval, "approve_once", "--answer-id", "mine").json["result"] == "started"
    assert cli.ran() == 1
    holds(cli)


def test_15_killed_while_the_tool_ran(cli: Cli, began: Gate) -> None:
    """
    A surviving process group is ended first; the outcome is in doubt, told once to the model; the
    tool is not run again.
    """
    command = "echo ran >> ran.txt; sleep 1000 & echo $$ $! > began; wait"
    model = cli.script(
        {"call": [{"tool": "shell", "args": {"command": command}}]},
        {"expect": {"last_tool_result_contains": "doubt"}, "say": "told"},
    )
    approval = cli.json("send", "ops/api", "go", "--model", model, "--as", "alice")["approvals"][0]
    driver = cli.start(
        "--json", "approvals", "answer", approval["id"], "approve_once", "--as", "alice"
    )
    shell, sleeper = (process_of(each, cli.cwd) for each in began.hear().split())
    driver.kill()
    driver.wait()
    assert (is_alive(shell), is_alive(sleeper)) == (True, True)
    resumed = cli("--json", "resume", "ops/api")
    wait_until_gone(shell)
    wait_until_gone(sleeper)
    assert (resumed.code, resumed.json["reply"], cli.ran()) == (0, "told", 1)
    assert [each["outcome"] for each in of(cli, "call_finished")] == ["in_doubt"]
    holds(cli)


def test_15_an_equal_call_asks_again_whatever_grants_say(cli: Cli, began: Gate, hold: Gate) -> None:
    """And the prompt says that an earlier attempt is in doubt."""
    (cli.cwd / "bot.py").write_text(BOT)
    calls = {"call": [{"tool": "act", "args": {"what": "it"}}]}
    model = cli.script(calls, calls, {"say": "done"})
    words = ("--json", "--app", "bot:ops")
    approval = cli.json(*words[1:], "send", "ops/api", "go", "--model", model, "--as", "alice")[
        "approvals"
    ][0]
    driver = cli.start(
        *words, "approvals", "answer", approval["id"], "approve_session", "--as", "alice"
    )
    began.hear()
    driver.kill()
    driver.wait()
    assert len(cli.json("grants", "list")["grants"]) == 1
    resumed = cli(*words, "resume", "ops/api")
    (again,) = resumed.json["approvals"]
    assert (resumed.code, cli.ran()) == (3, 1)
    assert "in doubt" in again["display"] + again["reason"]
    hold.say("let go")
    done = cli(*words, "approvals", "answer", again["id"], "approve_once", "--as", "alice")
    assert (done.code, done.json["outcome"], cli.ran()) == (0, "completed", 2)
    holds(cli)


def test_17_a_second_client_does_not_disturb_a_running_call(
    cli: Cli, began: Gate, hold: Gate
) -> None:
    """
    Looking, following, resuming and writing from other processes: the execution is not abandoned.
    """
    approval = asked(cli, "echo ran >> ran.txt; echo here > began; read line < hold; echo $line")
    driver = cli.start(
        "--json", "approvals", "answer", approval["id"], "approve_once", "--as", "alice"
    )
    began.hear()
    assert cli.json("sessions", "show", "ops/api")["phase"] != "idle"
    assert (
        cli("--json", "send", "ops/api", "and this", "--as", "alice", "--no-wait").json["outcome"]
        == "queued"
    )
    resuming = cli.start("--json", "resume", "ops/api")
    assert cli.answer(approval, "deny", "--answer-id", "late").json["reason"] == "already_answered"
    hold.say("let go")
    out, err = driver.communicate(timeout=100)
    assert (driver.returncode, json.loads(out)["outcome"], err) == (0, "completed", "")
    resuming.communicate(timeout=100)
    assert (cli.ran(), [each["outcome"] for each in of(cli, "call_finished")]) == (1, ["ok"])
    holds(cli)


def test_48_stopped_in_the_middle_of_a_tool(cli: Cli, began: Gate) -> None:
    """It ends within a bounded time, ends the group, and the outcome is in doubt."""
    approval = asked(cli, "echo ran >> ran.txt; echo $$ > began; sleep 1000")
    driver = cli.start(
        "--json", "approvals", "answer", approval["id"], "approve_once", "--as", "alice"
    )
    shell = process_of(began.hear(), cli.cwd)
    driver.send_signal(signal.SIGTERM)
    _, err = driver.communicate(timeout=100)
    assert "Traceback" not in err
    wait_until_gone(shell)
    resumed = cli("--json", "resume", "ops/api")
    assert (resumed.code, cli.ran()) == (0, 1)
    assert [each["outcome"] for each in of(cli, "call_finished")] == ["in_doubt"]
    holds(cli)


def test_48_stopped_with_only_prompts_pending(cli: Cli) -> None:
    """It ends at once, and the prompt is answerable afterwards."""
    approval = asked(cli, "echo ran >> ran.txt")
    follower = cli.start("--json", "sessions", "follow", "ops/api", "--after", "0", "--forever")
    assert follower.stdout is not None
    follower.stdout.readline()
    follower.send_signal(signal.SIGTERM)
    follower.communicate(timeout=100)
    assert (cli.answer(approval).code, cli.ran()) == (0, 1)


# --- the order of sync and exec


class Traced:
    """
    The system calls of a traced command, in order: writes of records, syncs, and the exec of the command.
    """

    def __init__(self, cli: Cli, strace: str, words: list[str]) -> None:
        trace = cli.cwd / "trace"
        calls = "trace=pwrite64,fdatasync,fsync,execve,execveat"
        done = subprocess.run(
            [strace, "-f", "-y", "-s", "60000", "-o", str(trace), "-e", calls, *words],
            env=cli.env,
            cwd=cli.cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done
        self.lines = [
            line
            for line in trace.read_text(errors="replace").splitlines()
            if "resumed>" not in line or "sync" in line
        ]

    def first(self, *parts: str, after: int = -1) -> int:
        for number, line in enumerate(self.lines):
            if number > after and all(re.search(part, line) for part in parts):
                return number
        raise AssertionError(f"nothing like {parts} after line {after}")

    def durable(self, kind: str) -> int:
        """
        Where the file to which such a record was first written was next synced, by whichever
        thread.
        """
        written = self.first("pwrite64", rf"/sessions/.*type[\\\\\"]*:[\\\\\"]*{kind}")
        file = re.escape(self.lines[written].partition("<")[2].partition(">")[0])
        synced = self.first(rf"(fdatasync|fsync)\(\d+<{file}>", after=written)
        if "<unfinished" not in self.lines[synced]:
            assert self.lines[synced].endswith("= 0")
            return synced
        return self.first(
            rf"^{self.lines[synced].split()[0]} <... \S+ resumed>.*= 0$", after=synced
        )

    def execs(self, command: str) -> list[int]:
        """Where the command became a program. The launcher that waits for its byte does not count."""
        found = [
            number
            for number, line in enumerate(self.lines)
            if re.search(r"exec(ve|veat)\(", line) and command in line and "launch.py" not in line
        ]
        assert found, "the command was executed"
        return found


@pytest.mark.needs_system("strace")
def test_30_the_decision_and_the_start_are_durable_before_the_command(
    cli: Cli, needs: Callable[[str], str]
) -> None:
    """T1, P11: by the order of the kernel's calls."""
    approval = asked(cli, "echo ran >> ran.txt")
    traced = Traced(cli, needs("strace"), answering(approval))
    assert (
        traced.durable("approval_answered")
        < traced.durable("tool_started")
        < min(traced.execs("echo ran"))
    )
    assert cli.ran() == 1


@pytest.mark.needs_system("strace")
def test_51_an_answer_that_was_never_synced_is_made_durable_before_it_counts(
    cli: Cli, needs: Callable[[str], str]
) -> None:
    """
    Killed between write and sync: whoever resumes writes those bytes again and syncs them before
    anything runs.
    """
    approval = asked(cli, "echo ran >> ran.txt")
    killed_at(cli, needs("strace"), answering(approval), SyscallFault("fdatasync", "kill", 1))
    assert cli.ran() == 0
    traced = Traced(cli, needs("strace"), [sys.executable, "-m", "holdfast", "--json", "resume"])
    assert (
        traced.durable("approval_answered")
        < traced.durable("tool_started")
        < min(traced.execs("echo ran"))
    )
    assert cli.ran() == 1
    holds(cli)
