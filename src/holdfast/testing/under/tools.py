"""The tools of the contract: each effect is a line in a file that outlives every process."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

MODES: dict[str, dict[str, str]] = {
    "restart": {"mode": "ask", "contract": "once"},
    "note": {"mode": "auto", "contract": "once"},
    "stall": {"mode": "auto", "contract": "once"},
    "lag": {"mode": "auto", "contract": "once"},
    "helper": {"mode": "auto", "contract": "pure"},
}
"""How Holdfast treats each tool; an adapter's test puts this where its framework keeps metadata."""

LAG_SECONDS = 0.3
"""
The time-out of `lag`, which never ends by itself. An adapter's test sets it as the framework's own
time-out of a tool, or takes `tools_that_keep_time` if the framework has none.
"""


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How one run of the line ended."""

    waiting: bool
    text: str = ""
    model_calls: int = 0  # of this process


class Effects:
    """The effects of the tools, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # also for files of the framework that must outlive a process
        self._log = folder / "effects.log"
        self.begun = asyncio.Event()  # set once `stall` has begun

    def add(self, text: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{text}\n")
            log.flush()
            os.fsync(log.fileno())

    def lines(self) -> list[str]:
        return self._log.read_text().split("\n")[:-1] if self._log.exists() else []

    def tools(self) -> dict[str, Callable[..., Any]]:
        """Plain functions, for the framework to make tools of. The nested agent is the test's."""

        async def restart(service: str, region: str = "eu-1") -> str:
            """Restart one service."""
            self.add(f"restart {service} {region}")
            if service == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            return f"{service} restarted in {region}"

        async def note(text: str) -> str:
            """Write a note."""
            self.add(f"note {text}")
            return f"noted {text}"

        async def stall(service: str) -> str:
            """Begin, and never end."""
            self.add(f"stall {service}")
            self.begun.set()
            await asyncio.Event().wait()
            return "never"

        async def lag(service: str) -> str:
            """Begin, and never end in time."""
            self.add(f"lag {service}")
            await asyncio.Event().wait()
            return "never"

        return {"restart": restart, "note": note, "stall": stall, "lag": lag}

    def tools_that_keep_time(self) -> dict[str, Callable[..., Any]]:
        """The same for a framework without a time-out of tools: `lag` has one itself."""
        functions = self.tools()
        never_ends = functions["lag"]

        async def lag(service: str) -> str:
            """Begin, and never end in time."""
            return str(await asyncio.wait_for(never_ends(service), LAG_SECONDS))

        return {**functions, "lag": lag}
