"""
Real processes, killed with -9 at every step between a parent and its delegate: one delegate, one
run, one reply, nothing left owed.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("delegating.py")

POINTS = [
    "delegate_started@ops",  # started, not created
    "created@",
    pytest.param(
        "turn_parked@ops", marks=pytest.mark.long
    ),  # created, and the parent is parked on it
    "turn_parked@delegate",  # parked on a person
    "approval_answered@delegate",
    "turn_ended@delegate",  # over, and not reported
    "call_finished@ops",  # reported, and the delegate does not know
    pytest.param(
        "delegate_reported@delegate", marks=pytest.mark.long
    ),  # before the parent's next model call
    pytest.param("turn_resumed@ops", marks=pytest.mark.long),
]


def run(folder: Path, verb: str, point: str) -> subprocess.CompletedProcess[bytes]:
    args = [sys.executable, str(WORKER), verb, str(folder / "home"), str(folder / "effects"), point]
    return subprocess.run(args, capture_output=True, timeout=120, check=False)


def told(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_between_parent_and_delegate_loses_nothing_and_does_nothing_twice(
    tmp_path: Path, point: str
) -> None:
    """
    T7, A3: whatever was owed is found again by the next process, and the person is asked once.
    """
    above = [
        {"call": [{"tool": "delegate_helper", "args": {"task": "deploy"}}]},
        {"expect": {"last_tool_result_contains": "deployed"}, "say": "done"},
    ]
    below = [{"call": [{"tool": "act", "args": {"what": "deploy"}}]}, {"say": "deployed"}]
    (tmp_path / "ops.jsonl").write_text("\n".join(map(json.dumps, above)))
    (tmp_path / "helper.jsonl").write_text("\n".join(map(json.dumps, below)))
    first = run(tmp_path, "send", point)
    killed = first if first.returncode == -signal.SIGKILL else run(tmp_path, "answer", point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    found = told(run(tmp_path, "finish", "none"))
    assert found == {
        "reply": "done",
        "parents": ["ops/api", None],
        "phases": ["idle", "idle"],
        "owing": [],
    }
    assert (tmp_path / "effects").read_text() == "deploy\n"
