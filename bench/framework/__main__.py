"""
`python -m bench.framework NAME`: an allowed call under one framework against the framework alone.

A run makes CALLS calls, one after another, or none. The difference, by call, is the cost of a call:
the beginning and the end of a message are not in it. Runs of both kinds alternate, with bare
writes to the same disk between them: an allowed call makes COMMITS commits.
"""

import asyncio
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import holdfast

CALLS = 20
ROUNDS = 15
COMMITS = 3
RECORD = b"x" * 600 + b"\n"  # about what a commit of a call writes
GOAL_MS = 2.5
SOURCE = holdfast.MessageSource.local("bench")
Line = Callable[[int, str], Awaitable[Any]]


async def measure(name: str, folder: Path) -> dict[str, Any]:
    framework = importlib.import_module(f"bench.framework.{name.replace('-', '_')}")
    async with holdfast.open(folder / "home") as home:
        lines: dict[str, Line] = {
            "alone": framework.alone(),
            "under": framework.under(home, SOURCE),
        }
        found: dict[str, list[float]] = {each: [] for each in lines}
        busy: dict[str, list[float]] = {each: [] for each in lines}
        disk: list[float] = []
        for number in range(ROUNDS + 2):
            for each, line in lines.items():
                seconds, cpu = await _by_call(line, f"{each}-{number}")
                if number > 1:  # the first two load and compile
                    found[each].append(seconds * 1e3)
                    busy[each].append(cpu * 1e3)
            disk += _bare_writes(folder / "bare")
    p50 = {each: statistics.median(costs) for each, costs in found.items()}
    more = p50["under"] - p50["alone"]
    cpu = statistics.median(busy["under"]) - statistics.median(busy["alone"])
    return {
        "framework": name,
        "alone_ms": round(p50["alone"], 2),
        "under_ms": round(p50["under"], 2),
        "more_ms": round(more, 2),
        # The rest is waiting for the event loop's turn, on a machine that has more to do.
        "of_it_cpu_ms": round(cpu, 2),
        "of_it_disk_ms": round(COMMITS * statistics.median(disk) * 1e3, 2),
        "reached": more <= GOAL_MS,
    }


async def _by_call(line: Line, name: str) -> tuple[float, float]:
    """The seconds of a call, and those of them in which this process ran."""
    costs = {}
    for calls in (0, CALLS):
        begun = time.perf_counter(), time.process_time()
        await line(calls, f"{name}-{calls}")
        costs[calls] = time.perf_counter() - begun[0], time.process_time() - begun[1]
    whole, cpu = ((more - less) / CALLS for more, less in zip(costs[CALLS], costs[0], strict=True))
    return whole, cpu


def _bare_writes(path: Path) -> list[float]:
    """The seconds of each of some writes that are on the disk when they return."""
    costs = []
    with path.open("ab", buffering=0) as file:
        for _ in range(CALLS):
            begun = time.perf_counter()
            file.write(RECORD)
            os.fdatasync(file.fileno())
            costs.append(time.perf_counter() - begun)
    return costs


def main() -> None:
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            print(json.dumps(asyncio.run(measure(name, Path(folder)))), flush=True)


if __name__ == "__main__":
    main()
