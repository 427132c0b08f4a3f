"""
The contract itself: one story per test, each step a process of its own.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast.testing.under.tools import Effects

SECONDS_MAX = 120  # for one process, on a slow machine with a large framework to import


class Processes:
    """Runs the steps of one story on one home."""

    def __init__(self, line: str, folder: Path, cwd: Path | None) -> None:
        self._line, self._folder, self._cwd = line, folder, cwd

    def run(self, do: str, **order: Any) -> dict[str, Any]:
        """Run one process to its end, and return its result."""
        ended = self._process(do, order)
        assert ended.returncode == 0, ended.stderr[-4000:]
        found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return found

    def dies(self, do: str, **order: Any) -> None:
        """Run one process that kill -9 ends."""
        ended = self._process(do, order)
        assert ended.returncode == -signal.SIGKILL, ended.stderr[-4000:]

    def _process(self, do: str, order: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
        command = [
            sys.executable,
            "-m",
            "holdfast.testing.under.process",
            self._line,
            str(self._folder),
            json.dumps({"do": do, **order}),
        ]
        return subprocess.run(  # noqa: S603  # this very interpreter, and the suite's own module
            command,
            cwd=self._cwd,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    @property
    def effects(self) -> list[str]:
        return Effects(self._folder).lines()

    def outcomes(self) -> dict[str, str]:
        return dict(self.run("calls")["calls"])


class UnderContract:
    """
    Subclass it and set `line` to `module:function`, an async function that runs the framework once
    for one message: `line(home, session, text, *, source, dedup, effects) -> RunEnd`. The same line
    again must go on where the turn stands.
    """

    line: ClassVar[str]
    cwd: ClassVar[Path | None] = None  # the folder from which `line` can be imported

    @pytest.fixture
    def processes(self, tmp_path: Path) -> Processes:
        return Processes(self.line, tmp_path, self.cwd)

    def test_a_prompt_survives_kill_9_a_stranger_is_refused_and_the_call_runs_once(
        self, processes: Processes
    ) -> None:
        message = {"text": "restart the api", "dedup": "m1"}
        processes.dies("line", **message, die=True)
        assert processes.effects == []
        assert processes.run("answer", by="bob")["answers"] == ["wrong_approver"]
        assert processes.run("line", **message)["turn"]["waiting"] is True
        answered = processes.run("answer")
        assert answered["answers"] == ["handed_on"]
        assert 'region: "eu-1"' in answered["shown"][0]
        turn = processes.run("line", **message)["turn"]
        assert (turn["waiting"], "api restarted in eu-1" in turn["text"]) == (False, True)
        assert processes.effects == ["restart api eu-1"]
        again = processes.run("line", **message)["turn"]
        assert (again["waiting"], again["model_calls"]) == (False, 0)
        assert processes.effects == ["restart api eu-1"]

    def test_a_kill_in_mid_tool_is_in_doubt_and_the_same_line_never_runs_it_again(
        self, processes: Processes
    ) -> None:
        message = {"text": "restart and die", "dedup": "m1"}
        assert processes.run("line", **message)["turn"]["waiting"] is True
        processes.run("answer")
        processes.dies("line", **message)
        turn = processes.run("line", **message)["turn"]
        assert (turn["waiting"], "n doubt" in turn["text"]) == (False, True)
        assert processes.effects == ["restart die eu-1"]
        assert processes.outcomes() == {"d1": "in_doubt"}

    def test_a_kill_in_mid_tool_is_reported_to_the_next_message(self, processes: Processes) -> None:
        message = {"text": "restart and die", "dedup": "m1"}
        processes.run("line", **message)
        processes.run("answer")
        processes.dies("line", **message)
        turn = processes.run("line", text="how is it?", dedup="m2")["turn"]
        assert (turn["waiting"], "n doubt" in turn["text"]) == (False, True)
        assert processes.effects == ["restart die eu-1"]

    def test_each_of_two_calls_continues_with_its_own_answer(self, processes: Processes) -> None:
        message = {"text": "restart two", "dedup": "m1"}
        assert processes.run("line", **message)["turn"]["waiting"] is True
        assert len(processes.run("answer", only="api")["answers"]) == 1
        assert processes.run("line", **message)["turn"]["waiting"] is True
        assert processes.effects == ["restart api eu-1"]
        assert len(processes.run("answer", option="deny")["answers"]) == 1
        turn = processes.run("line", **message)["turn"]
        assert (turn["waiting"], "denied" in turn["text"]) == (False, True)
        assert processes.effects == ["restart api eu-1"]
        assert processes.outcomes() == {"two-a": "ok", "two-b": "denied"}

    def test_an_edited_call_is_asked_again_and_runs_as_edited(self, processes: Processes) -> None:
        message = {"text": "restart the api", "dedup": "m1"}
        edited = processes.run("edit", **message)
        assert 'region: "us-1"' in edited["shown"]
        processes.run("answer")
        assert processes.run("line", **message)["turn"]["waiting"] is False
        assert processes.effects == ["restart api us-1"]

    def test_a_finished_call_is_not_repeated_when_the_line_runs_again(
        self, processes: Processes
    ) -> None:
        message = {"text": "note, then restart", "dedup": "m1"}
        processes.dies("line", **message, die=True)
        processes.run("answer")
        turn = processes.run("line", **message)["turn"]
        assert (turn["waiting"], "noted begun" in turn["text"]) == (False, True)
        assert processes.effects == ["note begun", "restart api eu-1"]

    def test_cancelled_in_mid_tool_is_in_doubt(self, processes: Processes) -> None:
        assert processes.run("cancel", text="wait for it", dedup="m1")["cancelled"] is True
        assert processes.outcomes() == {"s1": "in_doubt"}
        turn = processes.run("line", text="wait for it", dedup="m1")["turn"]
        assert (turn["waiting"], "n doubt" in turn["text"]) == (False, True)
        assert processes.effects == ["stall api"]

    def test_a_time_out_in_mid_tool_is_recorded_as_timed_out(self, processes: Processes) -> None:
        """A framework hands the time-out to its model, or leaves its run with an error."""
        message = {"text": "wait, but not for long", "dedup": "m1"}
        processes.run("fallible", **message)
        assert processes.outcomes() == {"t1": "timed_out"}
        turn = processes.run("line", **message)["turn"]
        assert (turn["waiting"], "time" in turn["text"].lower()) == (False, True)
        assert processes.effects == ["lag api"]

    def test_a_nested_agents_call_pauses_its_parent_and_runs_once(
        self, processes: Processes
    ) -> None:
        message = {"text": "ask the helper", "dedup": "m1"}
        processes.dies("line", **message, die=True)
        answered = processes.run("answer")
        assert answered["answers"] == ["handed_on"]
        assert "helper asks" in answered["shown"][0]
        turn = processes.run("line", **message)["turn"]
        assert (turn["waiting"], "api restarted" in turn["text"]) == (False, True)
        assert processes.effects == ["restart api eu-1"]

    def test_a_second_event_loop_is_refused_by_name(self, processes: Processes) -> None:
        refused = processes.run("two_loops", text="restart the api", dedup="m1")
        assert refused["refused"] == "other_event_loop"
