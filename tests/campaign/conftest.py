"""Real processes on real homes, as tests/cli has them."""

import os
import select
import time
from pathlib import Path

from tests.cli.conftest import Cli, cli

__all__ = ["Cli", "Gate", "cli", "is_alive", "wait_until_gone"]

DEADLINE_SECONDS = 60.0  # for what takes a second; a test that gets here has failed


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
