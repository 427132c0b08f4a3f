"""Real processes on real homes, as tests/acceptance/cli has them."""

import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import DEADLINE_SECONDS, Cli, Gate, cli

__all__ = ["Cli", "Gate", "began", "cli", "hold", "is_alive", "process_of", "wait_until_gone"]


@pytest.fixture
def began(cli: Cli) -> Iterator[Gate]:
    gate = Gate(cli.cwd / "began")
    yield gate
    gate.close()


@pytest.fixture
def hold(cli: Cli) -> Iterator[Gate]:
    gate = Gate(cli.cwd / "hold")
    yield gate
    gate.close()


def process_of(number: str | int, folder: Path) -> int:
    """
    The process that works in this folder and calls itself so: an isolated command has numbers of
    its own.
    """
    for entry in Path("/proc").iterdir():
        try:
            inside = next(
                line
                for line in (entry / "status").read_text().splitlines()
                if line.startswith("NSpid:")
            ).split()[-1]
            if inside == str(number).strip() and folder.samefile(entry / "cwd"):
                return int(entry.name)
        except (OSError, StopIteration):
            continue
    raise AssertionError(f"nobody in {folder} calls itself {number}")


def wait_until_gone(pid: int) -> None:
    """
    Until the process has ended; it is nobody's child here, so it is looked for, a bounded number of
    times.
    """
    until = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state in "ZX":
            return
        select.select([], [], [], 0.01)
    raise AssertionError(f"{pid} lives on")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
