"""Real processes on real homes, as tests/cli has them."""

import select
import time
from pathlib import Path

from tests.cli.conftest import DEADLINE_SECONDS, Cli, Gate, cli

__all__ = ["Cli", "Gate", "cli", "is_alive", "wait_until_gone"]


def wait_until_gone(pid: int) -> None:
    """Until the process has ended; it is nobody's child here, so it is looked for, a bounded number of times."""
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
