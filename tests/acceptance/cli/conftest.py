"""
Real processes on real homes: every test runs `python -m holdfast` as a person or a script would.

Nothing sleeps. Where two processes must meet, one waits for a line of `sessions follow` or for a
FIFO that the tool opens.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.warm import WarmProcess, WarmStart

COMMAND = [sys.executable, "-m", "holdfast"]

APPROVAL_FIELDS = {
    "id", "session", "instance", "turn", "call", "tool", "arguments", "display", "digest", "options", "may_answer", "requester", "audience",
    "boundary", "channel", "requested_at", "expires_at", "state", "closed_as", "answered_by", "option",
}  # fmt: skip
DEADLINE_SECONDS = 60.0  # for what takes a second; a test that gets here has failed
HELD = '''
"""A model that says that it was asked, and thinks until it is told what to say: two FIFOs, and no race against a clock."""
import asyncio
import os
from pathlib import Path

import holdfast
from holdfast.session.view.messages import ModelAnswer, ProposedCall

HERE = Path(__file__).parent


class Held:
    name = "held"
    context_tokens = None
    summarises = False

    async def call(self, request, *, on_text):
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        words = os.open(HERE / "words", os.O_RDONLY | os.O_NONBLOCK)
        loop.add_reader(words, told.set)
        try:
            asked = os.open(HERE / "asked", os.O_WRONLY | os.O_NONBLOCK)
            os.write(asked, b"asked\\n")
            os.close(asked)
            await told.wait()
            said = os.read(words, 4096).decode().strip()
        finally:
            loop.remove_reader(words)
            os.close(words)
        return ModelAnswer(text="", calls=(ProposedCall("now", "{}"),)) if said == "call now" else ModelAnswer(text=said)


held = holdfast.Agent("held", model=Held(), tools=["now"])
'''
TURN_FIELDS = {
    "session",
    "turn",
    "outcome",
    "reply",
    "approvals",
    "error",
    "usage",
    "seq",
    "superseded",
}
SESSION_FIELDS = {
    "session",
    "instance",
    "phase",
    "seq",
    "sealed",
    "journal",
    "quarantine",
    "turns",
    "owes",
    "usage",
}


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Cli:
    """`cli("send", "notes", "hello")` runs it in `cwd` on `home`; nobody's own settings leak in."""

    def __init__(self, home: Path, cwd: Path, warm: WarmStart | None) -> None:
        self.home = home
        self.cwd = cwd
        self._warm = warm
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOLDFAST_", "PYTEST"))
        }
        self.env |= {"HOLDFAST_HOME": str(home), "COLUMNS": "200"}
        self._started: list[subprocess.Popen[str] | WarmProcess] = []
        self._gates: tuple[Gate, ...] = ()

    def __call__(
        self,
        *words: str,
        env: dict[str, str] | None = None,
        stdin: str = "",
        prefix: Sequence[str] = (),
    ) -> Ran:
        own = {**self.env, **(env or {})}
        if self._warm is not None and not prefix and self._warm.begins_like(own):
            done = self._warm.run(words, cwd=self.cwd, env=own, stdin=stdin, seconds=100)
        else:
            done = subprocess.run(
                [*prefix, *COMMAND, *words],
                cwd=self.cwd,
                env=own,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    command = COMMAND

    def on(self, home: Path) -> "Cli":
        """The same place with another home."""
        return Cli(home, self.cwd, self._warm)

    def shell(self, script: str) -> "subprocess.CompletedProcess[str]":
        """For what only a shell does: redirections and pipes."""
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.cwd,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def json(self, *words: str, **more: Any) -> Any:
        """
        The object that a command prints which is expected to do its work; waiting for somebody is
        work done, too.
        """
        ran = self("--json", *words, **more)
        assert ran.code in {0, 3}, ran
        return ran.json

    def start(
        self, *words: str, env: dict[str, str] | None = None, **more: Any
    ) -> "subprocess.Popen[str] | WarmProcess":
        """A process that goes on beside the test; ended with it."""
        own = {**self.env, **(env or {})}
        process: subprocess.Popen[str] | WarmProcess
        if self._warm is not None and not more and self._warm.begins_like(own):
            process = self._warm.open(words, cwd=self.cwd, env=own)
        else:
            options: dict[str, Any] = {
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "stdin": subprocess.DEVNULL,
                "text": True,
                **more,
            }
            process = subprocess.Popen([*COMMAND, *words], cwd=self.cwd, env=own, **options)
        self._started.append(process)
        return process

    def wait_for_record(self, session: str, kind: str) -> dict[str, Any]:
        """Until the session's journal holds a record of that type."""
        follower = self.start("--json", "sessions", "follow", session, "--forever")
        assert follower.stdout is not None
        for line in follower.stdout:
            record: dict[str, Any] = json.loads(line)
            if record["type"] == kind:
                follower.kill()
                return record
        raise AssertionError(f"no {kind}: {follower.communicate()}")

    def script(self, *lines: dict[str, Any]) -> str:
        """A model that says these, one after the other."""
        path = self.cwd / f"script-{len(list(self.cwd.glob('script-*')))}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"script:{path}"

    def hold_the_model(self) -> tuple["Gate", "Gate"]:
        """
        For `--app held:held`: hear at the first that the model was asked; say at the second what it
        answers.
        """
        (self.cwd / "held.py").write_text(HELD)
        self._gates = Gate(self.cwd / "asked"), Gate(self.cwd / "words")
        return self._gates

    def settings(self, text: str) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "holdfast.toml").write_text(text)
        (self.home / "holdfast.toml").chmod(0o600)

    def ask(
        self, command: str = "echo ran >> ran.txt", *, session: str = "ops/api", who: str = "alice"
    ) -> dict[str, Any]:
        """A prompt that waits for an answer."""
        turn = self.json("send", session, f"run: {command}", "--as", who)
        assert turn["outcome"] == "waiting", turn
        approval: dict[str, Any] = turn["approvals"][0]
        return approval

    def answer(
        self,
        approval: dict[str, Any],
        option: str = "approve_once",
        *more: str,
        who: str = "alice",
        **rest: Any,
    ) -> Ran:
        return self(
            "--json", "approvals", "answer", approval["id"], option, "--as", who, *more, **rest
        )

    def ran(self) -> int:
        """How often the command of `ask` was run."""
        path = self.cwd / "ran.txt"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def break_journal(self, session: str = "ops/api") -> None:
        """As a stranger would: flip one bit in the middle of history."""
        path = Path(self.json("sessions", "show", session)["journal"][0])
        data = bytearray(path.read_bytes())
        data[data.index(b'"text":"') + 9] ^= 1
        path.write_bytes(data)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for gate in self._gates:
            gate.close()


class Gate:
    """A FIFO: whoever is on the other side says a line when it is there, or waits for one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR)  # of both sides, so that opening never waits

    def hear(self) -> str:
        """The line that comes; fails at the deadline."""
        heard, until = b"", time.monotonic() + DEADLINE_SECONDS
        while not heard.endswith(b"\n"):
            ready, _, _ = select.select([self._fd], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"nobody came to {self.path}"
            heard += os.read(self._fd, 4096)
        return heard.decode().strip()

    def say(self, text: str = "go") -> None:
        os.write(self._fd, text.encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def cli(tmp_path: Path, warm: WarmStart | None) -> Iterator[Cli]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    made = Cli(tmp_path / "home", workspace, warm)
    yield made
    made.close()


def everything_below(folder: Path) -> Sequence[tuple[str, int, bytes]]:
    """The files that are there, byte by byte: for commands that change nothing."""
    return sorted(
        (str(path), path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    )
