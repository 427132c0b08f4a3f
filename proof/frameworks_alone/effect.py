"""The tool that all frameworks run: its effect is a line in a file that outlives every process."""

import os
import signal
from pathlib import Path

_KILLS = "HOLDFAST_PROOF_KILLS"


class FileEffect:
    """The effect in a folder. With `dying()`, the process is killed right after the next one."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "effects.log"

    def restart(self, service: str) -> str:
        with self._log.open("a") as log:
            log.write(f"restart {service}\n")
            log.flush()
            os.fsync(log.fileno())
        if os.environ.get(_KILLS):
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{service} restarted"

    def count(self) -> int:
        return len(self._log.read_text().splitlines()) if self._log.exists() else 0


def dying() -> dict[str, str]:
    """The environment of a process that dies in mid-tool."""
    return {_KILLS: "1"}
