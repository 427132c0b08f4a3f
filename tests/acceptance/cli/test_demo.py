"""
`holdfast demo`: the story holds, says so, leaves nothing behind, and fails loudly when a step does
not hold.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.commands.demo.command import _command, _tell
from holdfast.cli.commands.demo.story import NotShown, Story
from holdfast.cli.shared.options import Options

README = Path(__file__).parents[3] / "README.md"

STEPS = [
    "ask",
    "pause",
    "kill -9",
    "restart",
    "a stranger",
    "approve",
    "once",
    "answer again",
    "a changed byte",
    "verify",
    "sealed",
]


def demo(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "HOLDFAST_HOME": str(tmp_path / "the users own home"),
    }
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=env,
    )


def test_every_step_shows_what_it_claims_and_nothing_is_left_behind(tmp_path: Path) -> None:
    """The story of the README, with a real kill -9."""
    done = demo(tmp_path, "--json")
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, [step.get("name") for step in steps[:-1]]) == (0, STEPS), (
        done.stdout + done.stderr
    )
    assert all(step["ok"] for step in steps)
    assert list(tmp_path.iterdir()) == []


def test_it_reads_as_text_and_keeps_what_it_is_asked_to_keep(tmp_path: Path) -> None:
    """Without a terminal there is no colour; `--keep` leaves the home to look at."""
    done = demo(tmp_path, "--keep")
    assert (done.returncode, "\x1b" in done.stdout, "All 11 steps held" in done.stdout) == (
        0,
        False,
        True,
    ), done.stdout + done.stderr
    kept = next(tmp_path.glob("holdfast-demo-*"))
    assert (kept / "work" / "deploys.log").read_text() == "api v2 deployed\n"
    shown = re.findall(r"^ ?[0-9]+\. .+", README.read_text(), re.MULTILINE)
    assert len(shown) == 3
    assert [line for line in shown if line not in done.stdout.splitlines()] == []


def test_it_opens_no_outside_socket(tmp_path: Path, needs: object) -> None:
    """No network: no process of it asks the kernel for an internet socket."""
    strace = needs("strace")  # type: ignore[operator]
    trace = tmp_path / "trace"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    tracing = [
        strace,
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-e",
        "trace=socket,connect",
        "-e",
        "signal=none",
        "-o",
        str(trace),
    ]
    done = subprocess.run(
        [*tracing, sys.executable, "-m", "holdfast", "demo"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in trace.read_text().splitlines() if "AF_INET" in line] == []


def test_a_step_that_does_not_hold_ends_it_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo claims nothing that it has not checked."""

    def fail(_: Story, __: object) -> None:
        raise NotShown("the tool ran twice")

    monkeypatch.setattr(Story, "_ask", fail)
    assert _tell(Options(), tmp_path, 0.0, "") == 1
    assert capsys.readouterr().out == "Step 1 did not show what it claims: the tool ran twice\n"


def test_the_demo_ends_with_a_command_that_the_reader_can_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`make demo` installs into an environment that is not on the reader's PATH."""
    script = Path(sys.executable).parent / "holdfast"
    monkeypatch.setenv("PATH", str(script.parent))
    assert _command() == "holdfast"
    monkeypatch.setenv("PATH", "/nowhere")
    assert _command() == str(script)
