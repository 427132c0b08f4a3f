"""
The Nth-syscall campaign: a real process runs a full approval turn through the command line, and one
system call fails.

Afterwards these must hold:

- The journal verifies, and no crash is reported as tampering.
- Every acknowledged record is there.
- The tool ran at most once, and only after its durable consent.
- Authority is unchanged.
- The commands' output agrees with the journal.
- Sending, resuming and answering again finish the turn.
- There is no traceback, no hang and no exit code outside the contract.

`python -m proof.campaigns.campaign` sweeps everything; see `sweep.py`.
"""

import asyncio
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from proof.campaigns.fork_server import Warm, run_warm
from proof.campaigns.sweep import CaseVerdict, Phase, SweepCase, Tool, sweep
from proof.campaigns.syscalls import LIES, LIMIT, Said, SyscallFault, busiest, together
from proof.checkers.history import History, read_history
from proof.checkers.states import PromiseBroken

SESSION = "ops/api"
TIMEOUT_SECONDS = 60.0  # a clean command takes half a second; one that takes this long hangs
CALLS = (
    "pwrite64",
    "fdatasync",
    "fsync",
    "write",
    "rename,renameat,renameat2",
    "ftruncate",
    "openat",
    "unlink,unlinkat,rmdir",
    "mkdir,mkdirat",
    "link,linkat",
    "flock",
    "fallocate",
)
_ERRORS = ("kill", "EIO", "EIO+", "ENOSPC", "ENOSPC+", "EDQUOT", "EINTR")
_CONTRACT = frozenset({0, 1, 3, 5, 6})
_USAGE = 2
_SEALED = 4
_KILLED = -9
_LIMITS = range(0, 9000, 250)
BOT = '''
"""A tool that must not run twice: each run leaves a line."""
from pathlib import Path

import holdfast


@holdfast.tool
def act(what: str) -> str:
    """Do something that can't be undone."""
    with Path(__file__).with_name("ran.txt").open("a") as effects:
        effects.write("ran\\n")
    return f"did {what}"


ops = holdfast.Agent("ops", model="demo", tools=[act, "shell"])
'''
_ARGUMENTS: dict[Tool, dict[str, str]] = {
    "act": {"what": "it"},
    "shell": {"command": "echo ran >> ran.txt"},
}


def environment_for(home: Path) -> dict[str, str]:
    """Return the environment of a command on that home, without variables that could change it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "PYTEST", "PYTHON"))
    }
    # Keep no bytecode: otherwise a fault could be stored in the cached bytecode of our modules.
    return kept | {"HOLDFAST_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}


def write_script(path: Path, tool: Tool) -> None:
    """Write a script for a model that calls the tool once and ends."""
    lines: list[dict[str, Any]] = [
        {"call": [{"tool": tool, "args": _ARGUMENTS[tool], "id": "c1"}]},
        {"say": "done"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class CampaignRig:
    """
    A folder in which cases run one after the other: a workspace, a home, and copies of homes with
    an open prompt.
    """

    def __init__(self, folder: Path, strace: str) -> None:
        self._strace = strace
        self.folder, self.home, self.workspace = folder, folder / "home", folder / "workspace"
        self.workspace.mkdir(parents=True)
        (self.workspace / "bot.py").write_text(BOT)
        for tool in _ARGUMENTS:
            write_script(self.workspace / f"{tool}.jsonl", tool)
        self.env = environment_for(self.home) | {"COLUMNS": "200"}
        self._paths = [self.home / each for each in _PLACES]
        self._parked: dict[Tool, str] = {}
        self._traced: dict[tuple[Tool, Phase, str], Path] = {}
        self._warm = Warm(env=self.env, cwd=self.workspace)

    def close(self) -> None:
        self._warm.close()

    # --- commands

    def _words(self, *words: str) -> list[str]:
        return ["--json", "--app", "bot:ops", *words]

    def _sending(self, tool: Tool) -> list[str]:
        model = f"script:{self.workspace / tool}.jsonl"
        return self._words(
            "send", SESSION, "go", "--as", "alice", "--model", model, "--dedup", "one"
        )

    def _answering(self, approval: str) -> list[str]:
        return self._words(
            "approvals", "answer", approval, "approve_once", "--as", "alice", "--answer-id", "mine"
        )

    def say(
        self,
        words: Sequence[str],
        fault: SyscallFault | None = None,
        *,
        trace: tuple[str, Path] | None = None,
    ) -> Said:
        return run_warm(
            self._warm,
            self._strace,
            words,
            fault,
            paths=self._paths,
            timeout_seconds=TIMEOUT_SECONDS,
            trace=trace,
        )

    def ran(self) -> int:
        path = self.workspace / "ran.txt"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def history(self) -> History | None:
        """
        Read the history from a copy. Opening a home repairs it after a crash, and that is the
        commands' task.
        """
        copy = self.folder / "looked at"
        shutil.rmtree(copy, ignore_errors=True)
        if not self.home.exists():
            return None
        shutil.copytree(
            self.home, copy, symlinks=True, ignore=shutil.ignore_patterns("reserve", "run")
        )
        return asyncio.run(read_history(copy, SESSION))

    # --- starting points

    def begin(self, tool: Tool, phase: Phase) -> list[str]:
        """Create a new home, or one with an open prompt. Return the command to disturb."""
        (self.workspace / "ran.txt").unlink(missing_ok=True)
        shutil.rmtree(self.home, ignore_errors=True)
        if phase == "send":
            return self._sending(tool)
        if tool not in self._parked:
            waiting = json.loads(self.say(self._sending(tool)).out)
            self._parked[tool] = waiting["approvals"][0]["id"]
            shutil.copytree(self.home, self.folder / tool)
            shutil.rmtree(self.home)
        shutil.copytree(self.folder / tool, self.home)
        return self._answering(self._parked[tool])

    def places(self, tool: Tool, phase: Phase, call: str) -> int:
        """Return how many calls of this kind can be disturbed."""
        counted = together(call, CALLS)
        if (tool, phase, counted) not in self._traced:
            trace = self._traced[tool, phase, counted] = self.folder / f"trace-{len(self._traced)}"
            self.say(self.begin(tool, phase), trace=(counted, trace))
        return busiest(self._traced[tool, phase, counted], call)

    # --- one case

    def judge(self, case: SweepCase) -> CaseVerdict:
        words = self.begin(case.tool, case.phase)
        said = self.say(words, case.fault)
        lied = case.fault.harm in LIES
        problems = [*_problems_of_words(said, lied=lied), *_problems_of_silence(said)]
        history: History | None = None
        try:
            history = self.history()
            problems += _problems_of_history(history, said, self.ran(), lied=lied)
            if not is_sealed(history):
                problems += self._go_on(case, lied=lied)
                history = self.history()
                problems += ended_problems(history, self.ran(), lied=lied)
        except (PromiseBroken, HoldfastError) as exc:
            if not (lied and isinstance(exc, HoldfastError)):
                problems.append(f"{type(exc).__name__}: {exc}")
        if self.ran() > 1:
            problems.append(f"the tool ran {self.ran()} times")
        doubt = history is not None and "in_doubt" in history.outcomes()
        return CaseVerdict(
            case, tuple(problems), said.code not in {0, 3}, doubt, is_sealed(history)
        )

    def _go_on(self, case: SweepCase, *, lied: bool) -> Iterator[str]:
        """Continue as a person would: send again, drive the owed work, answer open prompts."""
        if case.phase == "send":
            yield from self._step(self._sending(case.tool), lied=lied)
        yield from self._step(self._words("resume"), lied=lied)
        history = self.history()
        for approval in history.state.approvals if history is not None else ():
            yield from self._step(self._answering(approval), lied=lied)

    def _step(self, words: list[str], *, lied: bool) -> Iterator[str]:
        said = self.say(words)
        yield from _problems_of_words(said, lied=lied)
        if said.code not in {0, 3} and not lied:
            yield f"{words[3:5]} afterwards exits {said.code}: {said.out}{said.err}"


_PLACES = (
    "", "keys", "anchors", "anchors/_home", "anchors/0000.anchors", "home", "sessions",
    "sessions/ops", "sessions/ops/api", "sessions/ops/api/driver",
    "quarantine", "quarantine/ops", "quarantine/ops/api", "run", "reserve",
    "index.db", "index.db-journal", "holdfast.toml",
)  # fmt: skip
"""Calls on these folders count for the files opened in them."""


def is_sealed(history: History | None) -> bool:
    return history is not None and (
        history.home_is_sealed
        or history.verdict.sealed
        or history.verdict.verdict not in {"holds", "torn_tail"}
    )


def ended_problems(history: History | None, ran: int, *, lied: bool) -> Iterator[str]:
    """
    Yield a problem unless the repeated commands finished the turn, it verifies, and the tool ran or
    its outcome gives the reason.
    """
    if lied and (history is None or is_sealed(history)):
        return
    if history is None:
        yield "no session in the end"
        return
    if history.verdict.verdict != "holds" or history.verdict.sealed:
        yield f"in the end: {history.verdict}"
    ended = [each.body["outcome"] for each in history.of("turn_ended")]
    if ended != ["completed"] or history.owes:
        yield f"in the end the turn is {ended}, owed: {history.owes}"
    if ran != 1 and not {"in_doubt", "error", "voided"} & set(history.outcomes()):
        yield f"the tool ran {ran} times, and its outcome is {history.outcomes()}"


def authority_problems(history: History) -> Iterator[str]:
    for each in history.of("input_accepted"):
        context = each.body["context"]
        if (context["requester"], context["audience"], context["boundary"]) != (
            "alice",
            "personal",
            "personal:alice",
        ):
            yield f"authority changed: {context}"


def _problems_of_words(said: Said, *, lied: bool) -> Iterator[str]:
    if said.code is None:
        yield f"it hangs: {said.out}{said.err}"
    elif (
        said.code not in _CONTRACT | {_KILLED}
        and not (lied and said.code == _SEALED)
        and not _is_about_settings(said)
    ):
        yield f"exit {said.code}: {said.out}{said.err}"
    if "Traceback" in said.err:
        yield f"a traceback: {said.err}"


def _is_about_settings(said: Said) -> bool:
    """
    Return whether the error is about settings. If settings can't be read, the command reports a
    usage error, because nothing was tried.
    """
    return said.code == _USAGE and _object(said.out).get("error", {}).get("code") == "settings"


def _problems_of_silence(said: Said) -> Iterator[str]:
    if said.code not in {None, _KILLED} and not said.out and not said.err:
        yield f"it exits {said.code} and says nothing"


def _problems_of_history(
    history: History | None, said: Said, ran: int, *, lied: bool
) -> Iterator[str]:
    """Check that acknowledged records are there and that the output is true."""
    told = _object(said.out)
    if history is None:
        if (told.get("outcome") not in {None, "failed"} and not lied) or ran:
            yield f"no session, and this was said: {said.out}"
        return
    if not lied and is_sealed(history):
        yield f"a false accusation: {history.verdict}"
    if is_sealed(history):
        return
    last = history.entries[-1].seq if history.entries else 0
    asked, answered = history.of("approval_requested"), history.of("approval_answered")
    if told.get("seq", 0) > last:
        yield f"record {told['seq']} was acknowledged, and {last} are there"
    for approval in told.get("approvals", []):
        if approval["id"] not in {each.body["approval"] for each in asked}:
            yield "a prompt was shown that is not there"
    if told.get("outcome") == "completed" and not history.of("turn_ended"):
        yield "an end was told that is not there"
    if told.get("result") in {"started", "handed_on"} and not answered:
        yield "an answer was acknowledged that is not there"
    in_doubt = (
        told.get("reason") == "in_doubt" and bool(answered) and answered[-1].seq == last
    )  # the output claims neither
    if told.get("result") == "failed" and answered and not in_doubt:
        yield f"an answer was refused as {told.get('reason')} that is there"
    started = history.of("tool_started")
    if ran and not (answered and started and answered[0].seq < started[0].seq):
        yield "the tool ran without a durable consent and start"
    yield from authority_problems(history)


def _object(out: str) -> dict[str, Any]:
    """Return the object that a program would read from stdout."""
    if not out.endswith("\n"):
        return {}
    found = json.loads(out.splitlines()[-1])
    return found if isinstance(found, dict) else {}


# --- the plan


def harms_for(call: str) -> tuple[str, ...]:
    """
    Return the harms for a call. An unlock never fails, and its number does not distinguish it from
    a lock.
    """
    match call:
        case "pwrite64":
            return (*_ERRORS, "lie", "short lie")
        case "flock":
            return ("kill", "EINTR")
        case "write":
            return tuple(
                each for each in _ERRORS if not each.endswith("+")
            )  # a process that can't write can't report it
        case _:
            return _ERRORS


def plan(
    rig: CampaignRig, *, tools: Iterable[Tool] = ("act", "shell"), calls: Iterable[str] = CALLS
) -> Iterator[SweepCase]:
    """Plan every place of every call with every harm, and every file size limit."""
    for tool in tools:
        for phase in ("send", "answer") if tool == "act" else ("answer",):
            for call in calls:
                if call == LIMIT or (tool, call) == (
                    "shell",
                    "write",
                ):  # most writers there are other programs: the launcher, the shell, bubblewrap
                    continue
                for when in range(1, rig.places(tool, phase, call) + 1):
                    yield from (
                        SweepCase(tool, phase, SyscallFault(call, harm, when))
                        for harm in harms_for(call)
                    )
            yield from (
                SweepCase(tool, phase, SyscallFault(LIMIT, "short", when)) for when in _LIMITS
            )


def main(arguments: list[str] | None = None) -> int:
    return sweep(
        arguments,
        name="campaign",
        rig=CampaignRig,
        plan=lambda rig, calls, tools: plan(rig, tools=tools, calls=calls),
        calls=CALLS,
    )


if __name__ == "__main__":
    logging.disable()  # the campaign creates torn tails and similar damage on purpose
    sys.exit(main())
