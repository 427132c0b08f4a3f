"""
The story of `holdfast demo`, with real processes on a real home: ask, pause, kill -9, restart, a
stranger, an answer, and a changed byte.

Every step checks its claim and raises NotShown if it does not hold. Each `holdfast` here is its own
process, so only files carry state between steps. The effect is a line appended to a file, so that
running twice would show.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.cli.commands.demo.pseudo_terminal import NotSeen, PseudoTerminal
from holdfast.cli.shared.identity import login

SESSION = "demo/deploys"
LINE = "api v2 deployed"
COMMAND = f"echo '{LINE}' >> deploys.log"
_SECONDS_MAX = 60.0  # for one command; each takes a fraction of a second
_KILLED = -9


class NotShown(Exception):
    """A step did not show its claim."""


class StoryStep(NamedTuple):
    """`says` is for a newcomer; `shows` is the real output of the commands."""

    name: str
    says: str
    shows: tuple[str, ...] = ()


class CommandRun(NamedTuple):
    code: int
    value: Mapping[str, Any]


class Story:
    """A home in `folder`, and a workspace beside it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self._log = self.workspace / "deploys.log"
        self._stranger = "mallory" if login() != "mallory" else "eve"
        self._prompt: Mapping[str, Any] = {}

    def steps(self) -> Iterator[StoryStep]:
        with self._chatting() as terminal:
            yield self._ask(terminal)
            yield self._pause(terminal)
            yield self._kill(terminal)
        yield self._restart()
        yield self._stranger_answers()
        yield self._approve()
        yield self._once()
        yield self._answer_again()
        changed, line_at = self._change_a_byte()
        yield changed
        yield self._verify(line_at)
        yield self._sealed()

    # --- before the crash

    def _chatting(self) -> PseudoTerminal:
        return PseudoTerminal(
            [*self._program(), "chat", SESSION], env=_environment(), cwd=str(self.workspace)
        )

    def _ask(self, terminal: PseudoTerminal) -> StoryStep:
        _seen(terminal, "you>")
        terminal.type(f"run: {COMMAND}\r")
        _seen(terminal, COMMAND)
        pid = terminal.process.pid
        return StoryStep(
            "ask",
            f"You ask an agent to do something real, in `holdfast chat` (process {pid}).",
            (f"you> run: {COMMAND}",),
        )

    def _pause(self, terminal: PseudoTerminal) -> StoryStep:
        """The prompt is on the screen and on disk: another process reads it there."""
        _seen(terminal, "answer>")
        listed = self._run("approvals", "list")
        waiting = listed.value.get("approvals", [])
        _claim(listed.code == 0 and len(waiting) == 1, f"one prompt should wait: {listed}")
        self._prompt = waiting[0]
        _claim(
            COMMAND in self._prompt["display"] and self._prompt["state"] == "requested",
            f"the prompt should show the command: {self._prompt}",
        )
        self._claim_lines(0)
        options = ", ".join(self._prompt["options"])
        shows = (*self._prompt["display"].splitlines(), f"options: {options}")
        return StoryStep(
            "pause",
            "It may not just do that, so the turn stops on disk and asks you. Nothing has run. "
            "This is the prompt:",
            shows,
        )

    def _kill(self, terminal: PseudoTerminal) -> StoryStep:
        pid = terminal.process.pid
        code = terminal.kill()
        _claim(
            code == _KILLED, f"process {pid} should have died of signal 9, not ended with {code}"
        )
        self._claim_lines(0)
        return StoryStep(
            "kill -9",
            "While it waits for you, the process is killed. No goodbye, no chance to save "
            "anything.",
            (f"$ kill -9 {pid}",),
        )

    # --- after the crash

    def _restart(self) -> StoryStep:
        listed = self._run("approvals", "list")
        _claim(
            list(listed.value.get("approvals", [])) == [self._prompt],
            f"the same prompt should stand, byte for byte: {listed}",
        )
        held = self._run("verify")
        _claim(held.code == 0, f"the journal should hold: {held}")
        shows = (
            "$ holdfast approvals list",
            f"{self._prompt['id']}  {self._prompt['tool']}  {self._prompt['digest'][:16]}...",
        )
        return StoryStep(
            "restart",
            "A new process finds the prompt standing: the same id, the same digest of what would "
            "run.",
            shows,
        )

    def _stranger_answers(self) -> StoryStep:
        refused = self._answer("--as", self._stranger)
        _claim(
            refused.code == 6 and refused.value.get("reason") == "wrong_approver",  # noqa: PLR2004
            f"a stranger's answer should be refused: {refused}",
        )
        self._claim_lines(0)
        shows = (
            f"$ holdfast approvals answer {self._prompt['id']} approve_once --as {self._stranger}",
            _error(refused),
        )
        return StoryStep(
            "a stranger",
            f"{self._stranger.capitalize()}, who may not answer, says yes: that is refused, and "
            "the refusal is recorded.",
            shows,
        )

    def _approve(self) -> StoryStep:
        answered = self._answer()
        _claim(
            answered.code == 0 and answered.value.get("outcome") == "completed",
            f"your answer should complete the turn: {answered}",
        )
        shows = (
            f"$ holdfast approvals answer {self._prompt['id']} approve_once",
            str(answered.value.get("reply")),
        )
        return StoryStep(
            "approve",
            "You say yes, to exactly what was shown. The turn goes on where it stopped, in this "
            "process.",
            shows,
        )

    def _once(self) -> StoryStep:
        self._run("resume")
        self._claim_lines(1)
        starts = [record for _, record in self._records() if record["type"] == "tool_started"]
        _claim(len(starts) == 1, f"the journal should have one start, not {len(starts)}")
        shows = ("$ cat deploys.log", *self._lines())
        return StoryStep(
            "once",
            "It ran once: one line in the file, one start in the journal. `holdfast resume` finds "
            "nothing left to do.",
            shows,
        )

    def _answer_again(self) -> StoryStep:
        refused = self._answer()
        _claim(
            refused.code == 6 and refused.value.get("reason") == "already_answered",  # noqa: PLR2004
            f"a second answer should be refused: {refused}",
        )
        self._claim_lines(1)
        return StoryStep(
            "answer again",
            "The same approval a second time: refused. A consent is used up by what it allowed.",
            (_error(refused),),
        )

    # --- tampering

    def _change_a_byte(self) -> tuple[StoryStep, tuple[Path, int]]:
        """
        Tamper as somebody would who wants the history to show that version 3 was approved: same
        size, one byte, times put back.
        """
        path, at, line_at = self._place_to_forge()
        before = path.stat()
        data = bytearray(path.read_bytes())
        data[at] = ord("3")
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        step = StoryStep(
            "a changed byte",
            "Somebody edits the history: version 2 becomes version 3, in one byte.",
            (f"{path.name}: byte {at}: '2' -> '3'",),
        )
        return step, (path, line_at)

    def _place_to_forge(self) -> tuple[Path, int, int]:
        for path in map(Path, self._run("sessions", "show", SESSION).value["journal"]):
            data = path.read_bytes()
            at = data.find(b"api v2")
            if at >= 0:
                return path, at + len(b"api v"), data.rfind(b"\n", 0, at) + 1
        raise NotShown("the journal should hold what was asked for, in plain text")

    def _verify(self, line_at: tuple[Path, int]) -> StoryStep:
        found = self._run("verify", SESSION)
        verdicts = found.value.get("sessions", [])
        _claim(found.code == 4 and len(verdicts) == 1, f"verify should not believe it: {found}")  # noqa: PLR2004
        verdict, (path, byte) = verdicts[0], line_at
        _claim(verdict["verdict"] == "broken", f"the verdict should be broken: {verdict}")
        _claim(
            Path(verdict["segment"]).name == path.name and verdict["byte"] == byte,
            f"it should point to byte {byte} of {path.name}: {verdict}",
        )
        where = (
            f"{verdict['verdict']}: {path.name}, the record at byte {verdict['byte']}; good up to"
            f" record {verdict['at_seq']}"
        )
        return StoryStep(
            "verify",
            "Every record carries a keyed code chained to the one before. Verify says what no "
            "longer holds, and where.",
            (where,),
        )

    def _sealed(self) -> StoryStep:
        refused = self._run("send", SESSION, "what time is it?")
        _claim(refused.code == 4, f"a session that can't be believed should refuse: {refused}")  # noqa: PLR2004
        self._claim_lines(1)
        hint = (refused.value.get("error") or {}).get("hint", "")
        says = (
            "The session is sealed: it can be read and exported, but it does nothing more until a"
            " person decides."
        )
        return StoryStep("sealed", says, (_error(refused), *([f"next: {hint}"] if hint else [])))

    # --- helpers

    def _program(self) -> list[str]:
        return [sys.executable, "-P", "-m", "holdfast", "--home", str(self.home)]

    def _run(self, *arguments: str) -> CommandRun:
        done = subprocess.run(  # noqa: S603  # ourselves
            [*self._program(), "--json", *arguments],
            cwd=self.workspace,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
        try:
            value = json.loads(done.stdout.splitlines()[0]) if done.stdout.strip() else {}
        except ValueError:
            value = {}
        return CommandRun(
            done.returncode, value or {"stderr": done.stderr.decode(errors="replace")[-2000:]}
        )

    def _answer(self, *more: str) -> CommandRun:
        return self._run("approvals", "answer", self._prompt["id"], "approve_once", *more)

    def _lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []

    def _claim_lines(self, count: int) -> None:
        lines = self._lines()
        _claim(lines == [LINE] * count, f"deploys.log should have {count} line(s), not {lines}")

    def _records(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Return the journal as anybody can read it: a JSON object on each line."""
        for path in map(Path, self._run("sessions", "show", SESSION).value["journal"]):
            for line in path.read_bytes().splitlines():
                record = json.loads(line)
                yield path, record if "type" in record else {"type": None}


def _claim(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotShown(otherwise)


def _seen(terminal: PseudoTerminal, text: str) -> None:
    try:
        terminal.wait_until_seen(text, within_seconds=_SECONDS_MAX)
    except NotSeen as exc:
        raise NotShown(f"`holdfast chat`: {exc}") from exc


def _error(ran: CommandRun) -> str:
    error = ran.value.get("error") or {}
    return f"{error.get('code')}: {error.get('message')}"


def _environment() -> dict[str, str]:
    """Return this process's environment, without settings of the user's own home."""
    return {name: value for name, value in os.environ.items() if name != "HOLDFAST_HOME"}
