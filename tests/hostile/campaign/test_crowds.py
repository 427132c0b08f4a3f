"""
Many processes, many tasks, one home: every message is answered once, in its sender's order, and
nobody is ever accused.

Real processes through the library, let go at once by a line on their stdin. The histories are
judged by `proof.checkers.history` and by what was told.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proof.checkers.history import History, read_history

WORKER = Path(__file__).with_name("worker.py")
PROCESSES = 8
TASKS = 8
CROWD_SECONDS_MAX = 1500  # a fraction of it on any machine; the tests' own limits are lower


@contextmanager
def workers(commands: list[list[str]]) -> Iterator[list["subprocess.Popen[str]"]]:
    """Started, and each has said that it is ready."""
    made = [
        subprocess.Popen(
            [sys.executable, str(WORKER), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in commands
    ]
    try:
        for process in made:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()
        yield made
    finally:
        for process in made:
            process.kill()
            process.communicate()


def let_go(processes: list["subprocess.Popen[str]"]) -> list[str]:
    """All at once; what they said in the end."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=CROWD_SECONDS_MAX) for process in processes]
    assert [err for _, err in ended if err] == []
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [line for out, _ in ended for line in out.splitlines()]


def judged(home: Path, session: str, senders: int, each: int) -> History:
    """
    Every accepted message is in one turn, which ended once; a sender's are in order; epochs of
    drivers rise.
    """
    history = asyncio.run(read_history(home, session))
    assert history is not None
    assert (history.verdict.verdict, history.verdict.sealed, history.owes) == ("holds", False, ())
    texts = {
        entry.body["input"]: entry.body["text"].removeprefix("act what=")
        for entry in history.of("input_accepted")
    }
    assert len(texts) == senders * each
    taken = [texts[name] for entry in history.of("turn_started") for name in entry.body["inputs"]]
    assert sorted(taken) == sorted(texts.values()), "a message was taken twice, or never"
    for sender in {text.rpartition("-")[0] for text in taken}:
        own = [text for text in taken if text.startswith(f"{sender}-")]
        assert own == sorted(own, key=lambda text: int(text.rpartition("-")[2]))
    ended = Counter(entry.body["turn"] for entry in history.of("turn_ended"))
    assert set(ended.values()) == {1}
    assert set(ended) == {entry.body["turn"] for entry in history.of("turn_started")}
    epochs = [entry.body["epoch"] for entry in history.of("turn_started")]
    assert epochs == sorted(epochs)
    return history


def crowd_on(folder: Path, sessions: list[str], each: int) -> None:
    home = folder / "home"
    commands = [
        ["crowd", str(home), str(number), str(TASKS), str(each), *sessions]
        for number in range(PROCESSES)
    ]
    with workers(commands) as processes:
        said = let_go(processes)
    outcomes = Counter(line.split()[3] for line in said)
    assert outcomes == {"completed": PROCESSES * TASKS * each * len(sessions)}
    started = 0
    for session in sessions:
        started += len(judged(home, session, PROCESSES * TASKS, each).of("tool_started"))
    assert (
        len((folder / "effects").read_text().splitlines())
        == started
        == PROCESSES * TASKS * each * len(sessions)
    )


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("crowd")
def test_eight_processes_of_eight_tasks_on_one_session(tmp_path: Path) -> None:
    """L1, L5, L7, A7, T4, T7."""
    crowd_on(tmp_path, ["ops/api"], 1)


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("crowd")
def test_eight_processes_of_eight_tasks_on_many_sessions(tmp_path: Path) -> None:
    crowd_on(tmp_path, ["ops/a", "ops/b", "ops/c"], 1)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "sessions", [["ops/api"], [f"ops/s{number}" for number in range(8)]], ids=["one", "many"]
)
def test_a_crowd_that_stays(tmp_path: Path, sessions: list[str]) -> None:
    """A soak of owned writers: not one takeover."""
    crowd_on(tmp_path, sessions, 8)


def pair_off(folder: Path, times: int) -> None:
    """
    Both append at the same moment, again and again: whoever drives gives up just when the other's
    message comes, or does not.
    """
    home = folder / "home"
    commands = [["pairs", str(home), name, "ops/api"] for name in ("left", "right")]
    with workers(commands) as processes:
        for number in range(times):
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"-{number}\n")
                process.stdin.flush()
            for process, name in zip(processes, ("left", "right"), strict=True):
                assert process.stdout is not None
                assert process.stdout.readline() == f"told {name} -{number} completed\n"
    judged(home, "ops/api", 2, times)


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("crowd")
def test_nothing_owed_is_left_undriven_when_a_driver_gives_up(tmp_path: Path) -> None:
    """Case 52: the last driver gives up while another process appends."""
    pair_off(tmp_path, 60)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nothing_owed_is_left_undriven_a_thousand_times(tmp_path: Path) -> None:
    pair_off(tmp_path, 1000)
