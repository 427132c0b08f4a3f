"""A hook that can't say its decision blocks the call: only exit code 2 does that."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.token_form import token_of

# A hook decides about this event by itself, without a server.
EVENT = json.dumps({"hook_event_name": "Other", "tool_name": "Bash", "tool_input": {}}).encode()
BLOCKED = 2


def close_stdin() -> None:
    os.close(0)


def close_stdout() -> None:
    os.close(1)


def fill_stdout() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def leave_stdout() -> None:
    hear, say = os.pipe()
    os.dup2(say, 1)
    os.close(hear)


def test_a_hook_does_not_wait_for_a_token_that_never_comes(tmp_path: Path) -> None:
    """A hook that waits is ended by its agent, which then runs the tool."""
    os.mkfifo(tmp_path / "token", 0o600)
    hook = [sys.executable, "-m", "holdfast", "--home", str(tmp_path), "hook", "claude-code"]
    done = subprocess.run(
        [*hook, "--token-file", str(tmp_path / "token")],
        input=EVENT.replace(b"Other", b"PreToolUse"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (BLOCKED, b"")
    assert b"is not a file" in done.stderr


@pytest.mark.parametrize("broken", [close_stdin, close_stdout, fill_stdout, leave_stdout])
def test_a_hook_that_cannot_read_or_say_blocks_the_call(
    tmp_path: Path, broken: Callable[[], None]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--home", str(tmp_path), "hook", "claude-code"],
        input=EVENT,
        capture_output=True,
        timeout=60,
        check=False,
        preexec_fn=broken,
    )
    assert (done.returncode, done.stdout) == (BLOCKED, b"")
    assert done.stderr.startswith(b"Holdfast")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"tool_name": "Bash", "tool_input": {}}, b"start it with `holdfast serve`"),
        ({"tool_input": {}}, b"missing required field `tool_name`"),
    ],
)
def test_a_hook_that_fails_names_the_reason_and_the_next_step(
    tmp_path: Path, event: dict[str, object], words: bytes
) -> None:
    """The agent shows these words to the person whose call was blocked."""
    gateway = ["--url", "http://127.0.0.1:1"]  # nobody listens at port 1
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--home", str(tmp_path), "hook", "codex", *gateway],
        input=json.dumps(event).encode(),
        env={**os.environ, "HOLDFAST_TOKEN": token_of(bytes(32))},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (BLOCKED, b"")
    assert words in done.stderr
