"""Holdfast itself is killed between a call to a server and its reply."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import DEADLINE_SECONDS, Cli
from tests.adapters.mcp.conftest import ECHO, Rig

pytestmark = pytest.mark.needs_system("bwrap")


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def beside(mcp: Cli, *words: str) -> subprocess.Popen[bytes]:
    """Start a command as a process of its own, to be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        cwd=mcp.cwd,
        env=mcp.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def pinned_rig(cli: Cli, tmp_path: Path) -> tuple[Rig, Cli]:
    folder = tmp_path / "rig"
    folder.mkdir()
    rig = Rig(folder)
    mcp = cli.on(rig.home)
    (server,) = mcp.json("mcp", "list")["servers"]
    mcp.json("mcp", "pin", "wire", "--digest", server["tools"][0]["digest"])
    return rig, mcp


def answer_and_kill(mcp: Cli, rig: Rig, approval: str, *words: str, calls: int) -> None:
    """Answer in a process of its own, and kill that process while the server has the call."""
    answering = beside(mcp, "approvals", "answer", approval, *words)
    until(lambda: len(rig.got()) == calls, "the server did not get the call")
    os.kill(answering.pid, signal.SIGKILL)
    answering.wait()


def test_a_killed_holdfast_leaves_the_call_in_doubt_and_no_server_behind(
    cli: Cli, tmp_path: Path
) -> None:
    rig, mcp = pinned_rig(cli, tmp_path)
    (approval,) = mcp.json("send", "ops/a", "wire.echo text=hi")["approvals"]
    rig.plan(tools=[ECHO], call={"do": "hang"})
    answering = beside(mcp, "approvals", "answer", approval["id"], "approve_once")
    until(rig.got, "the server did not get the call")
    (note,) = (rig.home / "run/mcp").glob("mcp-*.json")
    leader = json.loads(note.read_bytes())["server"]["group"]
    os.kill(answering.pid, signal.SIGKILL)
    answering.wait()

    rig.plan(tools=[ECHO])
    resumed = mcp.json("resume", "ops/a")
    assert "in doubt" in resumed["reply"].lower()
    assert len(rig.got()) == 1
    again = mcp.json("send", "ops/a", "wire.echo text=hi")
    assert [each["kind"] for each in again["approvals"][0]["risks"]] == ["in_doubt_twin"]
    until(lambda: not lives(leader), "the server outlived its owner")
    assert list((rig.home / "run/mcp").glob("mcp-*.json")) == []


def test_a_kill_between_two_rounds_loses_no_question_and_sends_nothing_twice(
    cli: Cli, tmp_path: Path
) -> None:
    """The question outlives its process; a kill in the second round leaves the call in doubt."""
    rig, mcp = pinned_rig(cli, tmp_path)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = {"message": "Your name?", "requestedSchema": schema}
    asks = {"inputRequests": {"q": {"method": "elicitation/create", "params": params}}}
    rig.plan(tools=[ECHO], call={"do": "ask", "asks": asks})
    (approval,) = mcp.json("send", "ops/a", "wire.echo text=hi")["approvals"]
    mcp.json("approvals", "answer", approval["id"], "approve_once")
    (question,) = mcp.json("approvals", "list")["approvals"]
    assert (question["kind"], len(rig.got())) == ("question", 1)
    mcp.json("resume", "ops/a")
    assert len(rig.got()) == 1  # a standing question is not a reason to call again

    rig.plan(tools=[ECHO], call={"do": "hang"})
    answer_and_kill(mcp, rig, question["id"], "answer", "--reason", "Ada", calls=2)
    rig.plan(tools=[ECHO])
    resumed = mcp.json("resume", "ops/a")
    assert "in doubt" in resumed["reply"].lower()
    assert len(rig.got()) == 2
    assert rig.got()[1]["params"]["inputResponses"]["q"]["content"] == {"name": "Ada"}


def test_a_killed_follower_leaves_a_task_that_is_asked_for_again_and_never_started(
    cli: Cli, tmp_path: Path
) -> None:
    rig, mcp = pinned_rig(cli, tmp_path)
    task = {"resultType": "task", "taskId": "t-1", "status": "working", "pollIntervalMs": 200}
    working = {"taskId": "t-1", "status": "working"}
    call = {"do": "result", "result": task}
    rig.plan(tools=[ECHO], call=call, tasks={"tasks/get": working})
    (approval,) = mcp.json("send", "ops/a", "wire.echo text=hi")["approvals"]
    mcp.json("approvals", "answer", approval["id"], "approve_once")
    (job,) = mcp.json("jobs", "list")["jobs"]
    assert (job["host"], job["state"]) == ("server", "running")
    following = beside(mcp, "jobs", "follow", job["id"])
    before = len(rig.got("tasks/get"))
    until(lambda: len(rig.got("tasks/get")) > before + 1, "the task was not asked for")
    os.kill(following.pid, signal.SIGKILL)
    following.wait()

    result = {"content": [{"type": "text", "text": "all done"}]}
    done = {"taskId": "t-1", "status": "completed", "result": result}
    rig.plan(tools=[ECHO], call=call, tasks={"tasks/get": done})
    shown = mcp.json("jobs", "show", job["id"])
    assert (shown["outcome"], shown["text"]) == ("ok", "all done")
    mcp.json("resume", "ops/a")
    assert len(rig.got()) == 1
